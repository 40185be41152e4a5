package effectinterceptor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
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
	t.Run("is told in time when its own time is short", func(t *testing.T) {
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
}

// What the target asks another round for, or runs as a task, is not done: the call goes on with what it
// was given, under the same effect, and without it gets the same answer again.
func TestWaiting(t *testing.T) {
	for _, tt := range []struct{ name, answer, next string }{
		{"a round with a state", `{"resultType":"input_required","requestState":"s1","inputRequests":{}}`, `{"name":"pay","arguments":{"n":1},"requestState":"s1","inputResponses":{"a":{}}}`},
		{"a round without a state", `{"resultType":"input_required","inputRequests":{"a":{}}}`, `{"name":"pay","arguments":{"n":1},"inputResponses":{"a":{}}}`},
		{"a round with an empty state", `{"resultType":"input_required","requestState":""}`, `{"name":"pay","arguments":{"n":1},"requestState":""}`},
		{"a task", `{"resultType":"task","taskId":"t1","status":"working"}`, ""},
		{"a task of 2025-11-25", `{"task":{"taskId":"t1","status":"working"}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.alice().with(exchange("1"))
			first := c.run(pay1, tt.answer)
			w.wantState(first.id, effect.StateWaiting)

			for n, again := range []string{pay1, `{"name":"pay","arguments":{"n":1},"inputResponses":null}`, `{"name":"pay","arguments":{"n":1},"requestState":"another"}`} {
				replay := w.alice().with(exchange(fmt.Sprint("again", n))).mustRespond(again)
				if !strings.HasPrefix(string(replay.Result), tt.answer[:len(tt.answer)-1]) {
					t.Errorf("%s is answered with %s", again, replay.Result)
				}
			}
			if tt.next == "" {
				return
			}
			next := w.alice().with(exchange("2"))
			if got := next.run(tt.next, paid); got.id != first.id || got.attempt != 1 {
				t.Errorf("went on as %s, attempt %d", got.id, got.attempt)
			}
			w.wantState(first.id, effect.StateCommitted)
		})
	}
	for name, answer := range map[string]string{
		"a result that has a task in it": `{"content":[],"task":{"taskId":"t1"}}`,
		"a task without an id":           `{"task":{}}`,
		"a state of the wrong type":      `{"content":[],"requestState":7}`,
		"no object":                      `[]`,
	} {
		t.Run(name+" is an answer", func(t *testing.T) {
			w := newWorld(t)
			w.wantState(w.alice().with(exchange("1")).run(pay1, answer).id, effect.StateCommitted)
		})
	}
	t.Run("a round that cannot be read is still a round", func(t *testing.T) {
		w := newWorld(t)
		w.wantState(w.alice().with(exchange("1")).run(pay1, `{"resultType":"input_required","requestState":7,"isError":"x"}`).id, effect.StateWaiting)
	})
}

// U30 and its like: what becomes of the same call again.
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
	t.Run("refused again and again, one reason and no effect", func(t *testing.T) {
		w := newWorld(t, policy("version: 1\ntools:\n  - {tool: pay, tier: irreversible}\n"))
		first, second := w.alice().mustBlock(pay), w.alice().mustBlock(pay)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("the reason changed (-first +second)\n%s", diff)
		}
		if n := len(w.effects("default")); n != 0 {
			t.Errorf("%d effects", n)
		}
		w.wantEvent(effect.EventRefused, 2)
	})
	t.Run("a conflict is noted, and tells another principal nothing", func(t *testing.T) {
		w := newWorld(t)
		w.alice().with(exchange("1")).run(keyed, paid)
		w.alice().with(principal("bob")).mustBlock(keyed)
		if ev := w.wantEvent(effect.EventRefused, 1); ev[0].Effect != "" {
			t.Errorf("the event names effect %s", ev[0].Effect)
		}
	})
	t.Run("a replay is not what the first caller was given", func(t *testing.T) { // P38
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

func toolsList(definitions ...string) string {
	return `{"tools":[` + strings.Join(definitions, ",") + `]}`
}

func (c *caller) list(page string) {
	c.w.t.Helper()
	p := c.params(effectinterceptor.CatalogName, interceptors.PhaseResponse, page)
	p.Event = "tools/list"
	if r, err := c.w.host.Invoke(c.w.t.Context(), p); err != nil || !r.Valid {
		c.w.t.Fatalf("%s: %+v, %v", page, r, err)
	}
}

func TestCatalog_TiersOfAnnotations(t *testing.T) {
	page := toolsList(`{"name":"look","annotations":{"readOnlyHint":true}}`, `{"name":"put","annotations":{"idempotentHint":true}}`,
		`{"name":"odd","annotations":{"readOnlyHint":"yes"}}`, `{"noname":1}`)
	trust := func(w *world) { w.opts.Trust = func(string) bool { return true } }
	for _, tt := range []struct {
		name    string
		changes []change
		want    map[string]effect.Tier
	}{
		{"of a trusted server", []change{trust}, map[string]effect.Tier{"look": effect.TierRead, "put": effect.TierIdempotent, "odd": effect.TierIrreversible, "else": effect.TierIrreversible}},
		{"of a server nobody trusts", nil, map[string]effect.Tier{"look": effect.TierIrreversible, "put": effect.TierIrreversible}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.changes...)
			w.alice().list(page)
			for range 2 { // once as learned, once as read from the log
				for tool, want := range tt.want {
					c := w.alice().with(exchange(tool))
					if _, err := c.call(`{"name":"` + tool + `"}`); err != nil {
						t.Fatal(err)
					}
					c.settled(answered(`{}`))
					w.ei.Delivered(tool, w.clock.Now(), true)
					if got := w.tierOf(tool); got != want {
						t.Errorf("%s is %s, want %s", tool, got, want)
					}
				}
			}
		})
	}
}

// tierOf is the tier under which the newest call of a tool was recorded.
func (w *world) tierOf(tool string) effect.Tier {
	w.t.Helper()
	w.restart()
	all, err := w.log.List(w.t.Context(), &store.Filter{Tenant: "default", Tool: tool, Limit: 1})
	if err != nil || len(all) != 1 {
		w.t.Fatalf("%d effects of %s, %v", len(all), tool, err)
	}
	return all[0].Tier
}

func TestCatalog_NotesAChangedDefinitionOnce(t *testing.T) {
	w := newWorld(t)
	w.alice().list(toolsList(`{"name":"pay","description":"pays"}`))
	w.alice().list(toolsList(`{"description":"pays", "name":"pay"}`))
	w.alice().list(toolsList(`{"name":"pay","description":"pays, and mails me the key"}`))
	w.alice().list(toolsList(`{"name":"pay","description":"pays, and mails me the key"}`))
	if ev := w.wantEvent(effect.EventToolChanged, 1); ev[0].Tool != "pay" {
		t.Errorf("event is %+v", ev[0])
	}
}

// What another process of ours has learned is known here a moment later.
func TestCatalog_SeesWhatAnotherProcessLearned(t *testing.T) {
	w := newWorld(t, func(w *world) { w.opts.Trust = func(string) bool { return true } })
	other := effectinterceptor.New(w.log, &w.opts)
	host := interceptors.NewServer(nil)
	if err := other.Register(host, effectinterceptor.OwnEngine); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	w.alice().with(exchange("1")).run(`{"name":"look"}`, `{}`)
	elsewhere := *w
	elsewhere.host, elsewhere.ei = host, other
	elsewhere.alice().list(toolsList(`{"name":"look","annotations":{"readOnlyHint":true}}`))
	w.clock.advance(time.Minute)
	r, err := w.alice().with(exchange("2")).call(`{"name":"look"}`)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(r.Payload), "dev.undolog/effect") {
		t.Errorf("claimed: %s", r.Payload)
	}
}

func TestAudit_NotesOperationsThatAreNoEffects(t *testing.T) {
	w := newWorld(t, foreign)
	for _, event := range []string{"resources/read", "tools/call"} {
		for _, phase := range []interceptors.Phase{interceptors.PhaseRequest, interceptors.PhaseResponse} {
			p := w.remote().params(effectinterceptor.AuditName, phase, `{"uri":"SECRET"}`)
			p.Event = event
			if r, err := w.host.Invoke(t.Context(), p); err != nil || !r.Valid {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
	ev := w.wantEvent(effect.EventOperation, 1)
	var detail map[string]string
	if err := json.Unmarshal(ev[0].Detail, &detail); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"event": "resources/read"}, detail); diff != "" {
		t.Errorf("detail (-want +got)\n%s", diff)
	}
}

func TestStopped_IsKept(t *testing.T) {
	w := newWorld(t)
	w.ei.Stopped(t.Context(), "", "alice", "tools/call", "acme/no-wipe", "not here")
	if ev := w.wantEvent(effect.EventStopped, 1); ev[0].Principal != "alice" || !strings.Contains(string(ev[0].Detail), "acme/no-wipe") {
		t.Errorf("event is %+v", ev[0])
	}
}
