package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// testAppend is about the driver's compare-and-set and its fence.
func testAppend(t *testing.T, h Harness) {
	move := func(claim *effect.Claim, to effect.State) *effect.Transition {
		return &effect.Transition{
			Effect: claim.Effect, Ordinal: claim.Ordinal + 1, Attempt: claim.Attempt, State: to, Owner: claim.Owner,
			Answer: effect.Answer{Kind: effect.AnswerResult, Body: []byte(`{}`)},
		}
	}
	for name, spoil := range map[string]func(*effect.Transition){
		"an ordinal that is taken":     func(m *effect.Transition) { m.Ordinal = 0 },
		"an ordinal that is left out":  func(m *effect.Transition) { m.Ordinal = 2 },
		"a move that is not legal":     func(m *effect.Transition) { m.State = effect.StateCompensated },
		"another owner's attempt":      func(m *effect.Transition) { m.Owner = "somebody" },
		"another attempt":              func(m *effect.Transition) { m.Attempt = 2 },
		"a live claim by no owner":     func(m *effect.Transition) { m.Owner = "" },
		"a state that does not follow": func(m *effect.Transition) { m.State = effect.StateDenied },
	} {
		t.Run(name+" is refused and nothing written", func(t *testing.T) {
			p := newWorld(t, h).process()
			claim := p.begin(charge(), contract()).Claim
			m := move(claim, effect.StateCommitted)
			spoil(m)
			_, err := p.driver.Append(t.Context(), "default", m)
			conflict, ok := errors.AsType[*store.ConflictError](err)
			if !ok {
				t.Fatalf("Append = %v, want a ConflictError", err)
			}
			if conflict.Record.ID != claim.Effect || conflict.Record.State != effect.StateClaimed || conflict.Want != m.State {
				t.Errorf("conflict %+v with record %+v", conflict, conflict.Record)
			}
			if shown := p.show("default", claim.Effect); len(shown.Transitions) != 1 {
				t.Errorf("%d transitions, want 1", len(shown.Transitions))
			}
			if _, err := p.driver.Append(t.Context(), "default", move(claim, effect.StateCommitted)); err != nil {
				t.Errorf("the right move afterwards: %v", err)
			}
		})
	}
	t.Run("of two movers in two processes one wins", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.driver()
		claim := p.begin(charge(), contract()).Claim
		if _, err := q.Append(t.Context(), "default", move(claim, effect.StateFailed)); err != nil {
			t.Fatal(err)
		}
		_, err := p.driver.Append(t.Context(), "default", move(claim, effect.StateCommitted))
		conflict, ok := errors.AsType[*store.ConflictError](err)
		if !ok || conflict.Record.State != effect.StateFailed {
			t.Errorf("Append = %v, want a ConflictError with the failed effect", err)
		}
	})
	t.Run("an effect that is not there is not found", func(t *testing.T) {
		p := newWorld(t, h).process()
		m := move(p.begin(charge(), contract()).Claim, effect.StateCommitted)
		if _, err := p.driver.Append(t.Context(), "tenant-2", m); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Append for another tenant = %v, want ErrNotFound", err)
		}
	})
}

