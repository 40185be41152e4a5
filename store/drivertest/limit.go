package drivertest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

func limit(l effect.Limit) func(*effect.Contract) {
	return func(c *effect.Contract) { c.Limits = append(c.Limits, l) }
}

// calls is a limit of a number of calls per principal.
func calls(n int64, within time.Duration) effect.Limit {
	return effect.Limit{Name: "calls", Per: effect.PerPrincipal, Max: n * effect.Unit, Within: within}
}

// amounts is a limit of the sum of an argument per principal.
func amounts(t *testing.T, max int64) effect.Limit {
	t.Helper()
	amount, err := effect.ParseAmount(`args.amount`)
	if err != nil {
		t.Fatal(err)
	}
	return effect.Limit{Name: "amounts", Per: effect.PerPrincipal, Max: max * effect.Unit, Units: amount}
}

func numbered(n int) func(*effect.Call) { return args(fmt.Sprintf(`{"amount":10,"n":%d}`, n)) }

// testLimit is about what is begun within a time.
func testLimit(t *testing.T, h Harness) {
	t.Run("of many calls at once as many begin as there is room for", func(t *testing.T) {
		for name, c := range map[string]*effect.Contract{
			"calls":                   contract(limit(calls(7, time.Hour))),
			"units":                   contract(limit(amounts(t, 79))),
			"units, and more calls":   contract(limit(calls(50, 0)), limit(amounts(t, 70))),
			"calls, and more units":   contract(limit(amounts(t, 1000)), limit(calls(7, 0))),
			"idempotent ones as well": contract(tier(effect.TierIdempotent), limit(calls(7, 0))),
		} {
			w := newWorld(t, h)
			processes := []*process{w.process(), w.process()}
			var claims, refusals atomic.Int32
			race(processes, func(p *process, i int) {
				begun, err := p.Begin(context.Background(), params(t, charge(numbered(i)), c))
				switch {
				case err != nil:
					t.Errorf("%s: Begin: %v", name, err)
				case begun.Claim != nil:
					claims.Add(1)
				case begun.Verdict.Action == effect.ActLimit && strings.Contains(begun.Verdict.Reason, "limit"):
					refusals.Add(1)
				}
			})
			if claims.Load() != 7 || refusals.Load() != racers-7 {
				t.Errorf("%s: %d claims and %d refusals", name, claims.Load(), refusals.Load())
			}
		}
	})
	t.Run("what was not applied gives back, what may have been does not", func(t *testing.T) {
		for name, tc := range map[string]struct {
			outcome effect.Outcome
			back    bool
		}{
			"nothing sent":      {unsent, true},
			"refused":           {rpcError(`{"code":-32602,"message":"x"}`), true},
			"a result":          {result(`{}`), false},
			"a recorded error":  {toolError(`{"isError":true}`), false},
			"no answer":         {lost, false},
			"one more round":    {waits("c"), false},
			"still under way":   {},
			"its owner is gone": {},
		} {
			w := newWorld(t, h)
			p, q := w.process(), w.process()
			c := contract(limit(calls(1, 0)))
			claim := p.wants(effect.ActInsert, charge(numbered(1)), c).Claim
			if tc.outcome.Kind != "" {
				p.settle(claim, c, tc.outcome)
			}
			if name == "its owner is gone" {
				w.clock.advance(ttl)
			}
			want := effect.ActLimit
			if tc.back {
				want = effect.ActInsert
			}
			if begun := q.begin(charge(numbered(2)), c); begun.Verdict.Action != want {
				t.Errorf("%s: %s, want %s", name, begun.Verdict.Action, want)
			}
		}
	})
	t.Run("the time slides", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		c := contract(limit(calls(2, time.Hour)))
		p.done(charge(numbered(1)), c)
		w.clock.advance(30 * time.Minute)
		p.done(charge(numbered(2)), c)
		w.clock.advance(30*time.Minute - time.Second)
		p.wants(effect.ActLimit, charge(numbered(3)), c)
		w.clock.advance(time.Second)
		p.done(charge(numbered(3)), c)
		p.wants(effect.ActLimit, charge(numbered(4)), c)
	})
	t.Run("a later attempt counts from when it was begun, and once", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		c := contract(tier(effect.TierIdempotent), limit(calls(1, time.Hour)))
		p.settle(p.begin(charge(numbered(1)), c).Claim, c, unsent)
		w.clock.advance(50 * time.Minute)
		p.settle(p.wants(effect.ActReclaim, charge(numbered(1)), c).Claim, c, lost)
		w.clock.advance(20 * time.Minute)
		p.wants(effect.ActLimit, charge(numbered(2)), c)
		p.settle(p.wants(effect.ActReclaim, charge(numbered(1)), c).Claim, c, result(`{}`))
		w.clock.advance(50 * time.Minute)
		p.wants(effect.ActLimit, charge(numbered(2)), c)
		w.clock.advance(10 * time.Minute)
		p.wants(effect.ActInsert, charge(numbered(2)), c)
	})
	t.Run("accounts are of a run, a principal or a tenant", func(t *testing.T) {
		for per, free := range map[effect.LimitPer][]*effect.Call{
			effect.PerRun:       {charge(run("r2")), charge(numbered(1)), charge(numbered(2), by("agent:b")), charge(run("r1"), of("tenant-2"))},
			effect.PerPrincipal: {charge(by("agent:b"), run("r3")), charge(of("tenant-2"))},
			effect.PerTenant:    {charge(of("tenant-2"))},
		} {
			p := newWorld(t, h).process()
			c := contract(limit(effect.Limit{Name: "l", Per: per, Max: effect.Unit}))
			p.done(charge(run("r1")), c)
			p.wants(effect.ActLimit, charge(run("r1"), numbered(9)), c)
			for i, call := range free {
				if begun := p.begin(call, c); begun.Claim == nil {
					t.Errorf("per %s: call %d: %s", per, i, begun.Verdict.Reason)
				}
			}
		}
	})
	t.Run("limits of one name share an account, others do not", func(t *testing.T) {
		p := newWorld(t, h).process()
		one, other := contract(limit(calls(1, 0))), calls(1, 0)
		other.Name = "others"
		p.done(charge(), one)
		p.wants(effect.ActLimit, charge(tool("refund")), one)
		p.done(charge(tool("refund")), contract(limit(other)))
	})
	t.Run("what awaits approval takes nothing, what is approved takes when it is claimed", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks, limit(calls(1, 0)))
		first, second := p.asked(charge(numbered(1)), c), p.asked(charge(numbered(2)), c)
		p.approve(first)
		p.approve(second)
		p.settle(p.wants(effect.ActApproved, charge(numbered(2)), c).Claim, c, result(`{}`))
		p.wants(effect.ActLimit, charge(numbered(1)), c)
		p.wants(effect.ActLimit, charge(numbered(3)), c) // nobody is asked about a call that could not run
		if ids := p.ids(awaitingIn("default")); len(ids) != 1 || ids[0] != first.ID {
			t.Errorf("awaiting %v", ids)
		}
	})
	t.Run("a refused call is recorded nowhere, and a replay takes nothing", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(limit(calls(2, 0)))
		p.done(charge(numbered(1)), c)
		for range 3 {
			p.wants(effect.ActReplay, charge(numbered(1)), c)
		}
		p.done(charge(numbered(2)), c)
		p.wants(effect.ActLimit, charge(numbered(3)), c)
		if n := len(p.list(&store.Filter{Tenant: "default"})); n != 2 {
			t.Errorf("%d effects, want 2", n)
		}
		p.wants(effect.ActReplay, charge(numbered(2)), c)
	})
	t.Run("nobody's calls count too", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(limit(effect.Limit{Name: "l", Per: effect.PerTenant, Max: 2 * effect.Unit}))
		for range 2 {
			p.wants(effect.ActInsert, charge(by("")), c)
		}
		p.wants(effect.ActLimit, charge(by("")), c)
	})
	t.Run("amounts as large as can be counted are counted", func(t *testing.T) {
		p := newWorld(t, h).process()
		const largest = 2_000_000_000_000
		shadow := contract(limit(amounts(t, largest)), func(c *effect.Contract) { c.Shadow = true })
		for n := range 6 { // together more than an integer holds
			p.done(charge(args(fmt.Sprintf(`{"amount":%d,"n":%d}`, int64(largest), n))), shadow)
		}
		p.wants(effect.ActLimit, charge(), contract(limit(amounts(t, largest))))
	})
}
