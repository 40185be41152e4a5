package chain_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

// twoPlans is a gateway with a validator and a mutator at each boundary.
func twoPlans(t *testing.T) *chain.Chain {
	c := newChain(t, &chain.Options{Posture: chain.PostureGateway})
	use(t, c, chain.Local("agent", server(t, validator("av", allowAll), mutator("am", appendTag("am")))), nil)
	use(t, c, chain.Local("upstream", server(t, validator("uv", allowAll), mutator("um", appendTag("um")))),
		&chain.HostPolicy{Side: chain.SideUpstream})
	return c
}

func TestExecute_GatewayRunsTwoPlans(t *testing.T) {
	tests := []struct {
		name       string
		phase      interceptors.Phase
		fromServer bool
		want       []string
	}{
		{"a request is received from the agent and sent to the upstream", interceptors.PhaseRequest, false, []string{"av", "am", "um", "uv"}},
		{"a response is received from the upstream and sent to the agent", interceptors.PhaseResponse, false, []string{"uv", "um", "am", "av"}},
		{"a server's request is received from it and sent to the agent", interceptors.PhaseRequest, true, []string{"uv", "um", "am", "av"}},
		{"the agent's response to it goes the way of a request", interceptors.PhaseResponse, true, []string{"av", "am", "um", "uv"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &chain.PhaseParams{Event: "acme/x", Phase: tt.phase, Payload: raw(`{"x":1}`), Request: &chain.Request{FromServer: tt.fromServer}}
			r := twoPlans(t).Execute(t.Context(), p)
			if diff := cmp.Diff(tt.want, recorded(r)); diff != "" {
				t.Errorf("order (-want +got)\n%s", diff)
			}
			for _, rec := range r.Records {
				if want := chain.Side(map[byte]string{'a': "agent", 'u': "upstream"}[rec.Interceptor[0]]); rec.Side != want {
					t.Errorf("%s is at the boundary to the %s", rec.Interceptor, rec.Side)
				}
			}
		})
	}
	t.Run("one side alone", func(t *testing.T) {
		r := twoPlans(t).Execute(t.Context(), &chain.PhaseParams{
			Event: call, Phase: interceptors.PhaseRequest, Side: chain.SideUpstream, Payload: raw(`{"x":1}`)})
		if diff := cmp.Diff([]string{"um", "uv"}, recorded(r)); diff != "" {
			t.Errorf("order (-want +got)\n%s", diff)
		}
	})
	t.Run("a policy moves one interceptor to the other side", func(t *testing.T) {
		c := newChain(t, &chain.Options{Posture: chain.PostureGateway})
		use(t, c, chain.Local("house", server(t, mutator("a", appendTag("a")), mutator("z", appendTag("z")))),
			&chain.HostPolicy{Side: chain.SideUpstream, Overrides: map[string]chain.Override{"z": {Side: chain.SideAgent}}})
		r := c.Execute(t.Context(), &chain.PhaseParams{Event: call, Phase: interceptors.PhaseRequest, Payload: raw(`{"x":1}`)})
		wantAllow(t, r, `{"x":1,"trace":["z","a"]}`)
	})
	t.Run("one stays nearest the target whatever priorities others claim", func(t *testing.T) {
		c := newChain(t, &chain.Options{Posture: chain.PostureGateway})
		use(t, c, chain.Local("house", server(t, mutator("near", appendTag("near")), mutator("zz", appendTag("zz"), priority(math.MaxInt32, math.MinInt32)))),
			&chain.HostPolicy{Side: chain.SideUpstream, Overrides: map[string]chain.Override{"near": {Nearest: true}}})
		for phase, want := range map[interceptors.Phase]string{
			interceptors.PhaseRequest: `{"x":1,"trace":["zz","near"]}`, interceptors.PhaseResponse: `{"x":1,"trace":["near","zz"]}`,
		} {
			wantAllow(t, c.Execute(t.Context(), &chain.PhaseParams{Event: call, Phase: phase, Payload: raw(`{"x":1}`)}), want)
		}
	})
	t.Run("a denial at the second boundary takes back what the first changed", func(t *testing.T) {
		c := newChain(t, &chain.Options{Posture: chain.PostureGateway}, mutator("am", appendTag("a")))
		use(t, c, chain.Local("near", server(t, validator("uv", denyAll))), &chain.HostPolicy{Side: chain.SideUpstream})
		r := c.Execute(t.Context(), &chain.PhaseParams{Event: call, Phase: interceptors.PhaseRequest, Payload: raw(`{"x":1}`)})
		wantDeny(t, r, chain.StatusValidationFailed)
	})
	t.Run("a side that is neither is refused", func(t *testing.T) {
		c := newChain(t, nil)
		if err := c.Use(chain.Local("x", server(t)), &chain.HostPolicy{Side: "left"}); err == nil {
			t.Error("no error")
		}
	})
}

