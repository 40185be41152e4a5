package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

func asks(c *effect.Contract) { c.Approve = true }

func quorum(n int) func(*effect.Contract) { return func(c *effect.Contract) { c.Asking.Quorum = n } }

func volatile(names ...string) func(*effect.Contract) {
	return func(c *effect.Contract) { c.Volatile = names }
}

func defined(d string) func(*effect.Call) {
	return func(c *effect.Call) { c.Definition, _ = effect.DigestOf([]byte(d)) }
}

// asked begins a call, which must be asked about, and returns its effect.
func (p *process) asked(call *effect.Call, c *effect.Contract) *effect.Record {
	p.t.Helper()
	return p.wants(effect.ActRequest, call, c).Record
}

func decision(r *effect.Record, kind effect.DecisionKind, by string) *store.DecideParams {
	return &store.DecideParams{Tenant: r.Tenant, ID: r.ID, Decision: effect.Decision{Kind: kind, By: by, Reason: "because", Via: "cli"}}
}

func (p *process) decide(dp *store.DecideParams) *effect.Record {
	p.t.Helper()
	r, err := p.Decide(context.Background(), dp)
	if err != nil {
		p.t.Fatalf("Decide: %v", err)
	}
	return r
}

func (p *process) approve(r *effect.Record) *effect.Record {
	p.t.Helper()
	return p.decide(decision(r, effect.DecideApprove, "user:u"))
}

func awaitingIn(tenant string) *store.Filter {
	return &store.Filter{Tenant: tenant, States: []effect.State{effect.StateAwaitingApproval}}
}

func (p *process) ids(f *store.Filter) (ids []string) {
	p.t.Helper()
	for _, r := range p.list(f) {
		ids = append(ids, r.ID)
	}
	return ids
}

// assertMoves checks the states through which an effect went, and that every move carries an approval.
func assertMoves(t *testing.T, moves []effect.Transition, want ...effect.State) {
	t.Helper()
	var got []effect.State
	for _, m := range moves {
		got = append(got, m.State)
		if m.Approval == nil {
			t.Errorf("the move to %s has lost the approval", m.State)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("moves (-want +got)\n%s", diff)
	}
}

var ignoreHeart = cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "OwnerUntil" }, cmp.Ignore())