func testSettle(t *testing.T, h Harness) {
	for name, tc := range map[string]struct {
		outcome effect.Outcome
		want    effect.State
	}{
		"a result":                {result(`{"a":1}`), effect.StateCommitted},
		"an isError result":       {toolError(`{"isError":true}`), effect.StateCommitted},
		"a JSON-RPC error":        {rpcError(`{"code":-32050,"message":"x"}`), effect.StateCommitted},
		"a refusal of parameters": {rpcError(`{"code":-32602,"message":"x"}`), effect.StateFailed},
		"nothing sent":            {unsent, effect.StateReleased},
		"no answer":               {lost, effect.StateInDoubt},
		"another round":           {waits("c"), effect.StateWaiting},
	} {
		t.Run(name+" is recorded as it came", func(t *testing.T) {
			w := newWorld(t, h)
			p := w.process()
			claim := p.begin(charge(), contract()).Claim
			w.clock.advance(time.Second)
			r := p.settle(claim, contract(), tc.outcome)
			if r.State != tc.want || !r.ChangedAt.Equal(w.clock.Now()) {
				t.Errorf("state %s at %v, want %s", r.State, r.ChangedAt, tc.want)
			}
			shown := w.process().show("default", claim.Effect)
			ignoreHeart := cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "OwnerUntil" }, cmp.Ignore())
			if diff := cmp.Diff(r, shown.Record, ignoreHeart); diff != "" {
				t.Errorf("Settle and Show (-settled +shown)\n%s", diff)
			}
			want := []effect.Transition{
				{Effect: claim.Effect, Attempt: 1, State: effect.StateClaimed, At: r.CreatedAt, Owner: p.Owner(), TimeoutAt: r.CreatedAt.Add(10 * time.Minute)},
				{Effect: claim.Effect, Ordinal: 1, Attempt: 1, State: tc.want, At: w.clock.Now(), Owner: p.Owner(),
					Reason: tc.outcome.Reason, Answer: tc.outcome.Answer, Continuation: tc.outcome.Continuation},
			}
			if diff := cmp.Diff(want, shown.Transitions); diff != "" {
				t.Errorf("history (-want +got)\n%s", diff)
			}
		})
	}
	t.Run("settling twice is fine and notes nothing", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		claim := p.begin(charge(), contract()).Claim
		for range 2 {
			if r := p.settle(claim, contract(), result(`{"a":1}`)); r.State != effect.StateCommitted || r.Ordinal != 1 {
				t.Errorf("state %s, ordinal %d", r.State, r.Ordinal)
			}
		}
		p.flushed(w)
		if events := p.show("default", claim.Effect).Events; len(events) != 0 {
			t.Errorf("events %v", events)
		}
	})
	t.Run("a late answer settles what was recorded as lost", func(t *testing.T) {
		p := newWorld(t, h).process()
		claim := p.begin(charge(), contract()).Claim
		p.settle(claim, contract(), lost)
		r := p.settle(claim, contract(), result(`{"late":1}`))
		if r.State != effect.StateCommitted || string(r.Answer.Body) != `{"late":1}` || r.Ordinal != 2 {
			t.Errorf("state %s, answer %s, ordinal %d", r.State, r.Answer.Body, r.Ordinal)
		}
	})
	t.Run("a task's end settles what waits", func(t *testing.T) {
		p := newWorld(t, h).process()
		claim := p.begin(charge(), contract()).Claim
		p.settle(claim, contract(), waits("task-1"))
		if r := p.settle(claim, contract(), result(`{"end":1}`)); r.State != effect.StateCommitted {
			t.Errorf("state %s", r.State)
		}
	})
	t.Run("a late answer after another attempt changes nothing and is noted", func(t *testing.T) {
		w := newWorld(t, h)
		c := contract(tier(effect.TierIdempotent))
		p, q := w.process(), w.process()
		old := p.begin(charge(), c).Claim
		w.clock.advance(ttl)
		next := q.wants(effect.ActReclaim, charge(), c).Claim
		if r := p.settle(old, c, result(`{"old":1}`)); r.State != effect.StateClaimed || r.Owner != q.Owner() {
			t.Errorf("the old owner got %s of %s", r.State, r.Owner)
		}
		if r := q.settle(next, c, result(`{"new":1}`)); string(r.Answer.Body) != `{"new":1}` {
			t.Errorf("answer %s", r.Answer.Body)
		}
		p.flushed(w)
		assertKinds(t, p.show("default", old.Effect).Events, effect.EventLate)
	})
	t.Run("an ended context does not stop the record", func(t *testing.T) {
		p := newWorld(t, h).process()
		claim := p.begin(charge(), contract()).Claim
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, err := p.Settle(ctx, *claim, contract(), result(`{}`))
		if err != nil || r.State != effect.StateCommitted {
			t.Errorf("Settle = %v, %v", r, err)
		}
	})
	t.Run("an ended context stops a begin, and nothing is recorded", func(t *testing.T) {
		p := newWorld(t, h).process()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun, err := p.Begin(ctx, params(t, charge(), contract()))
		records := p.list(&store.Filter{Tenant: "default"})
		// Either it was not done, or it was and the caller knows.
		if (err == nil) != (len(records) == 1) || err == nil && begun.Claim == nil {
			t.Errorf("Begin = %v, %v with %d effects", begun, err, len(records))
		}
	})
}