func TestExecute_SinglePlanTurnsRoundForServers(t *testing.T) {
	for posture, want := range map[chain.Posture][]string{
		chain.PostureServer: {"m", "v"}, // the server sends
		chain.PostureClient: {"v", "m"}, // the client receives
	} {
		c := newChain(t, &chain.Options{Posture: posture}, validator("v", allowAll), mutator("m", appendTag("m")))
		r := c.Execute(t.Context(), &chain.PhaseParams{
			Event: sample, Phase: interceptors.PhaseRequest, Payload: raw(`{"x":1}`), Request: &chain.Request{FromServer: true}})
		if diff := cmp.Diff(want, recorded(r)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", posture, diff)
		}
	}
}

// An application runs its own events.
func TestExecute_CustomAndModelEvents(t *testing.T) {
	for _, event := range []string{"llm/completion", "acme/deploy"} {
		t.Run(event, func(t *testing.T) {
			c := newChain(t, &chain.Options{Posture: chain.PostureClient},
				validator("v", denyAll, hooks(on(interceptors.PhaseResponse, event))),
				mutator("m", appendTag("m"), hooks(on(interceptors.PhaseRequest, "*"))))
			sent := c.Execute(t.Context(), &chain.PhaseParams{Event: event, Phase: interceptors.PhaseRequest, Payload: raw(`{"messages":[]}`)})
			wantAllow(t, sent, `{"messages":[],"trace":["m"]}`)
			received := c.Execute(t.Context(), &chain.PhaseParams{Event: event, Phase: interceptors.PhaseResponse, Payload: raw(`{"role":"assistant"}`)})
			wantDeny(t, received, chain.StatusValidationFailed)
		})
	}
}

func TestExecute_PayloadAboveTheLimit(t *testing.T) {
	big := `{"text":"` + strings.Repeat("x", 2000) + `"}`
	run := func(mods ...mod) *chain.PhaseResult {
		c := newChain(t, nil)
		use(t, c, chain.Local("house", server(t, validator("v", denyAll, mods...))), &chain.HostPolicy{MaxPayload: 1000})
		return c.Execute(t.Context(), &chain.PhaseParams{
			Event: call, Phase: interceptors.PhaseResponse, Direction: chain.Receiving, Payload: raw(big)})
	}
	t.Run("blocks when the interceptor fails closed", func(t *testing.T) {
		r := run()
		wantDeny(t, r, chain.StatusValidationFailed)
		if r.Abort.Denied {
			t.Error("it counts as a denial of what nobody saw")
		}
	})
	t.Run("passes and is recorded when it fails open", func(t *testing.T) {
		r := run(failOpen)
		wantAllow(t, r, big)
		if r.Records[0].Failure == nil {
			t.Error("no failure is recorded")
		}
	})
}

// decider lets an operation pass once somebody has decided.
type decider struct{ granted bool }

