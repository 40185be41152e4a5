package effectinterceptor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

const (
	pay1 = `{"name":"pay","arguments":{"n":1}}`
	pay2 = `{"name":"pay","arguments":{"n":2}}`
)

// echoing is a result of a target that hands back the mark that it was sent.
func echoing(c claimed) string {
	return fmt.Sprintf(`{"content":[],"_meta":{"own":1.0,"dev.undolog/effect":{"id":%q,"attempt":%d}}}`, c.id, c.attempt)
}

// Somebody else's engine: by what a response finds its request, strongest first.
func TestCorrelation(t *testing.T) {
	t.Run("the exchange id before everything else", func(t *testing.T) {
		w := newWorld(t, foreign)
		a := w.remote().with(exchange("a"), session("s"), span("1"))
		b := w.remote().with(exchange("b"), session("s"), span("2"))
		first, second := a.mustClaim(pay1), b.mustClaim(pay2)
		b.with(span("1")).answer(paid)
		w.wantState(first.id, effect.StateClaimed)
		w.wantState(second.id, effect.StateCommitted)
	})
	t.Run("an unknown exchange id is not replaced by weaker evidence", func(t *testing.T) {
		w := newWorld(t, foreign)
		a := w.remote().with(exchange("a"), session("s"), span("1"))
		first := a.mustClaim(pay1)
		a.with(exchange("z")).answer(paid)
		w.wantState(first.id, effect.StateClaimed)
		w.wantEvent(effect.EventUnmatched, 1)
	})
	t.Run("an exchange id used twice is not guessed", func(t *testing.T) {
		w := newWorld(t, foreign)
		a := w.remote().with(exchange("a"))
		first, second := a.mustClaim(pay1), a.mustClaim(pay2)
		a.answer(paid)
		w.wantState(first.id, effect.StateClaimed)
		w.wantState(second.id, effect.StateClaimed)
	})
	t.Run("an exchange id of another invoker is another one", func(t *testing.T) {
		w := newWorld(t, foreign)
		first := w.remote().with(exchange("a")).mustClaim(pay1)
		w.remote().with(exchange("a"), func(c *caller) { c.caller.Subject = "other" }).answer(paid)
		w.wantState(first.id, effect.StateClaimed)
	})
	t.Run("the echoed effect before trace and span", func(t *testing.T) {
		w := newWorld(t, foreign)
		first := w.remote().with(span("1")).mustClaim(pay1)
		second := w.remote().with(span("2")).mustClaim(pay2)
		got := w.remote().with(span("1")).answer(echoing(second))
		w.wantState(first.id, effect.StateClaimed)
		w.wantState(second.id, effect.StateCommitted)
		if want := `{"content":[],"_meta":{"own":1.0}}`; string(got) != want {
			t.Errorf("the agent gets %s, want %s", got, want)
		}
	})
	t.Run("trace and span among overlapping calls of a session (H35)", func(t *testing.T) {
		w := newWorld(t, foreign)
		a, b := w.remote().with(session("s"), span("1")), w.remote().with(session("s"), span("2"))
		first, second := a.mustClaim(pay1), b.mustClaim(pay2)
		a.answer(paid)
		w.wantState(first.id, effect.StateCommitted)
		w.wantState(second.id, effect.StateClaimed)
		a.answer(paid) // the engine repeats itself: not an answer to the other call, although that is alone now
		w.wantState(second.id, effect.StateClaimed)
		b.answer(paid)
		w.wantState(second.id, effect.StateCommitted)
	})
	t.Run("a session with two open calls is not guessed (H35)", func(t *testing.T) {
		w := newWorld(t, foreign)
		s := w.remote().with(session("s"))
		first, second := s.mustClaim(pay1), s.mustClaim(pay2)
		s.answer(paid)
		w.clock.advance(6 * time.Minute)
		w.wantState(first.id, effect.StateInDoubt)
		w.wantState(second.id, effect.StateInDoubt)
		w.wantEvent(effect.EventUnmatched, 1)
	})
	t.Run("a session with one open call", func(t *testing.T) {
		w := newWorld(t, foreign)
		first := w.remote().with(session("s")).mustClaim(pay1)
		other := w.remote().with(session("z")).mustClaim(pay2)
		w.remote().with(session("s")).answer(paid)
		w.wantState(first.id, effect.StateCommitted)
		w.wantState(other.id, effect.StateClaimed)
	})
	t.Run("a read of the session that is unanswered counts", func(t *testing.T) {
		w := newWorld(t, foreign, policy("version: 1\ntools:\n  - {tool: look, tier: read}\n  - {tool: pay, tier: irreversible, approve: never}\n"))
		s := w.remote().with(session("s"))
		first := s.mustClaim(pay1)
		if _, err := s.call(`{"name":"look"}`); err != nil {
			t.Fatal(err)
		}
		s.answer(`{"content":[]}`)
		w.wantState(first.id, effect.StateClaimed)
	})
	t.Run("no evidence", func(t *testing.T) {
		w := newWorld(t, foreign)
		first := w.remote().mustClaim(pay1)
		w.remote().answer(paid)
		w.wantState(first.id, effect.StateClaimed)
		w.wantEvent(effect.EventUnmatched, 1)
	})
}