func testHeart(t *testing.T, h Harness) {
	t.Run("a dead owner's claim is in doubt and is not run again", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		claim := p.begin(charge(), contract()).Claim
		q.wants(effect.ActJoin, charge(), contract())
		w.clock.advance(ttl)
		begun := q.wants(effect.ActInDoubt, charge(), contract())
		if begun.Record.StateAt(w.clock.Now()) != effect.StateInDoubt {
			t.Errorf("state %s", begun.Record.StateAt(w.clock.Now()))
		}
		pending, err := q.Pending(t.Context(), "default", 10)
		if err != nil || len(pending) != 1 || pending[0].ID != claim.Effect {
			t.Errorf("Pending = %v, %v", pending, err)
		}
		// A late answer of the same attempt is still taken.
		if r := p.settle(claim, contract(), result(`{}`)); r.State != effect.StateCommitted {
			t.Errorf("the late answer led to %s", r.State)
		}
		q.wants(effect.ActReplay, charge(), contract())
	})
	t.Run("a dead owner's idempotent claim runs again", func(t *testing.T) {
		w := newWorld(t, h)
		c := contract(tier(effect.TierIdempotent))
		w.process().begin(charge(), c)
		w.clock.advance(ttl)
		w.process().wants(effect.ActReclaim, charge(), c)
	})
	t.Run("an owner that ends leaves its claims in doubt at once", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.begin(charge(), contract())
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		w.process().wants(effect.ActInDoubt, charge(), contract())
	})
	t.Run("a later begin beats for the earlier claims too", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.begin(charge(), contract())
		w.clock.advance(ttl / 2)
		p.begin(charge(args(`{"n":2}`)), contract())
		w.clock.advance(ttl - time.Second)
		w.process().wants(effect.ActJoin, charge(), contract())
	})
	t.Run("a beat keeps a claim, an end gives it up", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.begin(charge(), contract())
		w.clock.advance(ttl - time.Second)
		if err := p.driver.Beat(t.Context(), p.Owner(), ttl); err != nil {
			t.Fatal(err)
		}
		w.clock.advance(ttl - time.Second)
		q := w.process()
		q.wants(effect.ActJoin, charge(), contract())
		if err := p.driver.End(t.Context(), p.Owner()); err != nil {
			t.Fatal(err)
		}
		q.wants(effect.ActInDoubt, charge(), contract())
		p.begin(charge(args(`{"n":2}`)), contract())
		q.wants(effect.ActJoin, charge(args(`{"n":2}`)), contract())
	})
	t.Run("a remote claim lives by its lease alone", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		bp := params(t, charge(), contract())
		bp.Remote = true
		p.beginParams(bp)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		q := w.process()
		w.clock.advance(5*time.Minute - time.Second)
		q.wants(effect.ActJoin, charge(), contract())
		q.hasPending(0)
		w.clock.advance(time.Second)
		q.wants(effect.ActInDoubt, charge(), contract())
		q.hasPending(1)
	})
	t.Run("a tool's time-out ends a claim whose owner lives", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.begin(charge(), contract(func(c *effect.Contract) { c.Timeout = time.Second }))
		p.hasPending(0)
		w.clock.advance(time.Second)
		p.wants(effect.ActInDoubt, charge(), contract())
		p.hasPending(1)
	})
	t.Run("the same holds for a later attempt", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.settle(p.begin(charge(), contract()).Claim, contract(), unsent)
		bp := params(t, charge(), contract())
		bp.Remote = true
		if begun := p.beginParams(bp); begun.Verdict.Action != effect.ActReclaim {
			t.Fatalf("Begin = %s", begun.Verdict.Action)
		}
		w.clock.advance(5*time.Minute - time.Second)
		p.hasPending(0)
		p.wants(effect.ActJoin, charge(), contract())
		w.clock.advance(time.Second)
		p.hasPending(1)
		p.wants(effect.ActInDoubt, charge(), contract())
	})
}

// hasPending checks the filter by state, which the database evaluates, against what the decision reads.
func (p *process) hasPending(want int) {
	p.t.Helper()
	pending, err := p.Pending(context.Background(), "default", 10)
	if err != nil || len(pending) != want {
		p.t.Errorf("%d effects pending, want %d (%v)", len(pending), want, err)
	}
}