func (d *decider) judge(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	if d.granted {
		return interceptors.Allow(), nil
	}
	v := interceptors.Deny("a person must agree")
	v.Info = raw(`{"dev.undolog/pause":{"id":"7","url":"https://x.test/7","text":"pay?","until":"2999-01-01T00:00:00Z","waitMs":5000}}`)
	return v, nil
}

func TestDo_Pause(t *testing.T) {
	want := &chain.Pause{ID: "7", URL: "https://x.test/7", Text: "pay?", Until: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), WaitMs: 5000}
	t.Run("without an observer the operation is blocked, and says what it waits for", func(t *testing.T) {
		c := newChain(t, nil, validator("v", new(decider).judge))
		reply := c.Do(t.Context(), request, answers(`{}`))
		if diff := cmp.Diff(want, reply.Pause); diff != "" || reply.Outcome.Verdict != chain.Blocked {
			t.Errorf("pause (-want +got)\n%s%+v", diff, reply.Outcome)
		}
	})
	t.Run("it is tried again when the observer says so, as an exchange of its own", func(t *testing.T) {
		var w witness
		d := new(decider)
		o := w.observer()
		var asked []string
		o.Pause = func(_ context.Context, x *chain.Exchange, p *chain.Pause) bool {
			asked = append(asked, x.ID+" "+p.ID)
			d.granted = len(asked) == 2
			return true
		}
		c := newChain(t, &chain.Options{Observer: o, Posture: chain.PostureClient},
			mutator("claim", unchanged), validator("v", d.judge, hooks(on(interceptors.PhaseRequest, "*"))))
		reply := c.Do(t.Context(), request, answers(`{"ok":1}`))
		reply.Delivered(true)
		w.want(t, []string{"unsent", "unsent", `answered {"ok":1}`}, "allowed response")
		if len(asked) != 2 || asked[0] == asked[1] || w.exchanges[0].ID == w.exchanges[2].ID {
			t.Errorf("asked %v", asked)
		}
		if diff := cmp.Diff([]bool{false, false, true}, w.told()); diff != "" {
			t.Errorf("delivered (-want +got)\n%s", diff)
		}
	})
	t.Run("a no blocks", func(t *testing.T) {
		o := chain.Observer{Pause: func(context.Context, *chain.Exchange, *chain.Pause) bool { return false }}
		reply := newChain(t, &chain.Options{Observer: o}, validator("v", new(decider).judge)).Do(t.Context(), request, answers(`{}`))
		wantError(t, reply, -32602, "Interceptor validation failed")
	})
	t.Run("a caller that has left is not tried again", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o := chain.Observer{Pause: func(context.Context, *chain.Exchange, *chain.Pause) bool { cancel(); return true }}
		reply := newChain(t, &chain.Options{Observer: o}, validator("v", new(decider).judge)).Do(ctx, request, answers(`{}`))
		if reply.Outcome.Verdict != chain.Blocked {
			t.Errorf("outcome %+v", reply.Outcome)
		}
	})
	t.Run("a host that is not trusted cannot pause", func(t *testing.T) {
		host := answering("v", interceptors.TypeValidation, &interceptors.Result{
			Interceptor: "v", Type: interceptors.TypeValidation, Phase: interceptors.PhaseRequest, Severity: interceptors.SeverityError,
			Info: raw(`{"dev.undolog/pause":{"id":"7"}}`)})
		o := chain.Observer{Pause: func(context.Context, *chain.Exchange, *chain.Pause) bool { panic("asked") }}
		c := newChain(t, &chain.Options{Observer: o})
		use(t, c, host, nil)
		if reply := c.Do(t.Context(), request, answers(`{}`)); reply.Pause != nil {
			t.Errorf("pause %+v", reply.Pause)
		}
	})
	t.Run("an error for the requester carries it too, and the requester does not see it", func(t *testing.T) {
		c := newChain(t, nil, mutator("m", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return nil, &interceptors.BlockError{Message: "wait", Data: raw(`{"a":1,"dev.undolog/pause":{"id":"9"}}`)}
		}))
		reply := c.Do(t.Context(), request, answers(`{}`))
		if reply.Pause == nil || reply.Pause.ID != "9" {
			t.Errorf("pause %+v", reply.Pause)
		}
		if want := `{"code":-32603,"message":"wait","data":{"a":1}}`; string(reply.Error) != want {
			t.Errorf("error is %s, want %s", reply.Error, want)
		}
	})
	t.Run("the next try carries the handle, and the request's own hook comes before the observer's", func(t *testing.T) {
		var handles []string
		c := newChain(t, &chain.Options{Observer: chain.Observer{Pause: func(context.Context, *chain.Exchange, *chain.Pause) bool { panic("asked") }}},
			mutator("m", func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
				handles = append(handles, string(in.Context.Extra[chain.HandleKey]))
				if len(handles) > 1 {
					return &interceptors.Change{}, nil
				}
				return nil, &interceptors.BlockError{Message: "wait", Data: raw(`{"dev.undolog/pause":{"id":"9","handle":"h-1"}}`)}
			}, hooks(on(interceptors.PhaseRequest, "*"))))
		held := *request
		held.Pause = func(context.Context, *chain.Exchange, *chain.Pause) bool { return true }
		if reply := c.Do(t.Context(), &held, answers(`{"ok":1}`)); string(reply.Result) != `{"ok":1}` {
			t.Errorf("reply %+v", reply)
		}
		if diff := cmp.Diff([]string{"", `"h-1"`}, handles); diff != "" {
			t.Errorf("handles (-want +got)\n%s", diff)
		}
	})
	t.Run("no deadline counts while people decide", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := new(decider)
			o := chain.Observer{Pause: func(ctx context.Context, _ *chain.Exchange, _ *chain.Pause) bool {
				timer := time.NewTimer(2 * time.Minute)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-ctx.Done():
				}
				d.granted = true
				return true
			}}
			c := newChain(t, &chain.Options{Observer: o, Deadline: 10 * time.Second})
			use(t, c, chain.Local("house", server(t, validator("v", d.judge))), &chain.HostPolicy{
				Overrides: map[string]chain.Override{"v": {TimeoutMs: 5000}}})
			reply := c.Do(t.Context(), request, answers(`{"ok":1}`))
			if string(reply.Result) != `{"ok":1}` || reply.Outcome.Verdict != chain.Allowed {
				t.Errorf("reply %s, outcome %+v", reply.Error, reply.Outcome)
			}
		})
	})
}