func TestCorrelation_OfEchoes(t *testing.T) {
	t.Run("of an earlier attempt is late", func(t *testing.T) {
		w := newWorld(t, foreign, tier("idempotent"))
		first := w.remote().mustClaim(pay1)
		w.clock.advance(6 * time.Minute)
		second := w.remote().mustClaim(pay1)
		if second.id != first.id || second.attempt != 2 {
			t.Fatalf("claimed again as %+v after %+v", second, first)
		}
		w.remote().answer(echoing(first))
		w.wantState(first.id, effect.StateClaimed)
		w.remote().answer(echoing(second))
		w.wantState(first.id, effect.StateCommitted)
		w.wantEvent(effect.EventLate, 1)
	})
	t.Run("of another log says nothing", func(t *testing.T) {
		w := newWorld(t, foreign)
		s := w.remote().with(session("s"))
		first := s.mustClaim(pay1)
		s.answer(`{"_meta":{"dev.undolog/effect":{"id":"019a0000-0000-7000-8000-000000000000","attempt":1}}}`)
		w.wantState(first.id, effect.StateCommitted)
	})
	t.Run("of a replay settles nothing", func(t *testing.T) {
		w := newWorld(t, foreign)
		s := w.remote().with(session("s"))
		s.mustClaim(keyed)
		s.answer(paid)
		other := s.mustClaim(pay1)
		replay := w.remote().with(session("s")).mustRespond(keyed)
		got := s.answer(string(replay.Result))
		if string(got) != string(replay.Result) {
			t.Errorf("the replay became %s", got)
		}
		w.wantState(other.id, effect.StateClaimed)
		w.wantEvent(effect.EventUnmatched, 0)
	})
	t.Run("of an earlier round's replay does not settle the next round", func(t *testing.T) {
		for _, restart := range []bool{false, true} {
			w := newWorld(t, foreign)
			c := w.remote()
			first := c.mustClaim(pay1)
			c.answer(`{"resultType":"input_required","requestState":"s","_meta":` + string(splice.Get(first.payload, "_meta")) + `}`)
			replay := c.mustRespond(pay1)
			c.mustClaim(`{"name":"pay","arguments":{"n":1},"requestState":"s","inputResponses":{}}`)
			if restart {
				w.restart()
			}
			c.answer(string(replay.Result))
			w.wantState(first.id, effect.StateClaimed)
		}
	})
	t.Run("that a target forged is taken off", func(t *testing.T) {
		w := newWorld(t, foreign)
		c := w.remote().with(exchange("1"))
		id := c.mustClaim(pay1).id
		got := c.answer(`{"content":[],"_meta":{"dev.undolog/replayed":true,"\u0064ev.undolog/effect":{"id":"x"}}}`)
		if string(got) != `{"content":[],"_meta":{}}` {
			t.Errorf("the agent gets %s", got)
		}
		w.wantState(id, effect.StateCommitted)
	})
	t.Run("of another effect than the claimed one is told", func(t *testing.T) {
		w := newWorld(t, foreign)
		c := w.remote().with(exchange("1"))
		c.mustClaim(pay1)
		other := w.remote().with(exchange("2")).mustClaim(pay2)
		c.answer(echoing(other))
		w.wantState(other.id, effect.StateClaimed)
		altered := w.wantEvent(effect.EventAltered, 1)
		if !strings.Contains(string(altered[0].Detail), other.id) {
			t.Errorf("event says %s", altered[0].Detail)
		}
	})
}

// The process that took the claim is gone; its successor knows the call only from the log.
func TestCorrelation_AfterARestart(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other func(*caller)
		want  effect.State
	}{
		{"the echoed effect settles", func(*caller) {}, effect.StateCommitted},
		{"not for another principal", principal("bob"), effect.StateClaimed},
		{"not for another server", func(c *caller) { c.config = `{"server":"other"}` }, effect.StateClaimed},
		{"not in another tenant", func(c *caller) { c.caller.Tenant = "other" }, effect.StateClaimed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, foreign)
			first := w.remote().mustClaim(pay1)
			w.restart()
			w.remote().with(tt.other).answer(echoing(first))
			w.wantState(first.id, tt.want)
		})
	}
	t.Run("a lost one too", func(t *testing.T) {
		w := newWorld(t, foreign)
		first := w.remote().mustClaim(pay1)
		w.restart()
		w.clock.advance(time.Hour)
		w.wantState(first.id, effect.StateInDoubt)
		w.remote().answer(echoing(first))
		if r := w.wantState(first.id, effect.StateCommitted); !strings.Contains(string(r.Answer.Body), `"own":1.0`) {
			t.Errorf("recorded %s", r.Answer.Body)
		}
	})
	t.Run("a session says nothing any more", func(t *testing.T) {
		w := newWorld(t, foreign)
		first := w.remote().with(session("s")).mustClaim(pay1)
		w.restart()
		w.remote().with(session("s")).answer(paid)
		w.wantState(first.id, effect.StateClaimed)
	})
}

