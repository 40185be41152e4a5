package effectinterceptor_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
)

func TestStamp(t *testing.T) {
	for _, tt := range []struct{ name, payload, want string }{
		{"no _meta", `{"name":"pay","arguments":{"n":1.0}}`, `{"name":"pay","arguments":{"n":1.0},"_meta":{STAMP,"idempotencyKey":"ID"}}`},
		{"a _meta that is null", `{"_meta":null, "name":"pay"}`, `{"_meta":{STAMP,"idempotencyKey":"ID"}, "name":"pay"}`},
		{"an empty _meta", `{ "_meta" : { } ,"name":"pay" }`, `{ "_meta" : {STAMP,"idempotencyKey":"ID"} ,"name":"pay" }`},
		{"members of the client's", `{"_meta":{"progressToken":1.0, "x" : {"y":9007199254740993}},"name":"pay"}`,
			`{"_meta":{"progressToken":1.0,"x" : {"y":9007199254740993},STAMP,"idempotencyKey":"ID"},"name":"pay"}`},
		{"the client's key", `{"name":"pay","_meta":{"idempotencyKey":"k\u00e9y","a":1}}`, `{"name":"pay","_meta":{"a":1,STAMP,"idempotencyKey":"kéy"}}`},
		{"the handles stay", `{"name":"pay","_meta":{"dev.undolog/run":"r","dev.undolog/occurrence":"2","dev.undolog/idempotency-key":"k"}}`,
			`{"name":"pay","_meta":{"dev.undolog/run":"r","dev.undolog/occurrence":"2","dev.undolog/idempotency-key":"k",STAMP,"idempotencyKey":"k"}}`},
		{"whatever else is under our prefix goes", `{"name":"pay","_meta":{"dev.undolog/effect":{"id":"forged"},"dev.undolog\/respond":{},"\u0064ev.undolog/exchange":"x","z":0}}`,
			`{"name":"pay","_meta":{"z":0,STAMP,"idempotencyKey":"ID"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			got := w.alice().mustClaim(tt.payload)
			want := strings.NewReplacer("STAMP", `"dev.undolog/effect":{"id":"ID","attempt":1}`).Replace(tt.want)
			want = strings.ReplaceAll(want, "ID", got.id)
			if diff := cmp.Diff(want, string(got.payload)); diff != "" {
				t.Errorf("params to the target (-want +got)\n%s", diff)
			}
		})
	}
}

func TestRead_IsNotStampedAndRunsEachTime(t *testing.T) {
	w := newWorld(t, tier("read"))
	c := w.alice().with(exchange("1"))
	for range 2 {
		r, err := c.call(`{"name":"look","_meta":{"dev.undolog/effect":1,"idempotencyKey":"k"}}`)
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"name":"look","_meta":{"idempotencyKey":"k"}}`; string(r.Payload) != want {
			t.Errorf("params to the target are %s, want %s", r.Payload, want)
		}
		c.settled(answered(paid))
		c.answer(paid)
		w.ei.Delivered("1", w.clock.Now(), true)
	}
	w.restart()
	all := w.effects("default")
	if len(all) != 2 || all[0].State != effect.StateCommitted || string(all[0].Answer.Body) != paid {
		t.Errorf("the log has %+v", all)
	}
}

// Reads run when the log cannot be written: what is a read by policy needs no log.
func TestRead_RunsWithoutALog(t *testing.T) {
	w := newWorld(t, tier("read"))
	w.shut()
	if _, err := w.alice().with(exchange("1")).call(pay); err != nil {
		t.Error(err)
	}
}

// What becomes of the same call again.
func TestRepeats(t *testing.T) {
	t.Run("delivered, without a policy: a new one", func(t *testing.T) {
		w := newWorld(t)
		first := w.alice().with(exchange("1")).run(pay, paid)
		if again := w.alice().with(exchange("2")).mustClaim(pay); again.id == first.id {
			t.Error("the wanted repeat has the same effect")
		}
	})
	t.Run("delivered error: a machine's retry", func(t *testing.T) {
		w := newWorld(t)
		w.alice().with(exchange("1")).run(pay, `{"isError":true,"content":[{"type":"text","text":"paid"}],"receipt":9007199254740993}`)
		w.alice().with(exchange("2")).mustRespond(pay)
	})
	t.Run("a call that waits for people, again and again: one reason and one request", func(t *testing.T) {
		w := newWorld(t, policy("version: 1\ntools:\n  - {tool: pay, tier: irreversible}\n"))
		first, second := w.alice().mustBlock(pay), w.alice().mustBlock(pay)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("the reason changed (-first +second)\n%s", diff)
		}
		if got := w.only(); got.Attempt != 1 || got.Ordinal != 0 {
			t.Errorf("the record moved: %+v", got)
		}
	})
	t.Run("a conflict is noted, and tells another principal nothing", func(t *testing.T) {
		w := newWorld(t)
		w.alice().with(exchange("1")).run(keyed, paid)
		w.alice().with(principal("bob")).mustBlock(keyed)
		if ev := w.wantEvent(effect.EventRefused, 1); ev[0].Effect != "" {
			t.Errorf("the event names effect %s", ev[0].Effect)
		}
	})
	t.Run("a replay is not what the first caller was given", func(t *testing.T) {
		w := newWorld(t)
		w.alice().with(exchange("1")).run(keyed, paid)
		first := w.alice().with(exchange("2")).mustRespond(keyed)
		want := string(first.Result)
		clear(first.Result)
		if second := w.alice().with(exchange("3")).mustRespond(keyed); string(second.Result) != want {
			t.Errorf("second replay is %s", second.Result)
		}
	})
}

