package chain_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

func TestExecute_Order(t *testing.T) {
	const hello = `{"name":"echo","arguments":{"note":"hello"}}`
	tests := []struct {
		name      string
		posture   chain.Posture
		phase     interceptors.Phase
		direction chain.Direction
		allow     bool
	}{
		{"a server receives a request: validators first", chain.PostureServer, interceptors.PhaseRequest, chain.Receiving, false},
		{"a server sends a response: mutators first", chain.PostureServer, interceptors.PhaseResponse, chain.Sending, true},
		{"a client sends a request: mutators first", chain.PostureClient, interceptors.PhaseRequest, chain.Sending, true},
		{"a client receives a response: validators first", chain.PostureClient, interceptors.PhaseResponse, chain.Receiving, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.posture.Direction(tt.phase); got != tt.direction {
				t.Fatalf("Direction = %s, want %s", got, tt.direction)
			}
			var calls seen
			c := newChain(t, nil,
				validator("require", requireUpper),
				mutator("upper", func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
					calls.note("upper", in)
					return upper(ctx, in)
				}))
			r := c.Execute(t.Context(), &chain.PhaseParams{
				Event: call, Phase: tt.phase, Direction: tt.posture.Direction(tt.phase), Payload: raw(hello),
			})
			if tt.allow {
				wantAllow(t, r, `{"name":"echo","arguments":{"note":"HELLO"}}`)
				return
			}
			wantDeny(t, r, chain.StatusValidationFailed)
			if n := len(calls.of("upper")); n != 0 {
				t.Errorf("the mutator was called %d times after a denial", n)
			}
		})
	}
}

func TestExecute_MutatorsRunByPriorityThenName(t *testing.T) {
	t.Run("lowest priority first, none is zero", func(t *testing.T) {
		c := newChain(t, nil,
			mutator("m1", appendTag("a"), priority(10, 10)),
			mutator("m2", appendTag("b"), priority(-5, -5)),
			mutator("m3", appendTag("c")))
		wantAllow(t, execute(t, c, chain.Receiving, `{"x":1}`), `{"x":1,"trace":["b","c","a"]}`)
	})
	t.Run("the priority of the other phase does not count; equal ones go by name", func(t *testing.T) {
		c := newChain(t, nil,
			mutator("z", appendTag("z"), priority(0, -1)),
			mutator("a", appendTag("a")),
			mutator("B", appendTag("B")))
		wantAllow(t, execute(t, c, chain.Receiving, `{"x":1}`), `{"x":1,"trace":["B","a","z"]}`)
	})
	t.Run("equal names go by the order of their hosts", func(t *testing.T) {
		c := newChain(t, nil)
		use(t, c, chain.Local("second", server(t, mutator("m", appendTag("first")))), nil)
		use(t, c, chain.Local("first", server(t, mutator("m", appendTag("second")))), nil)
		wantAllow(t, execute(t, c, chain.Receiving, `{"x":1}`), `{"x":1,"trace":["first","second"]}`)
	})
	t.Run("one entry can always be nearest the target", func(t *testing.T) {
		c := newChain(t, nil,
			mutator("near", appendTag("near"), priority(2_000_000_000, -2_000_000_000)),
			mutator("zz", appendTag("zz"), priority(7, 7)))
		var names []string
		for _, phase := range []interceptors.Phase{interceptors.PhaseRequest, interceptors.PhaseResponse} {
			for _, e := range c.Plan(t.Context(), call, phase, chain.Receiving, "") {
				names = append(names, e.Name)
			}
		}
		if diff := cmp.Diff([]string{"zz", "near", "near", "zz"}, names); diff != "" {
			t.Errorf("order (-want +got)\n%s", diff)
		}
	})
}

