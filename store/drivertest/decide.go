package drivertest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// testDecide puts every row of effect.Decide to the real log: the facts are what the driver found.
func testDecide(t *testing.T, h Harness) {
	t.Run("a new call is claimed and recorded whole", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		c := contract()
		call := charge()
		begun := p.wants(effect.ActInsert, call, c)
		id, err := c.Identify(call)
		if err != nil {
			t.Fatal(err)
		}
		now := w.clock.Now()
		want := &effect.Record{
			ID: begun.Claim.Effect, Seq: begun.Record.Seq, Tenant: "default", Principal: "agent:a", Session: "s1", Trace: "t1",
			Server: "payments", Tool: "charge", Tier: effect.TierIrreversible, Rule: effect.RuleWindow, Scope: id.Scope,
			Signature: id.Signature, Window: id.Window, Generation: 1, Arguments: call.Arguments,
			ArgsDigest: id.Arguments, Complete: id.Complete, Policy: "b3:policy", Source: "test", CreatedAt: now,
			State: effect.StateClaimed, Attempt: 1, Owner: p.Owner(), OwnerUntil: now.Add(ttl),
			TimeoutAt: now.Add(10 * time.Minute), ChangedAt: now,
		}
		if diff := cmp.Diff(want, begun.Record); diff != "" {
			t.Errorf("Begin (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff(want, w.process().show("default", want.ID).Record); diff != "" {
			t.Errorf("Show in another process (-want +got)\n%s", diff)
		}
	})
	t.Run("the same call joins while the first is under way", func(t *testing.T) {
		w := newWorld(t, h)
		first := w.process().wants(effect.ActInsert, charge(), contract())
		second := w.process().wants(effect.ActJoin, charge(), contract())
		if second.Record.ID != first.Claim.Effect {
			t.Errorf("joined %s, want %s", second.Record.ID, first.Claim.Effect)
		}
	})
	t.Run("an answer that may not have arrived is replayed byte for byte", func(t *testing.T) {
		w := newWorld(t, h)
		w.process().done(charge(), contract(repeat(effect.RepeatRun)))
		begun := w.process().wants(effect.ActReplay, charge(), contract(repeat(effect.RepeatRun)))
		if begun.Verdict.Repeat {
			t.Error("an undelivered answer is replayed as a repeat")
		}
		if got, want := string(begun.Record.Answer.Body), `{"content":[],"charge":"ch_1"}`; got != want {
			t.Errorf("answer %s, want %s", got, want)
		}
	})
	t.Run("a delivered call follows the contract", func(t *testing.T) { testRepeat(t, h) })
	t.Run("other writes in between make it a new call", func(t *testing.T) { testOtherWrites(t, h) })
	t.Run("a settled call is forgotten after its window", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.done(charge(), contract())
		w.clock.advance(window)
		begun := p.wants(effect.ActInsert, charge(), contract())
		if begun.Record.Generation != 2 {
			t.Errorf("generation %d, want 2", begun.Record.Generation)
		}
	})
	t.Run("a key matches for ever", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.Delivered("default", p.done(charge(key("k1")), contract()).ID)
		w.clock.advance(24 * time.Hour)
		p.wants(effect.ActReplay, charge(key("k1")), contract())
		p.wants(effect.ActConflict, charge(key("k1"), args(`{"amount":11}`)), contract())
	})
	t.Run("a run matches for ever, another run does not", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.done(charge(run("r1")), contract())
		w.clock.advance(24 * time.Hour)
		p.wants(effect.ActReplay, charge(run("r1")), contract())
		p.wants(effect.ActInsert, charge(run("r2")), contract())
	})
	t.Run("another principal's key is a conflict that shows nothing", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.done(charge(key("k1")), contract())
		begun := p.wants(effect.ActConflict, charge(key("k1"), by("agent:b")), contract())
		if begun.Record != nil {
			t.Errorf("the other's effect %s is shown", begun.Record.ID)
		}
		p.wants(effect.ActReplay, charge(key("k1"), by("agent:b")), contract(share))
	})
	t.Run("nobody's calls are recorded and match nothing", func(t *testing.T) {
		p := newWorld(t, h).process()
		first := p.wants(effect.ActInsert, charge(by("")), contract())
		second := p.wants(effect.ActInsert, charge(by("")), contract())
		if first.Record.Rule != effect.RuleNone || first.Claim.Effect == second.Claim.Effect {
			t.Errorf("rule %s, effects %s and %s", first.Record.Rule, first.Claim.Effect, second.Claim.Effect)
		}
	})
	t.Run("what was not applied is claimed again as the next attempt", func(t *testing.T) { testReclaim(t, h) })
	t.Run("a waiting effect goes on with its continuation only", func(t *testing.T) { testContinue(t, h) })
	t.Run("a read is refused", func(t *testing.T) {
		p := newWorld(t, h).process()
		if _, err := p.Begin(t.Context(), params(t, charge(), contract(tier(effect.TierRead)))); err == nil {
			t.Error("Begin claimed a read")
		}
	})
}