// testApproval takes calls from the question to their end.
func testApproval(t *testing.T, h Harness) {
	t.Run("a request is recorded whole and nobody holds a claim", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		c := contract(asks, quorum(2), volatile("ref"), func(c *effect.Contract) { c.Asking.Approvers = []string{"user:*"} })
		call := charge(args(`{"amount":10,"ref":1}`), defined(`{"v":1}`))
		r := p.asked(call, c)
		id, err := c.Identify(call)
		if err != nil {
			t.Fatal(err)
		}
		now := w.clock.Now()
		want := &effect.Record{
			ID: r.ID, Seq: r.Seq, Tenant: "default", Principal: "agent:a", Session: "s1", Trace: "t1",
			Server: "payments", Tool: "charge", Tier: effect.TierIrreversible, Rule: effect.RuleWindow, Scope: id.Scope,
			Signature: id.Signature, Window: id.Window, Generation: 1, Arguments: call.Arguments,
			ArgsDigest: id.Arguments, Complete: id.Complete, Policy: "b3:policy", Source: "test", CreatedAt: now,
			State: effect.StateAwaitingApproval, Attempt: 1, ChangedAt: now,
			Approval: &effect.Approval{
				ID: r.Approval.ID, RequestedAt: now, DecideUntil: now.Add(24 * time.Hour), UseForMs: 3_600_000, Quorum: 2,
				Approvers: []string{"user:*"}, Original: id.Complete, Complete: id.Complete, Definition: call.Definition,
				Policy: "b3:policy", Why: r.Approval.Why, Handle: r.Approval.Handle, Volatile: []string{"ref"},
			},
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("Begin (-want +got)\n%s", diff)
		}
		if r.Approval.ID == "" || r.Approval.Handle == "" || r.Approval.Why == "" {
			t.Errorf("approval %+v", r.Approval)
		}
		if diff := cmp.Diff(want, w.process().show("default", r.ID).Record); diff != "" {
			t.Errorf("Show in another process (-want +got)\n%s", diff)
		}
	})
	t.Run("asked once, approved, run once, and answered from the record", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		c := contract(asks)
		r := p.asked(charge(), c)
		if again := q.wants(effect.ActAsk, charge(), c).Record; again.ID != r.ID || again.Approval.ID != r.Approval.ID {
			t.Errorf("asked again as %s", again.ID)
		}
		q.approve(r)
		begun := p.wants(effect.ActApproved, charge(), c)
		want := &effect.Claim{Effect: r.ID, Tenant: "default", Attempt: 1, Ordinal: 2, Owner: p.Owner()}
		if diff := cmp.Diff(want, begun.Claim); diff != "" {
			t.Errorf("claim (-want +got)\n%s", diff)
		}
		q.wants(effect.ActJoin, charge(), c)
		settled := p.settle(begun.Claim, c, result(`{"a":1}`))
		shown := q.show("default", r.ID)
		if diff := cmp.Diff(settled, shown.Record, ignoreHeart); diff != "" {
			t.Errorf("Settle and Show (-settled +shown)\n%s", diff)
		}
		assertMoves(t, shown.Transitions, effect.StateAwaitingApproval, effect.StateAwaitingApproval, effect.StateClaimed, effect.StateCommitted)
		if vote := shown.Record.Approval.Votes[0]; vote.By != "user:u" || vote.Via != "cli" || !vote.At.Equal(w.clock.Now()) {
			t.Errorf("vote %+v", vote)
		}
		q.wants(effect.ActReplay, charge(), c)
	})
	t.Run("another call, caller or tenant needs its own", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks)
		p.approve(p.asked(charge(), c))
		for _, other := range []*effect.Call{
			charge(args(`{"amount":11,"to":"alice"}`)), charge(tool("wire")), charge(by("agent:b")), charge(of("tenant-2")), charge(key("k")), charge(run("r")),
		} {
			p.asked(other, c)
		}
		p.wants(effect.ActApproved, charge(), c)
	})
	t.Run("what runs is what was approved, whatever else the call says now", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		c := contract(asks, volatile("ref"))
		p.approve(p.asked(charge(args(`{"amount":10, "ref":9007199254740993}`)), c))
		begun := q.wants(effect.ActApproved, charge(args(`{"amount":10,"ref":2}`)), c)
		if got := string(begun.Record.Executed()); got != `{"amount":10, "ref":9007199254740993}` {
			t.Errorf("executed %s", got)
		}
	})
	t.Run("a lost outcome of an approved call is in doubt", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		c := contract(asks)
		p.approve(p.asked(charge(), c))
		p.wants(effect.ActApproved, charge(), c)
		w.clock.advance(ttl)
		q.wants(effect.ActInDoubt, charge(), c)
		q.hasPending(1)
	})
	t.Run("a claim that sent nothing has used its approval up", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks)
		r := p.asked(charge(), c)
		p.approve(r)
		p.settle(p.wants(effect.ActApproved, charge(), c).Claim, c, unsent)
		second := p.asked(charge(), c)
		if second.ID != r.ID || second.Attempt != 2 || second.Approval.ID == r.Approval.ID || second.Approval.IsApproved() {
			t.Errorf("asked about %s, attempt %d, as %s", second.ID, second.Attempt, second.Approval.ID)
		}
		p.approve(second)
		begun := p.wants(effect.ActApproved, charge(), c)
		if begun.Claim.Attempt != 2 {
			t.Errorf("attempt %d", begun.Claim.Attempt)
		}
		p.settle(begun.Claim, c, unsent)
		if r := p.wants(effect.ActReclaim, charge(), contract()).Record; r.Approval != nil || r.Attempt != 3 {
			t.Errorf("attempt %d, which nobody was asked about, has approval %+v", r.Attempt, r.Approval)
		}
	})
	t.Run("a dead owner's idempotent call asks for its next attempt", func(t *testing.T) {
		w := newWorld(t, h)
		c := contract(tier(effect.TierIdempotent))
		w.process().begin(charge(), c)
		w.clock.advance(ttl)
		asks(c)
		p := w.process()
		p.approve(p.asked(charge(), c))
		p.wants(effect.ActApproved, charge(), c)
	})
	t.Run("a tool that changed asks anew", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks)
		first := p.asked(charge(defined(`{"v":1}`)), c)
		p.approve(first)
		second := p.asked(charge(defined(`{"v":2}`)), c)
		if second.ID != first.ID || second.Approval.ID == first.Approval.ID || second.Approval.IsApproved() {
			t.Errorf("effect %s, approval %+v", second.ID, second.Approval)
		}
		p.approve(second)
		p.wants(effect.ActApproved, charge(defined(`{"v":2}`)), c)
	})
	t.Run("a repeat and a look-alike that ask are asked about", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(repeat(effect.RepeatAsk), lookalike(effect.RepeatAsk))
		first := p.done(charge(), c)
		p.Delivered("default", first.ID)
		second := p.asked(charge(), c)
		if second.Generation != 2 || second.ID == first.ID {
			t.Errorf("generation %d of %s", second.Generation, second.ID)
		}
		third := p.asked(charge(run("r")), c)
		if third.LookalikeOf != second.ID {
			t.Errorf("look-alike of %q, want %s", third.LookalikeOf, second.ID)
		}
		p.approve(second)
		p.settle(p.wants(effect.ActApproved, charge(), c).Claim, c, result(`{}`))
		p.approve(third)
		p.wants(effect.ActApproved, charge(run("r")), c)
	})
	t.Run("what only awaits approval is no other write, and counts when it is claimed", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks)
		deliver := func() {
			r := p.done(charge(), contract())
			p.Delivered(r.Tenant, r.ID)
		}
		early := p.asked(charge(tool("early")), c)
		deliver()
		late := p.asked(charge(tool("late")), c)
		p.wants(effect.ActReplay, charge(), contract())
		p.approve(late)
		p.settle(p.wants(effect.ActApproved, charge(tool("late")), c).Claim, c, result(`{}`))
		deliver()
		p.wants(effect.ActReplay, charge(), contract())
		p.approve(early)
		p.settle(p.wants(effect.ActApproved, charge(tool("early")), c).Claim, c, result(`{}`))
		p.wants(effect.ActInsert, charge(), contract())
	})
	t.Run("an approved claim has its place from when it was claimed", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks)
		r := p.asked(charge(), c)
		p.done(charge(tool("other")), contract()) // between the question and the run
		p.approve(r)
		p.settle(p.wants(effect.ActApproved, charge(), c).Claim, c, result(`{}`))
		p.Delivered("default", r.ID)
		p.wants(effect.ActReplay, charge(), c)
	})
	t.Run("equal calls are found under any rule", func(t *testing.T) {
		p := newWorld(t, h).process()
		plain := p.done(charge(), contract())
		keyed := p.done(charge(key("k")), contract())
		inRun := p.asked(charge(run("r")), contract(asks))
		p.done(charge(args(`{"n":1}`)), contract())
		p.done(charge(of("tenant-2")), contract())
		p.done(charge(by("agent:b")), contract())
		for limit, want := range map[int][]string{10: {inRun.ID, keyed.ID, plain.ID}, 2: {inRun.ID, keyed.ID}} {
			equals, err := p.driver.Equals(t.Context(), "default", plain.Window, limit)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range equals {
				got = append(got, r.ID)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Equals (-want +got)\n%s", diff)
			}
		}
	})
	t.Run("in shadow a call that would be asked about runs", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks, func(c *effect.Contract) { c.Shadow = true })
		for generation := 1; generation < 3; generation++ {
			begun := p.wants(effect.ActInsert, charge(), c)
			if begun.Verdict.Would == nil || begun.Record.Generation != generation || begun.Record.Approval != nil {
				t.Errorf("generation %d, would %+v, approval %v", begun.Record.Generation, begun.Verdict.Would, begun.Record.Approval)
			}
		}
	})
}

