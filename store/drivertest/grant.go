package drivertest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

func granting(changes ...func(*effect.Grant)) effect.Grant {
	g := effect.Grant{Tenant: "default", Kind: effect.GrantTool, Server: "payments", Tool: "charge", By: "user:u", Reason: "routine"}
	for _, change := range changes {
		change(&g)
	}
	return g
}

func (p *process) grant(g effect.Grant) *effect.Grant {
	p.t.Helper()
	granted, err := p.Grant(context.Background(), g)
	if err != nil {
		p.t.Fatalf("Grant: %v", err)
	}
	return granted
}

func (p *process) revoke(g *effect.Grant) bool {
	p.t.Helper()
	_, revoked, err := p.Revoke(context.Background(), g.Tenant, g.ID, "user:r", "over")
	if err != nil {
		p.t.Fatalf("Revoke: %v", err)
	}
	return revoked
}

// testGrant is about approvals that stand.
func testGrant(t *testing.T, h Harness) {
	c := contract(asks)
	exact, err := effect.DigestOf(charge().Arguments)
	if err != nil {
		t.Fatal(err)
	}
	cheap := charge(args(`{"amount":3,"to":"bob"}`))
	for name, tc := range map[string]struct {
		grant          effect.Grant
		covers, leaves []*effect.Call
	}{
		"of a tool": {
			granting(),
			[]*effect.Call{charge(), cheap, charge(by("agent:b")), charge(key("k"))},
			[]*effect.Call{charge(tool("refund")), charge(of("tenant-2")), charge(func(c *effect.Call) { c.Server = "mail" }), charge(by("user:u"))},
		},
		"of exact arguments": {
			granting(func(g *effect.Grant) { g.Kind, g.Complete = effect.GrantExact, exact }),
			[]*effect.Call{charge(), charge(by("agent:b"), args(`{ "to":"alice", "amount":10.0 }`))},
			[]*effect.Call{cheap, charge(tool("refund"))},
		},
		"of a condition": {
			granting(func(g *effect.Grant) { g.Kind, g.Where = effect.GrantWhere, `args.amount < 5` }),
			[]*effect.Call{cheap},
			[]*effect.Call{charge(), charge(args(`{"note":"no amount"}`))},
		},
		"of one caller": {
			granting(func(g *effect.Grant) { g.Principal = "agent:a" }),
			[]*effect.Call{charge()},
			[]*effect.Call{charge(by("agent:b"))},
		},
		"of a definition": {
			granting(func(g *effect.Grant) { g.Definition = charge(defined(`{"v":1}`)).Definition }),
			[]*effect.Call{charge(defined(`{"v":1}`))},
			[]*effect.Call{cheap, charge(defined(`{"v":2}`), args(`{"amount":4}`))},
		},
	} {
		t.Run("a grant "+name+" covers what it says", func(t *testing.T) {
			w := newWorld(t, h)
			g := w.process().grant(tc.grant)
			p := w.process()
			for _, call := range tc.covers {
				begun := p.wants(effect.ActInsert, call, c)
				if begun.Verdict.Grant != g.ID {
					t.Errorf("granted by %q, want %s", begun.Verdict.Grant, g.ID)
				}
			}
			for _, call := range tc.leaves {
				p.wants(effect.ActRequest, call, c)
			}
		})
	}
	t.Run("it ends at its time, or when it is revoked", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		brief := p.grant(granting(func(g *effect.Grant) { g.ExpiresAt = w.clock.Now().Add(time.Hour) }))
		w.clock.advance(time.Hour - time.Second)
		if v := q.wants(effect.ActInsert, charge(args(`{"n":1}`)), c).Verdict; v.Grant != brief.ID {
			t.Errorf("granted by %q", v.Grant)
		}
		w.clock.advance(time.Second)
		q.wants(effect.ActRequest, charge(args(`{"n":2}`)), c)
		lasting := p.grant(granting())
		q.wants(effect.ActInsert, charge(args(`{"n":3}`)), c)
		if !p.revoke(lasting) || q.revoke(lasting) {
			t.Error("revoked not once")
		}
		q.wants(effect.ActRequest, charge(args(`{"n":4}`)), c)
	})
	t.Run("one that is made later lets what waits run", func(t *testing.T) {
		p := newWorld(t, h).process()
		r := p.asked(charge(), c)
		g := p.grant(granting())
		begun := p.wants(effect.ActApproved, charge(), c)
		if begun.Verdict.Grant != g.ID || begun.Claim.Effect != r.ID {
			t.Errorf("granted by %q, effect %s", begun.Verdict.Grant, begun.Claim.Effect)
		}
	})
	t.Run("it stands for no approval of a repeat, nor of a denied call", func(t *testing.T) {
		p := newWorld(t, h).process()
		p.grant(granting())
		c := contract(asks, repeat(effect.RepeatAsk))
		r := p.done(charge(), c)
		p.Delivered("default", r.ID)
		p.wants(effect.ActRequest, charge(), c)
		denied := p.asked(charge(tool("refund")), c)
		p.decide(decision(denied, effect.DecideDeny, "user:u"))
		p.grant(granting(func(g *effect.Grant) { g.Tool = "refund" }))
		p.wants(effect.ActDenied, charge(tool("refund")), c)
	})
	t.Run("grants are listed whole, newest first", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		now := w.clock.Now()
		first := p.grant(granting(func(g *effect.Grant) { g.Kind, g.Complete, g.Principal = effect.GrantExact, exact, "agent:a" }))
		second := p.grant(granting(func(g *effect.Grant) { g.Kind, g.Where, g.Tool = effect.GrantWhere, `args.amount < 5`, "refund" }))
		third := p.grant(granting(func(g *effect.Grant) { g.Server, g.ExpiresAt = "mail", now.Add(time.Second) }))
		p.grant(granting(func(g *effect.Grant) { g.Tenant = "tenant-2" }))
		p.revoke(second)
		revoked := *second
		revoked.RevokedAt, revoked.RevokedBy = now, "user:r"
		w.clock.advance(time.Second)
		for name, tc := range map[string]struct {
			filter store.GrantFilter
			want   []*effect.Grant
		}{
			"all":       {store.GrantFilter{}, []*effect.Grant{third, &revoked, first}},
			"active":    {store.GrantFilter{Active: true}, []*effect.Grant{first}},
			"by server": {store.GrantFilter{Server: "mail"}, []*effect.Grant{third}},
			"by tool":   {store.GrantFilter{Server: "payments", Tool: "refund"}, []*effect.Grant{&revoked}},
			"limited":   {store.GrantFilter{Limit: 1}, []*effect.Grant{third}},
		} {
			tc.filter.Tenant = "default"
			got, err := q.Grants(t.Context(), &tc.filter)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", name, diff)
			}
		}
	})
	t.Run("one that is not there, or another tenant's, is not found", func(t *testing.T) {
		p := newWorld(t, h).process()
		g := p.grant(granting(func(g *effect.Grant) { g.Tenant = "tenant-2" }))
		for _, id := range []string{g.ID, "nothing"} {
			if _, _, err := p.Revoke(t.Context(), "default", id, "user:r", "over"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("Revoke = %v, want ErrNotFound", err)
			}
		}
	})
	t.Run("one that lacks something is refused", func(t *testing.T) {
		p := newWorld(t, h).process()
		for _, g := range []effect.Grant{
			granting(func(g *effect.Grant) { g.By = "" }), granting(func(g *effect.Grant) { g.Tool = "" }),
			granting(func(g *effect.Grant) { g.Kind = effect.GrantExact }), granting(func(g *effect.Grant) { g.Kind = "any" }),
			granting(func(g *effect.Grant) { g.Kind, g.Where = effect.GrantWhere, "(" }),
		} {
			_, err := p.Grant(t.Context(), g)
			if _, ok := errors.AsType[*effect.InvalidError](err); !ok {
				t.Errorf("Grant(%+v) = %v, want an InvalidError", g, err)
			}
		}
	})
	t.Run("no call that begins after it was revoked is granted", func(t *testing.T) {
		w := newWorld(t, h)
		processes := []*process{w.process(), w.process()}
		g := processes[0].grant(granting())
		var over atomic.Bool
		race(processes, func(p *process, i int) {
			if i == racers/2 {
				p.revoke(g)
				over.Store(true)
				return
			}
			late := over.Load()
			n := string(rune('a' + i%26))
			begun, err := p.Begin(context.Background(), params(t, charge(tool("charge"), run(n), args(`{"n":`+string(rune('1'+i/26))+`}`)), c))
			if err != nil {
				t.Errorf("Begin: %v", err)
			} else if late && begun.Claim != nil {
				t.Errorf("a call was granted by %s after its end", begun.Verdict.Grant)
			}
		})
	})
}