func TestChain_Explain(t *testing.T) {
	c := newChain(t, &chain.Options{Posture: chain.PostureGateway})
	use(t, c, chain.Local("house", server(t,
		mutator("b", unchanged, priority(5, 5)), mutator("a", unchanged, priority(5, 5)), mutator("last", unchanged),
		validator("lists", allowAll, hooks(on(interceptors.PhaseRequest, "tools/list"))),
		validator("old", allowAll, func(d *interceptors.Descriptor) {
			d.Compat = &interceptors.Compat{MinProtocol: "2024-11-05", MaxProtocol: "2025-06-18"}
		}),
		validator("off", allowAll), validator("narrow", allowAll))),
		&chain.HostPolicy{
			Required: map[string]interceptors.Type{"gone": interceptors.TypeValidation},
			Overrides: map[string]chain.Override{
				"off": {Disabled: true}, "narrow": {Hooks: []interceptors.Hook{on(interceptors.PhaseRequest, "prompts/*")}},
				"last": {Priority: &interceptors.Priority{Request: 9}, Side: chain.SideUpstream},
			}})
	var got []string
	for _, e := range c.Explain(t.Context(), call, interceptors.PhaseRequest, &chain.Request{Protocol: "2026-07-28"}) {
		got = append(got, strings.Join(append([]string{string(rune('0' + e.Position)), string(e.Side), e.Name}, e.Reasons...), " | "))
	}
	const agent, upstream = "the boundary to the agent is receiving: validators run before mutators", "the boundary to the upstream is sending: mutators run before validators"
	want := []string{
		"1 | agent | gone | required interceptor is not there | it fails whenever it is its turn | " + agent + " | validators of a pass run at the same time",
		`2 | agent | a | hooked by "*" | ` + agent + " | priority 5 (its author's hint), then the name",
		`3 | agent | b | hooked by "*" | ` + agent + " | priority 5 (its author's hint), then the name",
		`4 | upstream | last | hooked by "*" | ` + upstream + " | priority 9 (set by the policy)",
		"0 | agent | lists | no hook for tools/call request: it has tools/list request",
		"0 | agent | old | made for revisions 2024-11-05 to 2025-06-18, not 2026-07-28",
		"0 | agent | narrow | narrowed away by the policy to prompts/* request",
		"0 | agent | off | disabled by the policy",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("explanation (-want +got)\n%s", diff)
	}
	for _, e := range c.Explain(t.Context(), "ping", interceptors.PhaseRequest, nil) {
		if e.Position != 0 || e.Name != "off" && !slices.Contains(e.Reasons, "ping is never governed") {
			t.Errorf("%+v", e)
		}
	}
}