func testRepeat(t *testing.T, h Harness) {
	for name, tc := range map[string]struct {
		contract *effect.Contract
		outcome  effect.Outcome
		want     effect.Action
		repeat   bool
	}{
		"run":                       {contract(repeat(effect.RepeatRun)), result(`{}`), effect.ActInsert, false},
		"replay":                    {contract(repeat(effect.RepeatReplay)), result(`{}`), effect.ActReplay, true},
		"ask":                       {contract(repeat(effect.RepeatAsk)), result(`{}`), effect.ActRequest, false},
		"an idempotent one runs":    {contract(tier(effect.TierIdempotent)), result(`{}`), effect.ActInsert, false},
		"an error is replayed":      {contract(repeat(effect.RepeatRun)), toolError(`{"isError":true}`), effect.ActReplay, true},
		"a JSON-RPC error likewise": {contract(repeat(effect.RepeatRun)), rpcError(`{"code":-32000,"message":"x"}`), effect.ActReplay, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newWorld(t, h).process()
			begun := p.wants(effect.ActInsert, charge(), tc.contract)
			r := p.settle(begun.Claim, tc.contract, tc.outcome)
			p.Delivered(r.Tenant, r.ID)
			again := p.wants(tc.want, charge(), tc.contract)
			if again.Verdict.Repeat != tc.repeat {
				t.Errorf("Repeat = %v, want %v", again.Verdict.Repeat, tc.repeat)
			}
			if tc.want == effect.ActReplay && !again.Record.Delivered {
				t.Error("the delivery is not known")
			}
		})
	}
}

func testOtherWrites(t *testing.T, h Harness) {
	there, back := charge(tool("move"), args(`{"to":"b"}`)), charge(tool("move"), args(`{"to":"a"}`))
	deliver := func(p *process, call *effect.Call) {
		r := p.done(call, contract())
		p.Delivered(r.Tenant, r.ID)
	}
	t.Run("there, back and there again", func(t *testing.T) {
		p := newWorld(t, h).process()
		deliver(p, there)
		deliver(p, back)
		deliver(p, there)
		deliver(p, back)
		p.wants(effect.ActReplay, back, contract())
	})
	t.Run("writes of others, elsewhere, or reads do not count", func(t *testing.T) {
		p := newWorld(t, h).process()
		deliver(p, there)
		p.done(charge(tool("move"), args(`{"to":"a"}`), by("agent:b")), contract())
		p.done(charge(args(`{"to":"a"}`), func(c *effect.Call) { c.Server = "elsewhere" }), contract())
		p.RecordRead(&effect.Record{Principal: "agent:a", Server: "payments", Tool: "list", State: effect.StateCommitted, Rule: effect.RuleWindow})
		p.wants(effect.ActReplay, there, contract())
	})
	t.Run("a write that only ran again counts", func(t *testing.T) {
		p := newWorld(t, h).process()
		begun := p.wants(effect.ActInsert, back, contract())
		p.settle(begun.Claim, contract(), unsent)
		deliver(p, there)
		p.wants(effect.ActReplay, there, contract())
		p.wants(effect.ActReclaim, back, contract())
		p.wants(effect.ActInsert, there, contract())
	})
	t.Run("a write before the attempt that counted does not", func(t *testing.T) {
		p := newWorld(t, h).process()
		begun := p.wants(effect.ActInsert, there, contract())
		p.settle(begun.Claim, contract(), unsent)
		deliver(p, back)
		deliver(p, there) // attempt 2
		p.wants(effect.ActReplay, there, contract())
	})
}

func testReclaim(t *testing.T, h Harness) {
	for name, outcome := range map[string]effect.Outcome{
		"released":       unsent,
		"refused":        rpcError(`{"code":-32602,"message":"invalid params"}`),
		"failed by rule": toolError(`{"isError":true}`),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, h)
			c := contract(onError(effect.StateFailed))
			first := w.process().begin(charge(), c)
			p := w.process()
			w.process().settle(first.Claim, c, outcome)
			second := p.wants(effect.ActReclaim, charge(), c)
			want := &effect.Claim{Effect: first.Claim.Effect, Tenant: "default", Attempt: 2, Ordinal: 2, Owner: p.Owner()}
			if diff := cmp.Diff(want, second.Claim); diff != "" {
				t.Errorf("claim (-want +got)\n%s", diff)
			}
			r := p.settle(second.Claim, c, result(`{"ok":1}`))
			if r.State != effect.StateCommitted || r.Attempt != 2 || r.Generation != 1 {
				t.Errorf("state %s, attempt %d, generation %d", r.State, r.Attempt, r.Generation)
			}
		})
	}
	t.Run("the answer of the first attempt that arrived does not count for the second", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(onError(effect.StateFailed), repeat(effect.RepeatRun))
		first := p.begin(charge(), c)
		r := p.settle(first.Claim, c, toolError(`{"isError":true}`))
		p.Delivered(r.Tenant, r.ID)
		second := p.wants(effect.ActReclaim, charge(), c)
		p.t.Log(second.Verdict.Reason)
		w := p.settle(second.Claim, c, result(`{}`))
		if w.Delivered {
			t.Error("attempt 2 is delivered")
		}
	})
}