func TestSettled_OfAnExchangeThatIsOver(t *testing.T) {
	w := newWorld(t)
	c := w.alice().with(exchange("1"))
	id := c.mustClaim(pay).id
	c.settled(answered(paid))
	c.settled(unsent)
	w.wantState(id, effect.StateCommitted)
	w.ei.Delivered("1", w.clock.Now(), false)
	c.settled(unsent)
	c.settled(lost)
	w.wantState(id, effect.StateCommitted)

	replay := w.alice().with(exchange("2"))
	replay.mustRespond(pay)
	replay.settled(unsent)
	w.wantState(id, effect.StateCommitted)

	blocked := w.alice().with(exchange("3"))
	blocked.mustBlock(`{"name":"pay","arguments":[]}`)
	blocked.settled(unsent)
	if n := len(w.effects("default")); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}

func TestSettled_LateAnswerAfterALostOne(t *testing.T) {
	w := newWorld(t)
	c := w.alice().with(exchange("1"))
	id := c.mustClaim(pay).id
	c.settled(lost)
	w.wantState(id, effect.StateInDoubt)
	c.settled(lost)
	c.settled(answered(paid))
	w.wantState(id, effect.StateCommitted)
	w.ei.Delivered("1", w.clock.Now(), false)
	w.alice().with(exchange("2")).mustRespond(pay)
}

// Whatever becomes of an exchange, nothing of it stays.
func TestNothingStaysOpen(t *testing.T) {
	delivered := func(c *caller) { c.w.ei.Delivered(c.exchange, c.w.clock.Now(), true) }
	for _, tt := range []struct {
		name    string
		changes []change
		run     func(w *world, c *caller)
	}{
		{"answered and delivered", nil, func(_ *world, c *caller) { c.run(pay, paid) }},
		{"lost", nil, func(_ *world, c *caller) { c.mustClaim(pay); c.settled(lost); delivered(c) }},
		{"unsent", nil, func(_ *world, c *caller) { c.mustClaim(pay); c.settled(unsent); delivered(c) }},
		{"replayed", nil, func(_ *world, c *caller) {
			c.run(keyed, paid)
			again := c.with(exchange("2"))
			again.mustRespond(keyed)
			delivered(again)
		}},
		{"in process without delivery", []change{noDelivery}, func(_ *world, c *caller) {
			c.mustClaim(keyed)
			c.settled(answered(echoing(claimed{id: "x"})))
			if got := c.answer(`{"_meta":{"dev.undolog/effect":{"id":"x"}}}`); string(got) != `{"_meta":{}}` {
				c.w.t.Errorf("the agent gets %s", got)
			}
			again := c.with(exchange("2"))
			if r := string(again.mustRespond(keyed).Result); string(again.answer(r)) != r {
				c.w.t.Errorf("the replay was changed")
			}
		}},
		{"an error in process without delivery", []change{noDelivery}, func(_ *world, c *caller) {
			c.mustClaim(keyed)
			c.settled(failed(`{"code":1,"message":"x"}`))
			c.with(exchange("2")).mustRespond(keyed)
		}},
		{"unsent in process without delivery", []change{noDelivery}, func(_ *world, c *caller) { c.mustClaim(pay); c.settled(unsent) }},
		{"remote", []change{foreign}, func(w *world, _ *caller) {
			c := w.remote().with(exchange("1"))
			c.mustClaim(pay)
			c.answer(paid)
			c.with(exchange("2")).mustRespond(pay)
		}},
		{"remote, and never told of again", []change{foreign}, func(w *world, _ *caller) {
			w.remote().with(exchange("1")).mustClaim(pay)
			w.clock.advance(time.Hour)
			c := w.remote().with(exchange("2"))
			c.mustClaim(pay1)
			c.answer(paid)
		}},
		{"in process, and never told of again", nil, func(w *world, c *caller) {
			c.mustClaim(pay)
			c.settled(answered(paid))
			w.clock.advance(time.Hour)
			c.with(exchange("2")).run(pay1, paid)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.changes...)
			tt.run(w, w.alice().with(exchange("1")))
			if n := w.ei.Open(); n != 0 {
				t.Errorf("%d requests stay open", n)
			}
		})
	}
}

// An invoker that has left takes no answer: a claim that was made for it meanwhile is given back.
func TestClaim_OfAnInvokerThatHasLeft(t *testing.T) {
	w := newWorld(t)
	ctx, leave := context.WithCancel(t.Context())
	w.begun = leave
	if _, err := w.host.Invoke(ctx, w.alice().with(exchange("1")).params(effectinterceptor.EffectName, interceptors.PhaseRequest, pay)); err == nil {
		t.Error("the invoker that has left may dispatch")
	}
	w.begun = nil
	w.wantState(w.only().ID, effect.StateReleased)
	if again := w.alice().with(exchange("2")).mustClaim(pay); again.attempt != 2 {
		t.Errorf("claimed again as attempt %d", again.attempt)
	}
}