// testApprovalClocks is about the time to decide and the time to use.
func testApprovalClocks(t *testing.T, h Harness) {
	awaiting := awaitingIn("default")
	expired := &store.Filter{Tenant: "default", States: []effect.State{effect.StateExpired}}
	void := &store.Filter{Tenant: "default", States: []effect.State{effect.StateVoid}}
	open := &store.Filter{Tenant: "default", Open: true}
	lists := func(p *process, name string, f *store.Filter, want ...string) {
		p.t.Helper()
		if diff := cmp.Diff(want, p.ids(f)); diff != "" {
			p.t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	t.Run("silence is not consent: undecided in time it is expired, to everybody", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		c := contract(asks)
		r := p.asked(charge(), c)
		w.clock.advance(24*time.Hour - time.Second)
		lists(p, "awaiting", awaiting, r.ID)
		p.hasPending(1)
		w.clock.advance(time.Second)
		q := w.process()
		lists(q, "awaiting", awaiting)
		lists(q, "expired", expired, r.ID)
		lists(q, "open", open, r.ID)
		q.hasPending(0)
		if got := q.show("default", r.ID).Record.StateAt(w.clock.Now()); got != effect.StateExpired {
			t.Errorf("state %s", got)
		}
		if r, err := q.Expire(t.Context(), "default", r.ID); err != nil || r.State != effect.StateExpired || r.Approval == nil {
			t.Errorf("Expire = %+v, %v", r, err)
		}
		lists(q, "expired", expired, r.ID)
		lists(q, "open", open)
		second := q.asked(charge(), c)
		if second.ID != r.ID || second.Attempt != 2 || second.Approval.ID == r.Approval.ID {
			t.Errorf("asked about %s, attempt %d", second.ID, second.Attempt)
		}
		lists(q, "expired", expired)
		lists(q, "awaiting", awaiting, r.ID)
	})
	t.Run("approved and not used in time it is void, and needs another approval", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		c := contract(asks)
		r := p.asked(charge(), c)
		w.clock.advance(24*time.Hour - time.Second)
		p.approve(r)
		w.clock.advance(time.Hour - time.Second) // the time to decide is over, and does not matter any more
		lists(p, "awaiting", awaiting, r.ID)
		w.clock.advance(time.Second)
		lists(p, "awaiting", awaiting)
		lists(p, "void", void, r.ID)
		lists(p, "expired", expired)
		second := p.asked(charge(), c)
		if second.ID != r.ID || second.Attempt != 2 {
			t.Errorf("asked about %s, attempt %d", second.ID, second.Attempt)
		}
	})
	t.Run("used within its time it is claimed", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		c := contract(asks)
		p.approve(p.asked(charge(), c))
		w.clock.advance(time.Hour - time.Second)
		p.wants(effect.ActApproved, charge(), c)
	})
	t.Run("an expired request is asked again with the arguments of the call that asks", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		c := contract(asks, volatile("ref"))
		p.asked(charge(args(`{"amount":10,"ref":1}`)), c)
		w.clock.advance(24 * time.Hour)
		second := p.asked(charge(args(`{"amount":10, "ref":2}`)), c)
		p.wants(effect.ActAsk, charge(args(`{"amount":10,"ref":3}`)), c)
		w.process().approve(second)
		r := p.wants(effect.ActApproved, charge(args(`{"amount":10,"ref":3}`)), c).Record
		digest, err := effect.DigestOf(r.Executed())
		if err != nil || string(r.Executed()) != `{"amount":10, "ref":2}` || digest != r.Approval.Complete || r.Approval.IsEdited() {
			t.Errorf("executed %s under an approval of %s, edited %v", r.Executed(), r.Approval.Complete, r.Approval.IsEdited())
		}
	})
	t.Run("an expired request is no look-alike", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.asked(charge(run("r1")), contract(asks))
		w.clock.advance(24 * time.Hour)
		p.wants(effect.ActInsert, charge(run("r2")), contract(lookalike(effect.RepeatAsk)))
	})
	t.Run("while its clock runs it does not expire, and a policy can make it void", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks)
		r := p.asked(charge(), c)
		if _, err := p.Expire(t.Context(), "default", r.ID); !isConflict(err) {
			t.Errorf("Expire = %v, want a ConflictError", err)
		}
		p.approve(r)
		r, err := p.Void(t.Context(), "default", r.ID, "forbidden now")
		if err != nil || r.State != effect.StateVoid || r.Reason != "forbidden now" {
			t.Errorf("Void = %+v, %v", r, err)
		}
		lists(p, "void", void, r.ID)
		if _, err := p.Void(t.Context(), "default", r.ID, "twice"); !isConflict(err) {
			t.Errorf("Void again = %v, want a ConflictError", err)
		}
		p.asked(charge(), c)
	})
	t.Run("more time to decide is more time", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		r := p.asked(charge(), contract(asks))
		w.clock.advance(23 * time.Hour)
		extend := decision(r, effect.DecideExtend, "user:u")
		extend.Extend = 48 * time.Hour
		p.decide(extend)
		w.clock.advance(47 * time.Hour)
		lists(p, "awaiting", awaiting, r.ID)
		p.wants(effect.ActAsk, charge(), contract(asks))
	})
	t.Run("people are reminded once, and once more after an extension", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		r := p.asked(charge(), contract(asks))
		reminded := func(want int) {
			t.Helper()
			n := 0
			for _, p := range []*process{p, q, p} {
				did, err := p.Remind(t.Context(), q.show("default", r.ID).Record)
				if err != nil {
					t.Fatal(err)
				}
				stale, err := p.Remind(t.Context(), r) // as it was before: another was first
				if err != nil {
					t.Fatal(err)
				}
				for _, did := range []bool{did, stale} {
					if did {
						n++
					}
				}
			}
			if n != want {
				t.Errorf("reminded %d times, want %d", n, want)
			}
		}
		reminded(0)
		w.clock.advance(20 * time.Hour)
		reminded(1)
		extend := decision(r, effect.DecideExtend, "user:u")
		extend.Extend = time.Hour
		r = p.decide(extend)
		reminded(1) // four fifths of the longer time are over too
		p.flushed(w)
		q.flushed(w)
		assertKinds(t, p.show("default", r.ID).Events, effect.EventReminder, effect.EventReminder)
	})
	t.Run("what was asked about twice is listed once", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		c := contract(asks)
		r := p.asked(charge(), c)
		p.decide(decision(r, effect.DecideDeny, "user:u"))
		lists(p, "awaiting", awaiting)
		lists(p, "open", open)
		p.decide(decision(r, effect.DecideReopen, "user:u"))
		lists(p, "awaiting", awaiting, r.ID)
		p.approve(r)
		p.settle(p.wants(effect.ActApproved, charge(), c).Claim, c, result(`{}`))
		lists(p, "open", open)
	})
}