func TestExecute_MutationPass(t *testing.T) {
	t.Run("a fail-closed crash discards every change and calls nobody after it", func(t *testing.T) {
		var calls seen
		c := newChain(t, nil,
			mutator("1", appendTag("1")),
			mutator("2", crash),
			mutator("3", noting(&calls, "3", appendTag("3"))),
			validator("v", notingJudge(&calls, "v", allowAll)))
		r := execute(t, c, chain.Sending, `{"x":1}`)
		wantDeny(t, r, chain.StatusMutationFailed)
		if got := len(calls.of("3")) + len(calls.of("v")); got != 0 {
			t.Errorf("%d calls after the abort", got)
		}
		if diff := cmp.Diff([]string{"1", "2"}, recorded(r)); diff != "" {
			t.Errorf("records (-want +got)\n%s", diff)
		}
	})
	t.Run("a fail-open crash is recorded and the others count", func(t *testing.T) {
		c := newChain(t, nil,
			mutator("1", appendTag("1")), mutator("2", crash, failOpen), mutator("3", appendTag("3")))
		r := execute(t, c, chain.Receiving, `{"x":1}`)
		wantAllow(t, r, `{"x":1,"trace":["1","3"]}`)
		if r.Records[1].Failure == nil || r.Records[1].Applied {
			t.Errorf("record of the crash: %+v", r.Records[1])
		}
	})
	t.Run("a crash in audit mode never blocks", func(t *testing.T) {
		c := newChain(t, nil, mutator("2", crash, audit))
		r := execute(t, c, chain.Receiving, `{"x":1}`)
		wantAllow(t, r, `{"x":1}`)
		if len(r.Records) != 1 || r.Records[0].Failure == nil {
			t.Errorf("records: %+v", r.Records)
		}
	})
	t.Run("a change in audit mode is a shadow", func(t *testing.T) {
		var calls seen
		c := newChain(t, nil,
			mutator("1", appendTag("1")), mutator("2", appendTag("x"), audit), mutator("3", noting(&calls, "3", appendTag("3"))))
		r := execute(t, c, chain.Receiving, `{"x":1}`)
		wantAllow(t, r, `{"x":1,"trace":["1","3"]}`)
		if diff := cmp.Diff([]string{`{"x":1,"trace":["1"]}`}, calls.of("3")); diff != "" {
			t.Errorf("the third saw (-want +got)\n%s", diff)
		}
		if shadow := r.Records[1].Result; shadow == nil || string(shadow.Payload) != `{"x":1,"trace":["1","x"]}` {
			t.Errorf("shadow result: %+v", shadow)
		}
	})
	t.Run("a member that is taken out stays out", func(t *testing.T) {
		c := newChain(t, nil, mutator("drop", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(`{"name":"t","arguments":{}}`)}, nil
		}))
		wantAllow(t, execute(t, c, chain.Receiving, `{"name":"t","arguments":{"ssn":"1"}}`), `{"name":"t","arguments":{}}`)
	})
	t.Run("params that were an object stay one", func(t *testing.T) {
		c := newChain(t, nil, mutator("null-out", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(`null`)}, nil
		}))
		wantDeny(t, execute(t, c, chain.Receiving, hi), chain.StatusMutationFailed)
	})
	t.Run("numbers keep their digits", func(t *testing.T) {
		c := newChain(t, nil, mutator("tag", appendTag("t")))
		wantAllow(t, execute(t, c, chain.Receiving, `{"id":9007199254740993,"f":1.0e2}`),
			`{"id":9007199254740993,"f":1.0e2,"trace":["t"]}`)
	})
	t.Run("a handler that keeps its payload cannot change it later", func(t *testing.T) {
		mine := raw(`{"x":2}`)
		c := newChain(t, nil, mutator("m", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: mine}, nil
		}))
		r := execute(t, c, chain.Receiving, `{"x":1}`)
		copy(mine, `{"x":9}`)
		wantAllow(t, r, `{"x":2}`)
	})
}

func TestExecute_Certain(t *testing.T) {
	const in, without = `{"name":"t","requestState":"s"}`, `{"name":"t"}`
	t.Run("a host that is not in process is not taken at its word", func(t *testing.T) {
		c := newChain(t, nil)
		use(t, c, answering("m", interceptors.TypeMutation, &interceptors.Result{
			Interceptor: "m", Type: interceptors.TypeMutation, Phase: interceptors.PhaseRequest,
			Modified: true, Payload: raw(without), Certain: true}), nil)
		wantAllow(t, execute(t, c, chain.Receiving, in), `{"name":"t","requestState":"s"}`)
	})
	t.Run("one in process is", func(t *testing.T) {
		c := newChain(t, nil, mutator("m", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(without), Certain: true}, nil
		}))
		wantAllow(t, execute(t, c, chain.Receiving, in), without)
	})
}