func testPerson(t *testing.T, h Harness) {
	resolve := func(p *process, id string, to effect.State, body string) (*effect.Record, error) {
		rp := store.ResolveParams{Tenant: "default", ID: id, To: to, By: "user:u", Reason: "looked"}
		if body != "" {
			rp.Result = []byte(body)
		}
		return p.Resolve(t.Context(), rp)
	}
	t.Run("a person's word settles what is in doubt", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		claim := p.begin(charge(), contract()).Claim
		if _, err := resolve(q, claim.Effect, effect.StateCommitted, ""); !isConflict(err) {
			t.Errorf("Resolve of a live claim = %v, want a ConflictError", err)
		}
		w.clock.advance(ttl)
		r, err := resolve(q, claim.Effect, effect.StateCommitted, "")
		if err != nil {
			t.Fatal(err)
		}
		want := `{"content":[{"type":"text","text":"This call was applied. Its answer was lost; user:u confirmed it at ` +
			`2026-03-01T12:00:10Z. Reason: looked"}],"resultType":"complete"}`
		if string(r.Answer.Body) != want || r.By != "user:u" || r.Reason != "looked" || r.Owner != p.Owner() {
			t.Errorf("answer %s\nby %s, reason %s, owner %s", r.Answer.Body, r.By, r.Reason, r.Owner)
		}
		replayed := q.wants(effect.ActReplay, charge(), contract()).Record
		if string(replayed.Answer.Body) != want {
			t.Errorf("replayed %s", replayed.Answer.Body)
		}
		// The owner lives after all, and its answer comes: the person's word stands.
		if r := p.settle(claim, contract(), result(`{"late":1}`)); r.By != "user:u" || string(r.Answer.Body) != want {
			t.Errorf("after the late answer: by %s, %s", r.By, r.Answer.Body)
		}
		p.flushed(w)
		assertKinds(t, q.show("default", claim.Effect).Events, effect.EventLate)
		if _, err := resolve(q, claim.Effect, effect.StateFailed, ""); !isConflict(err) {
			t.Errorf("Resolve of a settled effect = %v, want a ConflictError", err)
		}
	})
	t.Run("a given result is replayed byte for byte", func(t *testing.T) {
		p := newWorld(t, h).process()
		claim := p.begin(charge(), contract()).Claim
		p.settle(claim, contract(), lost)
		if _, err := resolve(p, claim.Effect, effect.StateCommitted, `["not a result"]`); err == nil {
			t.Error("an array was taken for a result")
		}
		const body = `{"content":[], "id":9007199254740993}`
		if _, err := resolve(p, claim.Effect, effect.StateCommitted, body); err != nil {
			t.Fatal(err)
		}
		if got := string(p.wants(effect.ActReplay, charge(), contract()).Record.Answer.Body); got != body {
			t.Errorf("replayed %s", got)
		}
	})
	t.Run("what was not applied runs again", func(t *testing.T) {
		p := newWorld(t, h).process()
		claim := p.begin(charge(), contract()).Claim
		p.settle(claim, contract(), waits("c"))
		if _, err := resolve(p, claim.Effect, effect.StateFailed, ""); err != nil {
			t.Fatal(err)
		}
		p.wants(effect.ActReclaim, charge(), contract())
	})
	t.Run("again allows one more run, once", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		claim := p.begin(charge(key("k")), contract()).Claim
		again := func() error {
			return p.Again(t.Context(), store.AgainParams{Tenant: "default", ID: claim.Effect, By: "user:u", Reason: "wanted"})
		}
		if err := again(); !isConflict(err) {
			t.Errorf("Again of an open effect = %v, want a ConflictError", err)
		}
		p.settle(claim, contract(), result(`{}`))
		for range 2 { // granted twice is granted once
			if err := again(); err != nil {
				t.Fatal(err)
			}
		}
		begun := w.process().wants(effect.ActInsert, charge(key("k")), contract())
		if begun.Record.Generation != 2 || begun.Verdict.UsesAgain != claim.Effect {
			t.Errorf("generation %d, uses %q", begun.Record.Generation, begun.Verdict.UsesAgain)
		}
		p.settle(begun.Claim, contract(), result(`{}`))
		p.wants(effect.ActReplay, charge(key("k")), contract())
		assertKinds(t, p.show("default", claim.Effect).Events, effect.EventAgain, effect.EventAgain, effect.EventAgainUsed)
		if err := p.Again(t.Context(), store.AgainParams{Tenant: "tenant-2", ID: claim.Effect, By: "user:u"}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Again for another tenant = %v, want ErrNotFound", err)
		}
		if err := p.Again(t.Context(), store.AgainParams{Tenant: "default", ID: claim.Effect}); err == nil {
			t.Error("nobody allowed another run")
		}
	})
}

func isConflict(err error) bool {
	_, ok := errors.AsType[*store.ConflictError](err)
	return ok
}

func assertKinds(t *testing.T, events []effect.Event, want ...string) {
	t.Helper()
	var got []string
	for _, ev := range events {
		got = append(got, ev.Kind)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
}