func TestExecute_NobodyConcernedCostsNothing(t *testing.T) {
	c := newChain(t, &chain.Options{Posture: chain.PostureGateway}, validator("v", allowAll, hooks(on(interceptors.PhaseRequest, "tools/list"))))
	payload := json.RawMessage(hi)
	ctx := t.Context()
	pass := func() {
		if r := c.Execute(ctx, &chain.PhaseParams{Event: call, Phase: interceptors.PhaseRequest, Payload: payload, Request: request}); r.Abort != nil {
			t.Fatal("blocked")
		}
	}
	if n := testing.AllocsPerRun(100, pass); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Requesters choose the names of methods: many of them do not make the others dear for ever.
func TestExecute_ManyEventsAreForgotten(t *testing.T) {
	c := newChain(t, nil, validator("v", allowAll, hooks(on(interceptors.PhaseRequest, "tools/list"))))
	ctx, payload := t.Context(), raw(`{}`)
	pass := func(event string) {
		c.Execute(ctx, &chain.PhaseParams{Event: event, Phase: interceptors.PhaseRequest, Payload: payload})
	}
	for i := range 2000 {
		pass("acme/" + strconv.Itoa(i))
	}
	if n := testing.AllocsPerRun(100, func() { pass("resources/read") }); n != 0 {
		t.Errorf("an event that concerns nobody allocates %v times", n)
	}
}

func TestChain_Decide(t *testing.T) {
	var told []chain.Decision
	o := chain.Observer{Decide: func(_ context.Context, _ *chain.Exchange, _ *chain.Pause, d *chain.Decision) error {
		told = append(told, *d)
		return nil
	}}
	c := newChain(t, &chain.Options{Observer: o})
	yes := &chain.Decision{Approve: true, Reason: "seen"}
	if err := c.Decide(t.Context(), nil, &chain.Pause{ID: "7"}, yes); !errors.Is(err, chain.ErrNoDecider) {
		t.Errorf("where the host's user may not decide: %v", err)
	}
	if err := c.Decide(t.Context(), nil, &chain.Pause{ID: "7", Host: true}, yes); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]chain.Decision{*yes}, told); diff != "" {
		t.Errorf("told (-want +got)\n%s", diff)
	}
	if err := newChain(t, nil).Decide(t.Context(), nil, &chain.Pause{ID: "7", Host: true}, yes); !errors.Is(err, chain.ErrNoDecider) {
		t.Errorf("where nobody listens: %v", err)
	}
}

func TestChain_AwaitWithoutAnObserverWaitsForTheCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newChain(t, nil).Await(ctx, nil, &chain.Pause{ID: "7"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
