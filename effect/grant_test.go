package effect_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
)

func TestGrant_Covers(t *testing.T) {
	type change = func(*effect.Grant, *situation)
	none := func(*effect.Grant, *situation) {}
	exact := func(g *effect.Grant, _ *situation) { g.Kind, g.Complete = effect.GrantExact, effect.Digest{7} }
	where := func(text string) change {
		return func(g *effect.Grant, _ *situation) { g.Kind, g.Where = effect.GrantWhere, text }
	}
	for _, tt := range []struct {
		name   string
		change change
		want   bool
	}{
		{"every call of its tool", none, true},
		{"until it ends", func(g *effect.Grant, _ *situation) { g.ExpiresAt = now.Add(time.Second) }, true},
		{"not when it has ended", func(g *effect.Grant, _ *situation) { g.ExpiresAt = now }, false},
		{"not when it was revoked", func(g *effect.Grant, _ *situation) { g.RevokedAt = now.Add(-time.Hour) }, false},
		{"not another tool", func(g *effect.Grant, _ *situation) { g.Tool = "refund" }, false},
		{"not another server", func(g *effect.Grant, _ *situation) { g.Server = "crm" }, false},
		{"its caller", func(g *effect.Grant, _ *situation) { g.Principal = "alice" }, true},
		{"not another caller", func(g *effect.Grant, _ *situation) { g.Principal = "bob" }, false},
		{"not a call of who gave it", func(g *effect.Grant, s *situation) { s.call.Principal = g.By }, false},
		{"the tool as it was", func(g *effect.Grant, s *situation) {
			g.Definition, s.call.Definition = effect.Digest{9}, effect.Digest{9}
		}, true},
		{"not a tool that has changed", func(g *effect.Grant, s *situation) {
			g.Definition, s.call.Definition = effect.Digest{9}, effect.Digest{10}
		}, false},
		{"not a tool that is not known any more", func(g *effect.Grant, _ *situation) { g.Definition = effect.Digest{9} }, false},
		{"exactly its arguments", exact, true},
		{"not other arguments", func(g *effect.Grant, s *situation) { exact(g, s); s.id.Complete = effect.Digest{8} }, false},
		{"what its condition holds of", where("args.amount < 100"), true},
		{"not what its condition does not hold of", where("args.amount < 10"), false},
		{"not what its condition cannot judge", where(`args.memo == "x"`), false},
		{"not what its condition takes on a server's word", where("annotations.readOnlyHint"), false},
		{"not by a condition that is none", where("("), false},
		{"not by a kind that is none", func(g *effect.Grant, _ *situation) { g.Kind = "all" }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := unseen(effect.RuleWindow).and(approve)
			s.call.Arguments, s.call.Annotations, s.id.Complete = json.RawMessage(`{"amount":10}`), readOnly, effect.Digest{7}
			g := &effect.Grant{ID: "g1", Kind: effect.GrantTool, Server: "payments", Tool: "charge", By: "user:carol"}
			tt.change(g, s)
			s.facts.Grants = []*effect.Grant{g}
			if got := s.decide().Grant == "g1"; got != tt.want {
				t.Errorf("covered: %t, want %t", got, tt.want)
			}
		})
	}
}

func TestGrant_Check(t *testing.T) {
	good := effect.Grant{Kind: effect.GrantTool, Server: "payments", Tool: "charge", By: "user:carol"}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*effect.Grant)
		want   string
	}{
		{"of an agent", func(g *effect.Grant) { g.By = "agent:bot" }, "user:NAME"},
		{"of nobody", func(g *effect.Grant) { g.By = "" }, "user:NAME"},
		{"without a tool", func(g *effect.Grant) { g.Tool = "" }, "a server and a tool"},
		{"of exact arguments without them", func(g *effect.Grant) { g.Kind = effect.GrantExact }, "digest"},
		{"of a condition without one", func(g *effect.Grant) { g.Kind = effect.GrantWhere }, "compile"},
		{"of a condition that is none", func(g *effect.Grant) { g.Kind, g.Where = effect.GrantWhere, "arg > 1" }, "undeclared reference to 'arg'"},
		{"of no kind", func(g *effect.Grant) { g.Kind = "" }, "no kind of grant"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := good
			tt.change(&g)
			err := g.Check()
			if _, ok := errors.AsType[*effect.InvalidError](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want an *InvalidError with %q", err, tt.want)
			}
		})
	}
}
