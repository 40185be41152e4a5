package effectinterceptor_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
)

// A retry while the call is under way waits for its outcome, whatever that is.
func TestJoin(t *testing.T) {
	join := func(t *testing.T, w *world) (first *caller, joined chan error) {
		first = w.alice().with(exchange("1"))
		first.mustClaim(pay)
		joined = make(chan error, 1)
		go func() {
			_, err := w.alice().with(exchange("2")).call(pay)
			joined <- err
		}()
		<-w.looked
		return first, joined
	}
	t.Run("gets the owner's answer", func(t *testing.T) {
		w := newWorld(t)
		first, joined := join(t, w)
		first.settled(answered(paid))
		var answer *interceptors.RespondError
		if err := <-joined; !errors.As(err, &answer) || !strings.Contains(string(answer.Result), `"paid"`) {
			t.Errorf("joined with %v", err)
		}
	})
	t.Run("gets the owner's failure", func(t *testing.T) {
		w := newWorld(t)
		first, joined := join(t, w)
		first.settled(failed(`{"code":-32602,"message":"no such account"}`))
		var answer *interceptors.RespondError
		if err := <-joined; !errors.As(err, &answer) || !strings.Contains(string(answer.Err), "no such account") {
			t.Errorf("joined with %v", err)
		}
	})
	t.Run("claims itself what the owner released", func(t *testing.T) {
		w := newWorld(t)
		first, joined := join(t, w)
		first.settled(unsent)
		if err := <-joined; err != nil {
			t.Fatal(err)
		}
		if r := w.only(); r.State != effect.StateClaimed || r.Attempt != 2 {
			t.Errorf("effect is %s, attempt %d", r.State, r.Attempt)
		}
	})
	t.Run("is in doubt with the owner", func(t *testing.T) {
		w := newWorld(t)
		first, joined := join(t, w)
		first.settled(lost)
		var block *interceptors.BlockError
		if err := <-joined; !errors.As(err, &block) || outcomeOf(t, block.Data) != "in_doubt" {
			t.Errorf("joined with %v", err)
		}
	})
	t.Run("runs again what may, when the owner lost it", func(t *testing.T) {
		w := newWorld(t, tier("idempotent"))
		first, joined := join(t, w)
		first.settled(lost)
		if err := <-joined; err != nil {
			t.Fatal(err)
		}
		if r := w.only(); r.State != effect.StateClaimed || r.Attempt != 2 {
			t.Errorf("effect is %s, attempt %d", r.State, r.Attempt)
		}
	})
	t.Run("runs what a person says was not applied", func(t *testing.T) {
		w := newWorld(t, foreign)
		first := w.remote().mustClaim(pay)
		w.look = func() { // the next look of the joined call finds it settled
			w.clock.advance(6 * time.Minute)
			_, err := w.log.Resolve(t.Context(), store.ResolveParams{Tenant: "default", ID: first.id, To: effect.StateFailed, By: "user:ann"})
			if err != nil {
				t.Error(err)
			}
		}
		if again := w.remote().mustClaim(pay); again.id != first.id || again.attempt != 2 {
			t.Errorf("claimed %+v after %+v", again, first)
		}
	})
	t.Run("does not ask without rest when clocks differ", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, foreign, func(w *world) { w.ahead, w.opts.JoinWait = 6*time.Minute, 200*time.Millisecond })
			w.remote().mustClaim(pay)
			asked := 0
			w.begun = func() { asked++ }
			if block := w.remote().mustBlock(pay); outcomeOf(t, block.Data) != "in_progress" {
				t.Errorf("told %s", block.Message)
			}
			if asked < 2 || asked > 25 {
				t.Errorf("asked %d times in 200 ms, want about one in 10", asked)
			}
		})
	})
	t.Run("is told in time when its own time is short", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.alice().with(exchange("1")).mustClaim(pay)
			p := w.alice().with(exchange("2")).params(effectinterceptor.EffectName, interceptors.PhaseRequest, pay)
			p.TimeoutMs = 500
			_, err := w.host.Invoke(t.Context(), p)
			var block *interceptors.BlockError
			if !errors.As(err, &block) || outcomeOf(t, block.Data) != "in_progress" {
				t.Errorf("got %v, want the reason", err)
			}
		})
	})
}