func testContinue(t *testing.T, h Harness) {
	w := newWorld(t, h)
	c := contract()
	p := w.process()
	first := p.begin(charge(), c)
	waiting := p.settle(first.Claim, c, waits("state-1"))
	if waiting.State != effect.StateWaiting || waiting.Continuation != "state-1" {
		t.Fatalf("state %s, continuation %q", waiting.State, waiting.Continuation)
	}
	w.clock.advance(time.Hour) // nobody holds a lease on it
	q := w.process()
	replay := q.wants(effect.ActReplay, charge(), c)
	if got := string(replay.Record.Answer.Body); got != `{"resultType":"input_required"}` {
		t.Errorf("replayed %s", got)
	}
	bp := params(t, charge(), c)
	bp.Continuation = "state-2"
	if begun := q.beginParams(bp); begun.Verdict.Action != effect.ActConflict || begun.Claim != nil {
		t.Errorf("with a continuation that nobody gave: %s", begun.Verdict.Action)
	}
	bp.Continuation = "state-1"
	second := q.beginParams(bp)
	if second.Verdict.Action != effect.ActContinue || second.Claim.Attempt != 1 || second.Claim.Ordinal != 2 {
		t.Fatalf("with the continuation: %s, %+v", second.Verdict.Action, second.Claim)
	}
	q.settle(second.Claim, c, waits("state-2"))
	if begun := q.beginParams(bp); begun.Verdict.Action != effect.ActReplay {
		t.Errorf("the first round, sent again: %s", begun.Verdict.Action)
	}
	bp.Continuation = "state-2"
	next := q.beginParams(bp)
	if next.Verdict.Action != effect.ActContinue || next.Claim.Attempt != 1 {
		t.Fatalf("with the second continuation: %s, %+v", next.Verdict.Action, next.Claim)
	}
	// The round that was claimed again fences whoever held it before.
	if r := p.settle(first.Claim, c, result(`{"old":1}`)); r.State != effect.StateClaimed {
		t.Errorf("the earlier round settled it: %s", r.State)
	}
	r := q.settle(next.Claim, c, result(`{"new":1}`))
	if r.State != effect.StateCommitted || string(r.Answer.Body) != `{"new":1}` {
		t.Errorf("state %s, answer %s", r.State, r.Answer.Body)
	}
}

func testLookalike(t *testing.T, h Harness) {
	ask := contract(lookalike(effect.RepeatAsk))
	t.Run("an equal call of another run is noted, or asked about", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		first := p.done(charge(run("r1")), contract())
		if err := p.Again(t.Context(), store.AgainParams{Tenant: "default", ID: first.ID, By: "user:u", Reason: "wanted"}); err != nil {
			t.Fatal(err)
		}
		second := p.wants(effect.ActInsert, charge(run("r2")), ask)
		if second.Record.LookalikeOf != first.ID || second.Verdict.UsesAgain != first.ID {
			t.Errorf("look-alike of %q, uses %q; want %s", second.Record.LookalikeOf, second.Verdict.UsesAgain, first.ID)
		}
		newest := second.Record.ID
		for _, c := range []*effect.Contract{ask, contract()} {
			next := p.begin(charge(run("r3 "+string(c.Lookalike))), c).Record
			if next.LookalikeOf != newest {
				t.Errorf("look-alike of %q, want the newest %s", next.LookalikeOf, newest)
			}
			newest = next.ID
		}
	})
	t.Run("a call without a run looks like one with it, and the reverse", func(t *testing.T) {
		p := newWorld(t, h).process()
		p.done(charge(), contract())
		p.wants(effect.ActRequest, charge(key("k")), ask)
		p.done(charge(key("k2"), args(`{"n":1}`)), contract())
		p.wants(effect.ActRequest, charge(args(`{"n":1}`)), ask)
	})
	t.Run("what was not applied, or is long over, or another's, is none", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		begun := p.begin(charge(run("r1")), contract())
		p.settle(begun.Claim, contract(), unsent)
		p.done(charge(run("r9"), by("agent:b")), contract())
		p.done(charge(run("r1"), of("tenant-2")), contract())
		p.done(charge(run("r0"), args(`{"n":2}`)), contract())
		p.wants(effect.ActInsert, charge(run("r2")), ask)
		w.clock.advance(window)
		p.wants(effect.ActInsert, charge(run("r2"), args(`{"n":2}`)), ask)
	})
	t.Run("one in doubt is one for ever", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		begun := p.begin(charge(run("r1")), contract())
		p.settle(begun.Claim, contract(), lost)
		w.clock.advance(24 * time.Hour)
		p.wants(effect.ActRequest, charge(run("r2")), ask)
	})
}
