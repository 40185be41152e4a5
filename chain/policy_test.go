package chain_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

func on(phase interceptors.Phase, events ...string) interceptors.Hook {
	return interceptors.Hook{Events: events, Phase: phase}
}

func TestUse_Overrides(t *testing.T) {
	yes, low := true, interceptors.Priority{Request: -9, Response: -9}
	tests := []struct {
		name     string
		all      []interceptors.Interceptor
		override chain.Override
		deny     bool
		payload  string
	}{
		{"mode active makes an audit validator count", []interceptors.Interceptor{validator("x", denyAll, audit)},
			chain.Override{Mode: interceptors.ModeActive}, true, ""},
		{"mode audit makes an active one not count", []interceptors.Interceptor{validator("x", denyAll)},
			chain.Override{Mode: interceptors.ModeAudit}, false, `{"n":1}`},
		{"failOpen lets a crash pass", []interceptors.Interceptor{validator("x", crashJudge)},
			chain.Override{FailOpen: &yes}, false, `{"n":1}`},
		{"priority moves a mutator", []interceptors.Interceptor{mutator("a", appendTag("a")), mutator("x", appendTag("x"))},
			chain.Override{Priority: &low}, false, `{"n":1,"trace":["x","a"]}`},
		{"hooks narrow", []interceptors.Interceptor{validator("x", denyAll)},
			chain.Override{Hooks: []interceptors.Hook{on(interceptors.PhaseRequest, "prompts/get")}}, false, `{"n":1}`},
		{"disabled takes it out", []interceptors.Interceptor{validator("x", denyAll)},
			chain.Override{Disabled: true}, false, `{"n":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newChain(t, nil)
			use(t, c, chain.Local("house", server(t, tt.all...)), &chain.HostPolicy{Overrides: map[string]chain.Override{"x": tt.override}})
			r := execute(t, c, chain.Receiving, `{"n":1}`)
			if tt.deny {
				wantDeny(t, r, chain.StatusValidationFailed)
			} else {
				wantAllow(t, r, tt.payload)
			}
		})
	}
	t.Run("config reaches the handler", func(t *testing.T) {
		var got string
		c := newChain(t, nil)
		use(t, c, chain.Local("house", server(t, validator("x", func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
			got = string(in.Config)
			return interceptors.Allow(), nil
		}))), &chain.HostPolicy{Overrides: map[string]chain.Override{"x": {Config: raw(`{"max":9007199254740993}`)}}})
		execute(t, c, chain.Receiving, hi)
		if got != `{"max":9007199254740993}` {
			t.Errorf("config = %s", got)
		}
	})
}

func TestUse_RefusesWhatCannotBeMeant(t *testing.T) {
	narrow := hooks(on(interceptors.PhaseRequest, call))
	tests := []struct {
		name   string
		policy chain.HostPolicy
		want   string
	}{
		{"an unknown mode", overriding(chain.Override{Mode: "enforce"}), "mode"},
		{"a negative timeout", overriding(chain.Override{TimeoutMs: -1}), "timeoutMs"},
		{"a config that is not JSON", overriding(chain.Override{Config: raw(`{`)}), "config"},
		{"a config that is no object", overriding(chain.Override{Config: raw(`[1]`)}), "config"},
		{"a hook of a phase that is none", overriding(chain.Override{Hooks: []interceptors.Hook{on("both", call)}}), "phase"},
		{"a hook without events", overriding(chain.Override{Hooks: []interceptors.Hook{on(interceptors.PhaseRequest)}}), "no event"},
		{"a wider event", overriding(chain.Override{Hooks: []interceptors.Hook{on(interceptors.PhaseRequest, "*")}}), "wider"},
		{"a wider phase", overriding(chain.Override{Hooks: []interceptors.Hook{on(interceptors.PhaseResponse, call)}}), "wider"},
		{"a required one without a type", chain.HostPolicy{Required: map[string]interceptors.Type{"x": ""}}, "type"},
		{"a required one that is disabled", chain.HostPolicy{
			Required:  map[string]interceptors.Type{"x": interceptors.TypeValidation},
			Overrides: map[string]chain.Override{"x": {Disabled: true}}}, "disabled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newChain(t, nil)
			err := c.Use(chain.Local("house", server(t, validator("x", allowAll, narrow))), &tt.policy)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Use = %v, want an error about %q", err, tt.want)
			}
		})
	}
	t.Run("two hosts of one name", func(t *testing.T) {
		c := newChain(t, nil, validator("v", allowAll))
		if err := c.Use(chain.Local("house", server(t)), nil); err == nil {
			t.Error("Use took a second house")
		}
	})
	t.Run("a posture that is none", func(t *testing.T) {
		if _, err := chain.New(&chain.Options{Posture: "middle"}); err == nil {
			t.Error("New took it")
		}
	})
}

func overriding(o chain.Override) chain.HostPolicy {
	return chain.HostPolicy{Overrides: map[string]chain.Override{"x": o}}
}

func TestPlan_Selection(t *testing.T) {
	compat := func(d *interceptors.Descriptor) {
		d.Compat = &interceptors.Compat{MinProtocol: "2025-06-18", MaxProtocol: "2025-11-25"}
	}
	c := newChain(t, nil,
		validator("call", allowAll, hooks(on(interceptors.PhaseRequest, call))),
		validator("glob", allowAll, hooks(on(interceptors.PhaseRequest, "tools/*"))),
		validator("prompts", allowAll, hooks(on(interceptors.PhaseRequest, "prompts/get"))),
		validator("response", allowAll, hooks(on(interceptors.PhaseResponse, "*"))),
		validator("none", allowAll, hooks()),
		validator("old", allowAll, compat))
	tests := []struct {
		protocol string
		want     []string
	}{
		{"", []string{"call", "glob", "old"}},
		{"2025-11-25", []string{"call", "glob", "old"}},
		{"2026-07-28", []string{"call", "glob"}},
		{"2025-03-26", []string{"call", "glob"}},
	}
	for _, tt := range tests {
		var names []string
		for _, e := range c.Plan(t.Context(), call, interceptors.PhaseRequest, chain.Receiving, tt.protocol) {
			names = append(names, e.Name)
		}
		if diff := cmp.Diff(tt.want, names); diff != "" {
			t.Errorf("plan under %q (-want +got)\n%s", tt.protocol, diff)
		}
	}
}

func TestDiscovery_HostIsDown(t *testing.T) {
	down := func() *fakeHost {
		h := answering("guard", interceptors.TypeValidation, nil)
		h.list = func() ([]interceptors.Descriptor, error) { return nil, errors.New("connection refused") }
		return h
	}
	required := map[string]interceptors.Type{"guard": interceptors.TypeValidation}
	t.Run("a required interceptor blocks", func(t *testing.T) {
		c := newChain(t, nil)
		use(t, c, down(), &chain.HostPolicy{Required: required})
		wantDeny(t, execute(t, c, chain.Receiving, hi), chain.StatusValidationFailed)
	})
	t.Run("a required one that fails open lets pass", func(t *testing.T) {
		open := true
		c := newChain(t, nil)
		use(t, c, down(), &chain.HostPolicy{Required: required, Overrides: map[string]chain.Override{"guard": {FailOpen: &open}}})
		wantAllow(t, execute(t, c, chain.Receiving, hi), hi)
	})
	t.Run("a required one blocks only where it is hooked", func(t *testing.T) {
		c := newChain(t, nil)
		use(t, c, down(), &chain.HostPolicy{Required: required, Overrides: map[string]chain.Override{
			"guard": {Hooks: []interceptors.Hook{on(interceptors.PhaseRequest, "prompts/get")}}}})
		wantAllow(t, execute(t, c, chain.Receiving, hi), hi)
	})
	t.Run("without one the operation passes, with an alert", func(t *testing.T) {
		var log strings.Builder
		c := newChain(t, &chain.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		use(t, c, down(), nil)
		wantAllow(t, execute(t, c, chain.Receiving, hi), hi)
		if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "connection refused") {
			t.Errorf("log:\n%s", log.String())
		}
	})
	t.Run("one that is there with another type counts as missing", func(t *testing.T) {
		c := newChain(t, nil)
		use(t, c, chain.Local("house", server(t, validator("guard", allowAll))),
			&chain.HostPolicy{Required: map[string]interceptors.Type{"guard": interceptors.TypeMutation}})
		wantDeny(t, execute(t, c, chain.Receiving, hi), chain.StatusMutationFailed)
	})
}

func TestDiscovery_ListsAreAskedAgain(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	asked, name, down := 0, "one", false
	host := answering("", interceptors.TypeValidation, &interceptors.Result{Valid: true})
	host.list = func() ([]interceptors.Descriptor, error) {
		asked++
		if down {
			return nil, errors.New("gone")
		}
		return []interceptors.Descriptor{{Name: name, Type: interceptors.TypeValidation, Hooks: bothPhases},
			{Name: name, Type: interceptors.TypeMutation, Hooks: bothPhases}, {Name: "s", Type: "sink", Hooks: bothPhases}}, nil
	}
	c := newChain(t, &chain.Options{DiscoveryTTL: time.Minute, Now: func() time.Time { return now }})
	use(t, c, host, nil)
	steps := []struct {
		name  string
		do    func()
		asked int
		want  string
	}{
		{"the first phase asks, and passes over duplicates and unknown types", func() {}, 1, "one"},
		{"the next does not", func() { name = "two"; now = now.Add(59 * time.Second) }, 1, "one"},
		{"after the TTL it does", func() { now = now.Add(time.Second) }, 2, "two"},
		{"after Invalidate too", func() { name = "three"; c.Invalidate(host.name) }, 3, "three"},
		{"while the host is gone, what was known stays", func() { down = true; c.Invalidate("") }, 4, "three"},
		{"and it is soon asked again", func() { down, name = false, "four"; now = now.Add(2 * time.Second) }, 5, "four"},
	}
	for _, step := range steps {
		step.do()
		r := execute(t, c, chain.Receiving, hi)
		if diff := cmp.Diff([]string{step.want}, recorded(r)); diff != "" || asked != step.asked {
			t.Errorf("%s: asked %d times, want %d; called (-want +got)\n%s", step.name, asked, step.asked, diff)
		}
	}
}

func TestDiscovery_AHostThatHungIsLeftAloneAfterwards(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	asked := 0
	host := answering("", interceptors.TypeValidation, &interceptors.Result{Valid: true})
	host.list = func() ([]interceptors.Descriptor, error) {
		asked++
		now = now.Add(5 * time.Second)
		return nil, errors.New("no answer in 5s")
	}
	c := newChain(t, &chain.Options{Now: func() time.Time { return now }})
	use(t, c, host, nil)
	for range 2 {
		wantAllow(t, execute(t, c, chain.Receiving, hi), hi)
	}
	if asked != 1 {
		t.Errorf("asked %d times by two phases in a row, want once", asked)
	}
}