func TestExecute_PinnedMembers(t *testing.T) {
	const in = `{"name":"t","arguments":{},"requestState":"s","_meta":{"progressToken":7,"io.modelcontextprotocol/clientCapabilities":{},"acme/x":1}}`
	tests := []struct{ name, left, want string }{
		{"removed ones come back", `{"name":"t","arguments":{"a":1}}`,
			`{"name":"t","arguments":{"a":1},"_meta":{"progressToken":7,"io.modelcontextprotocol/clientCapabilities":{}},"requestState":"s"}`},
		{"changed ones are put right", `{"name":"t","requestState":"other","_meta":{"progressToken":8,"io.modelcontextprotocol/clientCapabilities":{},"acme/x":2}}`,
			`{"name":"t","_meta":{"acme/x":2,"progressToken":7,"io.modelcontextprotocol/clientCapabilities":{}},"requestState":"s"}`},
		{"added ones go", `{"name":"t","requestState":"s","inputResponses":{"a":{}},"_meta":{"progressToken":7,"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/new":1}}`,
			`{"name":"t","_meta":{"progressToken":7,"io.modelcontextprotocol/clientCapabilities":{}},"requestState":"s"}`},
		{"an escaped spelling does not help", `{"name":"t","request\u0053tate":"other","_meta":null}`,
			`{"name":"t","_meta":{"progressToken":7,"io.modelcontextprotocol/clientCapabilities":{}},"requestState":"s"}`},
		{"with all of them left, the bytes are the mutator's", `{"requestState":"s","_meta":{"stamp":1,"progressToken":7,"io.modelcontextprotocol/clientCapabilities":{}},"name":"u"}`,
			`{"requestState":"s","_meta":{"stamp":1,"progressToken":7,"io.modelcontextprotocol/clientCapabilities":{}},"name":"u"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newChain(t, nil, mutator("m", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
				return &interceptors.Change{Payload: raw(tt.left)}, nil
			}))
			wantAllow(t, execute(t, c, chain.Receiving, in), tt.want)
		})
	}
	t.Run("the next mutator sees them again", func(t *testing.T) {
		var calls seen
		c := newChain(t, nil,
			mutator("a", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
				return &interceptors.Change{Payload: raw(`{"name":"t"}`)}, nil
			}),
			mutator("b", noting(&calls, "b", appendTag("b"))))
		execute(t, c, chain.Receiving, `{"name":"t","requestState":"s"}`)
		if diff := cmp.Diff([]string{`{"name":"t","requestState":"s"}`}, calls.of("b")); diff != "" {
			t.Errorf("payload (-want +got)\n%s", diff)
		}
	})
	t.Run("a response has none", func(t *testing.T) {
		c := newChain(t, nil, mutator("m", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(`{}`)}, nil
		}))
		r := c.Execute(t.Context(), &chain.PhaseParams{
			Event: call, Phase: interceptors.PhaseResponse, Direction: chain.Sending, Payload: raw(`{"requestState":"s"}`),
		})
		wantAllow(t, r, `{}`)
	})
}

func TestExecute_ValidationPass(t *testing.T) {
	t.Run("failOpen does not turn a rejection into a pass", func(t *testing.T) {
		wantDeny(t, execute(t, newChain(t, nil, validator("v", denyAll, failOpen)), chain.Receiving, hi), chain.StatusValidationFailed)
	})
	t.Run("a crash blocks, fails open, or is recorded only", func(t *testing.T) {
		wantDeny(t, execute(t, newChain(t, nil, validator("v", crashJudge)), chain.Receiving, hi), chain.StatusValidationFailed)
		wantAllow(t, execute(t, newChain(t, nil, validator("v", crashJudge, failOpen)), chain.Receiving, hi), hi)
		wantAllow(t, execute(t, newChain(t, nil, validator("v", crashJudge, audit)), chain.Receiving, hi), hi)
	})
	t.Run("audit never blocks", func(t *testing.T) {
		wantAllow(t, execute(t, newChain(t, nil, validator("v", denyAll, audit)), chain.Receiving, hi), hi)
	})
	t.Run("warnings and notes are counted and pass", func(t *testing.T) {
		r := execute(t, newChain(t, nil,
			validator("w", found(interceptors.SeverityWarn)), validator("i", found(interceptors.SeverityInfo))), chain.Receiving, hi)
		wantAllow(t, r, hi)
		if diff := cmp.Diff(chain.Summary{Warnings: 1, Infos: 1}, r.Summary); diff != "" {
			t.Errorf("summary (-want +got)\n%s", diff)
		}
	})
	t.Run("all are called and recorded in plan order, whoever is first", func(t *testing.T) {
		firstDone := make(chan struct{})
		c := newChain(t, nil,
			validator("slow", func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
				<-firstDone
				return allowAll(ctx, in)
			}),
			validator("fast", func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
				defer close(firstDone)
				return denyAll(ctx, in)
			}))
		r := execute(t, c, chain.Receiving, hi)
		wantDeny(t, r, chain.StatusValidationFailed)
		if diff := cmp.Diff([]string{"slow", "fast"}, recorded(r)); diff != "" {
			t.Errorf("records (-want +got)\n%s", diff)
		}
		if r.Abort.Interceptor != "fast" || r.Summary.Errors != 1 {
			t.Errorf("abort %+v, summary %+v", r.Abort, r.Summary)
		}
	})
	t.Run("each has its own copy of the payload", func(t *testing.T) {
		var calls seen
		vandal := func(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
			clear(in.Payload)
			in.Context.Extra["acme/x"] = raw(`"forged"`)
			return interceptors.Allow(), nil
		}
		c := newChain(t, nil, validator("a", vandal), mutator("b", noting(&calls, "b", unchanged)))
		r := c.Execute(t.Context(), &chain.PhaseParams{
			Event: call, Phase: interceptors.PhaseRequest, Direction: chain.Receiving, Payload: raw(hi),
			Request: &chain.Request{Attributes: map[string]json.RawMessage{"acme/x": raw(`1`)}},
		})
		wantAllow(t, r, hi)
		if diff := cmp.Diff([]string{hi}, calls.of("b")); diff != "" {
			t.Errorf("payload (-want +got)\n%s", diff)
		}
		if got := string(calls.contexts["b"][0].Extra["acme/x"]); got != "1" {
			t.Errorf("context member = %s", got)
		}
	})
	t.Run("so has a host that is not in process", func(t *testing.T) {
		host := answering("vandal", interceptors.TypeValidation, nil)
		host.invoke = func(_ context.Context, p *interceptors.InvokeParams) (*interceptors.Result, error) {
			clear(p.Payload)
			return &interceptors.Result{Valid: true}, nil
		}
		c := newChain(t, nil)
		use(t, c, host, nil)
		wantAllow(t, execute(t, c, chain.Receiving, hi), hi)
	})
	t.Run("of several objections the first in plan order counts", func(t *testing.T) {
		r := execute(t, newChain(t, nil, validator("b", denyAll), validator("a", denyAll)), chain.Receiving, hi)
		wantDeny(t, r, chain.StatusValidationFailed)
		if r.Abort.Interceptor != "b" {
			t.Errorf("abort %+v", r.Abort)
		}
	})
	t.Run("a denial takes back an answer in the target's place", func(t *testing.T) {
		r := execute(t, newChain(t, nil, validator("v", denyAll),
			mutator("replay", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
				return nil, &interceptors.RespondError{Result: raw(`{}`)}
			})), chain.Sending, hi)
		wantDeny(t, r, chain.StatusValidationFailed)
		if r.Respond != nil {
			t.Errorf("answer %s", r.Respond.Result)
		}
	})
	t.Run("a denial keeps mutators of either mode from being called", func(t *testing.T) {
		var calls seen
		c := newChain(t, nil, validator("v", denyAll),
			mutator("active", noting(&calls, "active", appendTag("x"))), mutator("audit", noting(&calls, "audit", appendTag("x")), audit))
		wantDeny(t, execute(t, c, chain.Receiving, hi), chain.StatusValidationFailed)
		if len(calls.of("active")) != 0 || len(calls.of("audit")) > 1 {
			t.Errorf("calls: active %d, audit %d", len(calls.of("active")), len(calls.of("audit")))
		}
	})
}

// Verdicts that only somebody else's host can give.
func TestExecute_ForeignVerdicts(t *testing.T) {
	verdict := func(valid bool, severity interceptors.Severity) *interceptors.Result {
		return &interceptors.Result{Interceptor: "v", Type: interceptors.TypeValidation, Phase: interceptors.PhaseRequest,
			Valid: valid, Severity: severity}
	}
	tests := []struct {
		name  string
		res   *interceptors.Result
		allow bool
	}{
		{"valid with severity error passes", verdict(true, interceptors.SeverityError), true},
		{"invalid without severity blocks", verdict(false, ""), false},
		{"invalid with a severity nobody knows blocks", verdict(false, "catastrophe"), false},
		{"invalid as a warning passes", verdict(false, interceptors.SeverityWarn), true},
		{"a bare verdict is taken at its word", &interceptors.Result{Valid: true}, true},
		{"no result blocks", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newChain(t, nil)
			use(t, c, answering("v", interceptors.TypeValidation, tt.res), nil)
			r := execute(t, c, chain.Receiving, hi)
			if tt.allow {
				wantAllow(t, r, hi)
			} else {
				wantDeny(t, r, chain.StatusValidationFailed)
			}
		})
	}
}

func TestExecute_MalformedMutationsAreFailures(t *testing.T) {
	good := interceptors.Result{Interceptor: "m", Type: interceptors.TypeMutation, Phase: interceptors.PhaseRequest,
		Modified: true, Payload: raw(`{"evil":1}`)}
	tests := []struct {
		name string
		bend func(*interceptors.Result)
	}{
		{"another interceptor's", func(r *interceptors.Result) { r.Interceptor = "n" }},
		{"another type's", func(r *interceptors.Result) { r.Type = interceptors.TypeValidation }},
		{"another phase's", func(r *interceptors.Result) { r.Phase = interceptors.PhaseResponse }},
		{"said to be unmodified", func(r *interceptors.Result) { r.Modified = false }},
		{"modified without a payload", func(r *interceptors.Result) { r.Payload = nil }},
		{"not JSON", func(r *interceptors.Result) { r.Payload = raw(`{`) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := good
			tt.bend(&res)
			host := answering("m", interceptors.TypeMutation, &res)
			c := newChain(t, nil)
			use(t, c, host, nil)
			wantDeny(t, execute(t, c, chain.Receiving, hi), chain.StatusMutationFailed)

			open := true
			var log syncBuilder
			c = newChain(t, &chain.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			use(t, c, host, &chain.HostPolicy{Overrides: map[string]chain.Override{"m": {FailOpen: &open}}})
			wantAllow(t, execute(t, c, chain.Receiving, hi), hi)
			if !strings.Contains(log.String(), "malformed result") {
				t.Errorf("the operator is not told; the log says %q", log.String())
			}
		})
	}
	t.Run("another spelling of the same payload is not another payload", func(t *testing.T) {
		res := good
		res.Modified, res.Payload = false, raw(`{"arguments":{"note":"\u0068i"},"name":"echo"}`)
		c := newChain(t, nil)
		use(t, c, answering("m", interceptors.TypeMutation, &res), nil)
		wantAllow(t, execute(t, c, chain.Receiving, hi), hi)
	})
	t.Run("two integers that differ in the last digit are another payload", func(t *testing.T) {
		res := good
		res.Modified, res.Payload = false, raw(`{"id":9007199254740992}`)
		c := newChain(t, nil)
		use(t, c, answering("m", interceptors.TypeMutation, &res), nil)
		wantDeny(t, execute(t, c, chain.Receiving, `{"id":9007199254740993}`), chain.StatusMutationFailed)
	})
	t.Run("a host that panics has failed", func(t *testing.T) {
		host := answering("m", interceptors.TypeMutation, nil)
		host.invoke = func(context.Context, *interceptors.InvokeParams) (*interceptors.Result, error) { panic("boom") }
		c := newChain(t, nil)
		use(t, c, host, nil)
		wantDeny(t, execute(t, c, chain.Receiving, hi), chain.StatusMutationFailed)
	})
}

func TestExecute_Deadlines(t *testing.T) {
	forever := func(ctx context.Context, _ *interceptors.Invocation) (*interceptors.Change, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	t.Run("the aggregate deadline ends a fail-closed pass", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var calls seen
			c := newChain(t, &chain.Options{Deadline: 100 * time.Millisecond},
				mutator("m1", appendTag("1")), mutator("m2", forever), validator("v", notingJudge(&calls, "v", allowAll)))
			started := time.Now()
			r := execute(t, c, chain.Sending, hi)
			wantDeny(t, r, chain.StatusTimeout)
			if took := time.Since(started); took != 100*time.Millisecond {
				t.Errorf("took %v", took)
			}
			if len(calls.of("v")) != 0 {
				t.Error("a validator was called after the abort")
			}
		})
	})
	t.Run("a handler that does not listen is given up on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			c := newChain(t, &chain.Options{Deadline: 100 * time.Millisecond},
				validator("deaf", func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
					<-release
					return interceptors.Deny("too late"), nil
				}, failOpen))
			r := execute(t, c, chain.Receiving, hi)
			wantAllow(t, r, hi)
			if r.Elapsed != 100*time.Millisecond || r.Records[0].Failure == nil {
				t.Errorf("took %v: %v", r.Elapsed, r.Records[0].Failure)
			}
			close(release)
			if err := c.Wait(t.Context()); err != nil {
				t.Errorf("Wait: %v", err)
			}
		})
	})
	t.Run("an override's timeout fails one invocation", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(t, nil)
			use(t, c, chain.Local("house", server(t, mutator("m", forever))),
				&chain.HostPolicy{Overrides: map[string]chain.Override{"m": {TimeoutMs: 50}}})
			started := time.Now()
			r := execute(t, c, chain.Receiving, hi)
			wantDeny(t, r, chain.StatusMutationFailed)
			if took := time.Since(started); took != 50*time.Millisecond {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("a remote host is told the timeout and gets a little longer to say so", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			told := make(chan int64, 1)
			host := answering("m", interceptors.TypeMutation, nil)
			host.invoke = func(ctx context.Context, p *interceptors.InvokeParams) (*interceptors.Result, error) {
				told <- p.TimeoutMs
				<-ctx.Done()
				return nil, ctx.Err()
			}
			c := newChain(t, nil)
			use(t, c, host, &chain.HostPolicy{Overrides: map[string]chain.Override{"m": {TimeoutMs: 50}}})
			started := time.Now()
			wantDeny(t, execute(t, c, chain.Receiving, hi), chain.StatusMutationFailed)
			if took := time.Since(started); <-told != 50 || took <= 50*time.Millisecond || took > 500*time.Millisecond {
				t.Errorf("gave up after %v, or was not told 50 ms", took)
			}
		})
	})
}

func TestExecute_UngovernedEventsCallNobody(t *testing.T) {
	c := newChain(t, nil, validator("v", denyAll))
	for _, event := range []string{"ping", "initialize", "notifications/progress", "interceptor/invoke",
		"interceptors/list", "interceptors/invoke", "server/discover", "subscriptions/listen", "tasks/get", ""} {
		r := c.Execute(t.Context(), &chain.PhaseParams{
			Event: event, Phase: interceptors.PhaseRequest, Direction: chain.Receiving, Payload: raw(`{}`),
		})
		wantAllow(t, r, `{}`)
		if len(r.Records) != 0 {
			t.Errorf("%s: %d interceptors called", event, len(r.Records))
		}
	}
	for _, event := range []string{"tools/list", "completion/complete", "logging/setLevel", "resources/templates/list", "acme/deploy"} {
		if !chain.Governed(event) {
			t.Errorf("%s is not governed", event)
		}
	}
}

func noting(s *seen, name string, f change) change {
	return func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
		s.note(name, in)
		return f(ctx, in)
	}
}

func notingJudge(s *seen, name string, f judge) judge {
	return func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
		s.note(name, in)
		return f(ctx, in)
	}
}

func unchanged(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
	return nil, nil
}

func found(severity interceptors.Severity) judge {
	return func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
		return &interceptors.Verdict{Severity: severity}, nil
	}
}
