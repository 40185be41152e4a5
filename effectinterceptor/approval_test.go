package effectinterceptor_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
	"github.com/undolog/undolog/store"
)

// asks is a policy under which a person says whether something is paid.
func asks(w *world) { asking("")(w) }

// asking is asks with more fields of the rule.
func asking(fields string) change {
	return policy("version: 1\ntools:\n  - {tool: pay, tier: irreversible" + fields + "}\n")
}

func (w *world) decide(id string, d effect.Decision) (*effect.Record, error) {
	if d.By == "" {
		d.By = "user:ann"
	}
	return w.log.Decide(context.Background(), &store.DecideParams{Tenant: "default", ID: id, Decision: d})
}

func (w *world) mustDecide(id string, d effect.Decision) {
	w.t.Helper()
	if _, err := w.decide(id, d); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) approve(id string) {
	w.t.Helper()
	w.mustDecide(id, effect.Decision{Kind: effect.DecideApprove})
}

// handleOf is by what a stopped call goes on.
func handleOf(t *testing.T, block *interceptors.BlockError) string {
	t.Helper()
	var pause struct{ Handle string }
	if err := json.Unmarshal(splice.Get(block.Data, chainPause), &pause); err != nil || pause.Handle == "" {
		t.Fatalf("no handle in %s: %v", block.Data, err)
	}
	return pause.Handle
}

func handle(h string) func(*caller) { return func(c *caller) { c.handle = h } }

// wantOutcome checks what a call was stopped with.
func wantOutcome(t *testing.T, block *interceptors.BlockError, want string) {
	t.Helper()
	if got := outcomeOf(t, block.Data); got != want {
		t.Errorf("outcome is %s, want %s: %s", got, want, block.Message)
	}
}

func argumentsOf(payload json.RawMessage) string { return string(splice.Get(payload, "arguments")) }

// The texts of approvals that a model gets.
func TestReasons_OfApprovals(t *testing.T) {
	for _, tt := range []struct {
		name    string
		changes []change
		block   func(w *world) *interceptors.BlockError
	}{
		{"waiting_url", []change{asks, func(w *world) { w.opts.ApprovalURL = "https://approve.example/approvals" }}, func(w *world) *interceptors.BlockError {
			return w.alice().mustBlock(pay)
		}},
		{"waiting_quorum", []change{asking(", quorum: 2")}, func(w *world) *interceptors.BlockError {
			w.alice().mustBlock(pay)
			w.approve(w.only().ID)
			return w.alice().mustBlock(pay)
		}},
		{"waiting_anew", []change{asks}, func(w *world) *interceptors.BlockError {
			w.alice().mustBlock(pay)
			w.clock.advance(25 * time.Hour)
			return w.alice().mustBlock(pay)
		}},
		{"denied_person", []change{asks}, func(w *world) *interceptors.BlockError {
			w.alice().mustBlock(pay)
			w.mustDecide(w.only().ID, effect.Decision{Kind: effect.DecideDeny, Reason: "bob left the company"})
			return w.alice().mustBlock(pay)
		}},
		{"denied_policy", []change{asking(`, deny: "no payments in March"`)}, func(w *world) *interceptors.BlockError {
			return w.alice().mustBlock(pay)
		}},
		{"expired", []change{asks}, func(w *world) *interceptors.BlockError {
			h := handleOf(w.t, w.alice().mustBlock(pay))
			w.clock.advance(25 * time.Hour)
			return w.alice().with(handle(h)).mustBlock(pay)
		}},
		{"void", []change{asks}, func(w *world) *interceptors.BlockError {
			h := handleOf(w.t, w.alice().mustBlock(pay))
			w.approve(w.only().ID)
			w.clock.advance(2 * time.Hour)
			return w.alice().with(handle(h)).mustBlock(pay)
		}},
		{"void_policy", []change{asks}, func(w *world) *interceptors.BlockError {
			h := handleOf(w.t, w.alice().mustBlock(pay))
			w.setPolicy(`, deny: "no payments in March"`)
			return w.alice().with(handle(h)).mustBlock(pay)
		}},
		{"limit", []change{asking(`, approve: never, limits: [{name: payments, max: 1, per: principal}]`)}, func(w *world) *interceptors.BlockError {
			w.alice().with(exchange("1")).run(pay, paid)
			return w.alice().with(exchange("2")).mustBlock(strings.Replace(pay, "bob", "eve", 1))
		}},
		{"strange_handle", []change{asks}, func(w *world) *interceptors.BlockError {
			h := handleOf(w.t, w.alice().mustBlock(pay))
			return w.alice().with(handle(h)).mustBlock(strings.Replace(pay, "bob", "eve", 1))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			block := tt.block(newWorld(t, tt.changes...))
			golden(t, tt.name, block.Message, block.Data)
		})
	}
}