// A foreign engine that never calls the response phase leaves the outcome open; a response that comes
// after the lease still settles it.
func TestForeignEngine_ThatSaysNothingMore(t *testing.T) {
	w := newWorld(t, foreign)
	c := w.remote().with(exchange("1"))
	id := c.mustClaim(pay1).id
	w.clock.advance(4 * time.Minute)
	w.wantState(id, effect.StateClaimed)
	w.clock.advance(2 * time.Minute)
	w.wantState(id, effect.StateInDoubt)
	block := w.remote().with(exchange("2")).mustBlock(pay1)
	if got := outcomeOf(t, block.Data); got != "in_doubt" {
		t.Errorf("the same call is answered with %s", got)
	}
	c.answer(paid)
	w.wantState(id, effect.StateCommitted)
	w.remote().with(exchange("3")).mustRespond(pay1)
}

func outcomeOf(t *testing.T, data json.RawMessage) string {
	t.Helper()
	var outcome string
	if err := json.Unmarshal(splice.Get(data, "dev.undolog/effect", "outcome"), &outcome); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return outcome
}

// In the client's posture validators see the response first, and one after the guard may stop it.
func TestGuard_SettlesWhereValidatorsComeFirst(t *testing.T) {
	w := newWorld(t, foreign)
	c := w.remote().with(exchange("1"))
	id := c.mustClaim(pay1).id
	c.guardAnswer(paid)
	w.wantState(id, effect.StateCommitted)
	c.answer(paid)
	w.wantEvent(effect.EventUnmatched, 0)
}

// Between the two interceptors of one response another call of the session may begin: it must not get
// the answer.
func TestGuard_DoesNotSettleTheNextCall(t *testing.T) {
	w := newWorld(t, foreign)
	s := w.remote().with(session("s"))
	s.mustClaim(pay1)
	if _, err := s.invoke(effectinterceptor.EffectName, interceptors.PhaseResponse, paid); err != nil {
		t.Fatal(err)
	}
	next := s.mustClaim(pay2)
	s.guardAnswer(paid)
	w.wantState(next.id, effect.StateClaimed)
}

// H33: the same ids under two tenants.
func TestTenants_ShareNothing(t *testing.T) {
	w := newWorld(t, foreign)
	acme := func(c *caller) { c.caller = interceptors.Caller{Tenant: "acme", Subject: "engine"} }
	bolt := func(c *caller) { c.caller = interceptors.Caller{Tenant: "bolt", Subject: "engine"} }
	s := w.remote().with(nobody, session("s1"))
	first := s.with(acme).mustClaim(keyed)
	second := s.with(bolt).mustClaim(keyed)
	if first.id == second.id {
		t.Fatal("two tenants have one effect")
	}
	s.with(bolt).answer(paid)
	for tenant, want := range map[string]effect.State{"acme": effect.StateClaimed, "bolt": effect.StateCommitted} {
		all := w.effects(tenant)
		if len(all) != 1 || all[0].State != want {
			t.Errorf("%s has %+v, want one effect that is %s", tenant, all, want)
		}
	}
	s.with(bolt).mustRespond(keyed)
}

// H34: nothing says who calls. The call is recorded and runs, every time, and the engine is told.
func TestNobody_IsRecordedAndRuns(t *testing.T) {
	w := newWorld(t, foreign)
	c := w.remote().with(nobody)
	first, second := c.mustClaim(pay1), c.mustClaim(pay1)
	if first.id == second.id {
		t.Error("two calls of nobody share an effect")
	}
	var told struct {
		Identity  string `json:"identity"`
		Stateless bool   `json:"stateless"`
	}
	if err := json.Unmarshal(splice.Get(first.info, "dev.undolog/effect"), &told); err != nil {
		t.Fatal(err)
	}
	if told.Identity != "none" || !told.Stateless {
		t.Errorf("info says %+v", told)
	}
	if n := len(w.effects("default")); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}

func TestSession_SaysWhoCallsWhereNothingElseDoes(t *testing.T) {
	w := newWorld(t, foreign, impatient)
	w.remote().with(nobody, session("s1")).mustClaim(pay1)
	w.remote().with(nobody, session("s2")).mustClaim(pay1)
	var block *interceptors.BlockError
	if _, err := w.remote().with(nobody, session("s1")).call(pay1); !errors.As(err, &block) {
		t.Errorf("the same session's call: %v, want it held", err)
	}
}