func (w *world) setPolicy(fields string) {
	w.t.Helper()
	p, err := effect.ParsePolicy("undolog.yaml", []byte("version: 1\ntools:\n  - {tool: pay, tier: irreversible"+fields+"}\n"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.ei.SetPolicy(context.Background(), p)
}

func TestApproval_TheApprovedCallRunsOnce(t *testing.T) {
	w := newWorld(t, asks)
	wantOutcome(t, w.alice().mustBlock(pay), "approval_required")
	id := w.only().ID
	wantOutcome(t, w.alice().mustBlock(pay), "approval_required") // the same request
	w.approve(id)
	w.restart()
	done := w.alice().with(exchange("1")).run(pay, paid)
	if done.id != id || argumentsOf(done.payload) != argumentsOf(json.RawMessage(pay)) {
		t.Errorf("ran %s as effect %s, want %s", done.payload, done.id, id)
	}
	w.wantState(id, effect.StateCommitted)
	wantOutcome(t, w.alice().with(exchange("2")).mustBlock(pay), "approval_required")
	if n := len(w.effects("default")); n != 2 {
		t.Errorf("%d effects, want the approved one and the one that is asked about", n)
	}
}

// An approval is for these arguments of this tool of this tenant and caller, and for nothing else.
func TestApproval_IsForOneCallOnly(t *testing.T) {
	w := newWorld(t, asks)
	w.alice().mustBlock(pay)
	w.approve(w.only().ID)
	for _, tt := range []struct {
		name string
		call func() *interceptors.BlockError
	}{
		{"another amount", func() *interceptors.BlockError {
			return w.alice().mustBlock(strings.Replace(pay, "9007199254740993", "11", 1))
		}},
		{"another tool", func() *interceptors.BlockError {
			return w.alice().mustBlock(strings.Replace(pay, `"pay"`, `"wire"`, 1))
		}},
		{"another caller", func() *interceptors.BlockError { return w.alice().with(principal("bob")).mustBlock(pay) }},
		{"another tenant", func() *interceptors.BlockError {
			return w.alice().with(func(c *caller) { c.caller.Tenant = "other" }).mustBlock(pay)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { wantOutcome(t, tt.call(), "approval_required") })
	}
	t.Run("the approved call, after its time to run", func(t *testing.T) {
		w.clock.advance(61 * time.Minute)
		wantOutcome(t, w.alice().mustBlock(pay), "approval_required")
	})
}

// What a person has denied stays denied, and tells why each time.
func TestApproval_DeniedStaysDenied(t *testing.T) {
	w := newWorld(t, asks)
	w.alice().mustBlock(pay)
	id := w.only().ID
	w.mustDecide(id, effect.Decision{Kind: effect.DecideDeny, Reason: "not this week"})
	first := w.wantState(id, effect.StateDenied)
	for range 2 {
		block := w.alice().mustBlock(pay)
		if wantOutcome(t, block, "denied"); !strings.Contains(block.Message, "not this week") {
			t.Errorf("text is %s", block.Message)
		}
	}
	if diff := cmp.Diff(first, w.wantState(id, effect.StateDenied)); diff != "" {
		t.Errorf("the record changed (-before +after)\n%s", diff)
	}
	w.mustDecide(id, effect.Decision{Kind: effect.DecideReopen, Reason: "a mistake"})
	w.approve(id)
	w.alice().mustClaim(pay)
}

// The changed arguments run, and who asked for others is told so, now and whenever it asks again.
func TestApproval_EditedArgumentsRun(t *testing.T) {
	w := newWorld(t, asks)
	w.alice().mustBlock(pay)
	id := w.only().ID
	w.mustDecide(id, effect.Decision{Kind: effect.DecideEdit, Reason: "too much", Arguments: json.RawMessage(`{"amount":5,"to":"bob"}`)})
	wantOutcome(t, w.alice().mustBlock(pay), "approval_required")
	w.approve(id)

	c := w.alice().with(exchange("1"))
	done := c.mustClaim(pay)
	if got := argumentsOf(done.payload); got != `{"amount":5,"to":"bob"}` {
		t.Errorf("sent %s", got)
	}
	c.settled(answered(paid))
	note := noteOf(t, c.answer(paid))
	w.ei.Delivered("1", w.clock.Now(), false)
	golden(t, "edited", note, json.RawMessage(`{}`))
	if again := noteOf(t, w.alice().with(exchange("2")).mustRespond(pay).Result); again != note {
		t.Errorf("the replay says %q, want %q", again, note)
	}
	if got := string(w.wantState(id, effect.StateCommitted).Answer.Body); got != paid {
		t.Errorf("recorded %s", got)
	}
}

func TestApproval_OtherVolatileArgumentsRunAsApproved(t *testing.T) {
	w := newWorld(t, asking(", volatile: [ref]"))
	const first, second = `{"name":"pay","arguments":{"amount":1,"ref":"a"}}`, `{"name":"pay","arguments":{"amount":1,"ref":"b"}}`
	w.alice().mustBlock(first)
	w.approve(w.only().ID)
	if got := argumentsOf(w.alice().mustClaim(second).payload); got != `{"amount":1,"ref":"a"}` {
		t.Errorf("sent %s, want what was approved", got)
	}
}

func TestApproval_Handle(t *testing.T) {
	w := newWorld(t, asks)
	good := handleOf(t, w.alice().mustBlock(pay))
	id := w.only().ID
	parts := strings.Split(good, ".")
	forged := strings.Join([]string{parts[0], strings.Repeat("A", len(parts[1])), parts[2], parts[3]}, ".")
	for _, tt := range []struct {
		name    string
		c       *caller
		outcome string
	}{
		{"goes on with a request that is open", w.alice().with(handle(good)), "approval_required"},
		{"is worth nothing to another caller", w.alice().with(principal("bob"), handle(good)), "conflict"},
		{"is worth nothing in another tenant", w.alice().with(func(c *caller) { c.caller.Tenant = "other" }, handle(good)), "conflict"},
		{"cannot be guessed from the effect", w.alice().with(handle(forged)), "conflict"},
		{"must be one", w.alice().with(handle("x")), "conflict"},
	} {
		t.Run(tt.name, func(t *testing.T) { wantOutcome(t, tt.c.mustBlock(pay), tt.outcome) })
	}
	t.Run("is not taken from a remote engine", func(t *testing.T) {
		w := newWorld(t, asks, foreign)
		wantOutcome(t, w.remote().with(handle("x")).mustBlock(pay), "approval_required")
	})
	t.Run("goes on once the call is approved", func(t *testing.T) {
		w.approve(id)
		if done := w.alice().with(handle(good)).mustClaim(pay); done.id != id {
			t.Errorf("claimed %s, want %s", done.id, id)
		}
	})
	t.Run("an expired request is not asked anew behind the caller's back", func(t *testing.T) {
		w := newWorld(t, asks)
		h := handleOf(t, w.alice().mustBlock(pay))
		w.clock.advance(25 * time.Hour)
		wantOutcome(t, w.alice().with(handle(h)).mustBlock(pay), "expired")
		if got := w.only(); got.Attempt != 1 {
			t.Errorf("attempt %d was asked for", got.Attempt)
		}
		wantOutcome(t, w.alice().mustBlock(pay), "approval_required")
	})
}

func TestInterceptors_AwaitDecision(t *testing.T) {
	w := newWorld(t, asks)
	h := handleOf(t, w.alice().mustBlock(pay))
	t.Run("ends with its caller", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.ei.AwaitDecision(ctx, "", h); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("ends with the decision", func(t *testing.T) {
		done := make(chan error, 1)
		go func() { done <- w.ei.AwaitDecision(t.Context(), "", h) }()
		<-w.looked
		w.approve(w.only().ID)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestInterceptors_Decide(t *testing.T) {
	ask := func(t *testing.T, fields string) (*world, effectinterceptor.HostDecision) {
		w := newWorld(t, asking(fields))
		h := handleOf(t, w.alice().with(principal("agent:alice")).mustBlock(pay))
		return w, effectinterceptor.HostDecision{Principal: "agent:alice", Handle: h, Approve: true}
	}
	t.Run("the host's user approves where the policy lets it", func(t *testing.T) {
		w, yes := ask(t, ", elicitation: true")
		if err := w.ei.Decide(t.Context(), yes); err != nil {
			t.Fatal(err)
		}
		a := w.only().Approval
		if len(a.Votes) != 1 || a.Votes[0].By != "user:alice" || a.Votes[0].Via != effect.ViaElicitation {
			t.Errorf("votes %+v", a.Votes)
		}
		w.alice().with(principal("agent:alice")).mustClaim(pay)
	})
	t.Run("and else not", func(t *testing.T) {
		w, yes := ask(t, "")
		var forbidden *effect.ForbiddenError
		if err := w.ei.Decide(t.Context(), yes); !errors.As(err, &forbidden) {
			t.Errorf("got %v", err)
		}
		wantOutcome(t, w.alice().with(principal("agent:alice")).mustBlock(pay), "approval_required")
	})
	t.Run("a no without a reason has one", func(t *testing.T) {
		w, no := ask(t, ", elicitation: true")
		no.Approve = false
		if err := w.ei.Decide(t.Context(), no); err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, w.alice().with(principal("agent:alice")).mustBlock(pay), "denied")
	})
	t.Run("what was changed since it was shown is not approved", func(t *testing.T) {
		w, yes := ask(t, ", elicitation: true")
		w.mustDecide(w.only().ID, effect.Decision{Kind: effect.DecideEdit, Reason: "less", Arguments: json.RawMessage(`{"amount":5,"to":"bob"}`)})
		if err := w.ei.Decide(t.Context(), yes); err == nil {
			t.Error("approved what was not shown")
		}
	})
	t.Run("a decision that comes too late is no error", func(t *testing.T) {
		w, yes := ask(t, ", elicitation: true")
		w.mustDecide(w.only().ID, effect.Decision{Kind: effect.DecideDeny, Reason: "no"})
		if err := w.ei.Decide(t.Context(), yes); err != nil {
			t.Error(err)
		}
		wantOutcome(t, w.alice().with(principal("agent:alice")).mustBlock(pay), "denied")
	})
}

func TestInterceptors_SetPolicy(t *testing.T) {
	t.Run("a pending request that it denies is void at once", func(t *testing.T) {
		w := newWorld(t, asks)
		w.alice().mustBlock(pay)
		w.setPolicy(`, deny: "closed"`)
		if got := w.wantState(w.only().ID, effect.StateVoid); !strings.Contains(got.Reason, "closed") {
			t.Errorf("reason is %q", got.Reason)
		}
		wantOutcome(t, w.alice().mustBlock(pay), "denied")
	})
	t.Run("an approved one is not used", func(t *testing.T) {
		w := newWorld(t, asks)
		w.alice().mustBlock(pay)
		w.approve(w.only().ID)
		w.restart() // this process has put nothing to people
		w.setPolicy(`, deny: "closed"`)
		wantOutcome(t, w.alice().mustBlock(pay), "denied")
		w.wantState(w.only().ID, effect.StateVoid)
	})
	t.Run("the next call is judged by it", func(t *testing.T) {
		w := newWorld(t, asks)
		w.setPolicy(", approve: never")
		w.alice().mustClaim(pay)
	})
}

func TestApproval_AStandingGrantIsNoted(t *testing.T) {
	w := newWorld(t, asks)
	g, err := w.log.Grant(t.Context(), effect.Grant{
		Tenant: "default", Kind: effect.GrantTool, Server: "invoker:unnamed", Tool: "pay", By: "user:ann", Reason: "payday"})
	if err != nil {
		t.Fatal(err)
	}
	done := w.alice().mustClaim(pay)
	events := w.wantEvent(effect.EventGranted, 1)
	if events[0].Effect != done.id || !strings.Contains(string(events[0].Detail), g.ID) {
		t.Errorf("event %+v", events[0])
	}
}

func TestApproval_InShadowNothingIsHeldBack(t *testing.T) {
	w := newWorld(t, asks, func(w *world) { w.opts.Policy = w.opts.Policy.InShadow() })
	w.alice().mustClaim(pay)
	events := w.wantEvent(effect.EventShadow, 1)
	if !strings.Contains(string(events[0].Detail), `"request"`) {
		t.Errorf("event %s", events[0].Detail)
	}
}

// A caller that has gone does not use an approval up.
func TestApproval_IsNotUsedForACallerThatHasGone(t *testing.T) {
	w := newWorld(t, asks)
	w.alice().mustBlock(pay)
	id := w.only().ID
	w.approve(id)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.host.Invoke(ctx, w.alice().params(effectinterceptor.EffectName, interceptors.PhaseRequest, pay)); err == nil {
		t.Error("it was claimed")
	}
	w.wantState(id, effect.StateAwaitingApproval)
	w.alice().mustClaim(pay)
}
