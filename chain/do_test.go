package chain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

// witness is an observer that keeps what it is told.
type witness struct {
	mu        sync.Mutex
	settled   []string
	outcomes  []string
	delivered []bool
	exchanges []*chain.Exchange
	ctxErrs   []error
}

func (w *witness) observer() chain.Observer {
	return chain.Observer{
		Settled: func(ctx context.Context, x *chain.Exchange, a chain.Answer) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.settled = append(w.settled, describe(a))
			w.exchanges = append(w.exchanges, x)
			w.ctxErrs = append(w.ctxErrs, ctx.Err())
		},
		Delivered: func(_ context.Context, _ *chain.Exchange, _ time.Time, delivered bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.delivered = append(w.delivered, delivered)
		},
		Outcome: func(_ context.Context, _ *chain.Exchange, o chain.Outcome) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.outcomes = append(w.outcomes, strings.TrimSpace(fmt.Sprintf("%s %s %s", o.Verdict, o.Phase, o.By)))
		},
	}
}

// told is what Delivered was called with.
func (w *witness) told() []bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.delivered)
}

func describe(a chain.Answer) string {
	if a.Kind == chain.Answered {
		return string(a.Kind) + " " + string(a.Result) + string(a.Error)
	}
	return string(a.Kind)
}

func (w *witness) want(t testing.TB, settled []string, outcome string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(settled, w.settled); diff != "" {
		t.Errorf("settled (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{outcome}, w.outcomes); diff != "" {
		t.Errorf("outcomes (-want +got)\n%s", diff)
	}
	for _, err := range w.ctxErrs {
		if err != nil {
			t.Errorf("settled under a context that had ended: %v", err)
		}
	}
}

func answers(result string) chain.Upstream {
	return func(context.Context, json.RawMessage) chain.Answer {
		return chain.Answer{Kind: chain.Answered, Result: raw(result)}
	}
}

func wantError(t testing.TB, r *chain.Reply, code int64, message string) {
	t.Helper()
	var e struct {
		Code    int64
		Message string
	}
	if r.Result != nil || json.Unmarshal(r.Error, &e) != nil || e.Code != code || e.Message != message {
		t.Errorf("reply result %s, error %s; want %d %q", r.Result, r.Error, code, message)
	}
}

// directed is a mutator that leaves a dispatch directive.
func directed(name, directive string, mods ...mod) *interceptors.Mutator {
	return mutator(name, func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
		if in.Phase == interceptors.PhaseResponse {
			return nil, nil
		}
		return &interceptors.Change{Info: raw(`{"dev.undolog/dispatch":` + directive + `}`)}, nil
	}, mods...)
}

var request = &chain.Request{Event: call, Params: raw(hi)}

func TestDo_HappyPath(t *testing.T) {
	var w witness
	var calls seen
	c := newChain(t, &chain.Options{Observer: w.observer()},
		mutator("tag", noting(&calls, "tag", appendTag("t"))), validator("v", notingJudge(&calls, "v", allowAll)))
	var sent string
	req := &chain.Request{
		Event: call, Params: raw(`{"id":9007199254740993}`), SessionID: "s1", TraceID: "t1", SpanID: "p1",
		Principal:  &interceptors.Principal{Type: "user", ID: "alice"},
		Attributes: map[string]json.RawMessage{"acme/h": raw(`"v"`), chain.ExchangeKey: raw(`"forged"`)},
	}
	reply := c.Do(t.Context(), req, func(_ context.Context, params json.RawMessage) chain.Answer {
		sent = string(params)
		return chain.Answer{Kind: chain.Answered, Result: raw(`{"n":1915883588174806058}`)}
	})
	if sent != `{"id":9007199254740993,"trace":["t"]}` {
		t.Errorf("sent %s", sent)
	}
	if string(reply.Result) != `{"n":1915883588174806058,"trace":["t"]}` || reply.Error != nil {
		t.Errorf("reply %s, error %s", reply.Result, reply.Error)
	}
	w.want(t, []string{`answered {"n":1915883588174806058}`}, "allowed response")
	if got := string(w.exchanges[0].Params); got != sent {
		t.Errorf("Exchange.Params = %s", got)
	}
	ids := map[string]bool{}
	for _, in := range append(calls.contexts["tag"], calls.contexts["v"]...) {
		ids[string(in.Extra[chain.ExchangeKey])] = true
		if in.SessionID != "s1" || in.TraceID != "t1" || in.SpanID != "p1" || in.Principal.ID != "alice" ||
			string(in.Extra["acme/h"]) != `"v"` || in.Timestamp == "" {
			t.Errorf("context %+v", in)
		}
	}
	if len(ids) != 1 || !ids[`"`+w.exchanges[0].ID+`"`] {
		t.Errorf("exchange ids %v, want %s only", ids, w.exchanges[0].ID)
	}
	reply.Delivered(true)
	reply.Delivered(false)
	if diff := cmp.Diff([]bool{true}, w.told()); diff != "" {
		t.Errorf("delivered (-want +got)\n%s", diff)
	}
}

func TestDo_AbsentParams(t *testing.T) {
	var calls seen
	c := newChain(t, nil, validator("v", notingJudge(&calls, "v", allowAll)))
	c.Do(t.Context(), &chain.Request{Event: "tools/list"}, func(_ context.Context, params json.RawMessage) chain.Answer {
		if params != nil {
			t.Errorf("absent params became %s", params)
		}
		return answers(`{}`)(t.Context(), params)
	})
	if got := calls.of("v")[0]; got != `{}` {
		t.Errorf("the validator saw %s", got)
	}
}

func TestDo_SettlesEveryEnd(t *testing.T) {
	lost := chain.Answer{Kind: chain.Lost, Cause: errors.New("pipe broke")}
	tests := []struct {
		name    string
		all     []interceptors.Interceptor
		up      chain.Upstream
		settled []string
		outcome string
		code    int64
		message string
	}{
		{"an error answer, on which no response phase runs",
			[]interceptors.Interceptor{validator("v", denyAll, hooks(on(interceptors.PhaseResponse, "*")))},
			func(context.Context, json.RawMessage) chain.Answer {
				return chain.Answer{Kind: chain.Answered, Error: raw(`{"code":-32050,"message":"no funds"}`)}
			},
			[]string{`answered {"code":-32050,"message":"no funds"}`}, "allowed response", -32050, "no funds"},
		{"a lost answer", nil, func(context.Context, json.RawMessage) chain.Answer { return lost },
			[]string{"lost"}, "failed request", -32603, "No answer from the target"},
		{"proof that nothing was sent", nil,
			func(context.Context, json.RawMessage) chain.Answer { return chain.Answer{Kind: chain.Unsent} },
			[]string{"unsent"}, "failed request", -32603, "The request was not sent"},
		{"a panic of the upstream", nil, func(context.Context, json.RawMessage) chain.Answer { panic("boom") },
			[]string{"lost"}, "failed request", -32603, "No answer from the target"},
		{"an answer that is none", nil, func(context.Context, json.RawMessage) chain.Answer { return chain.Answer{} },
			[]string{"lost"}, "failed request", -32603, "No answer from the target"},
		{"a denial before the dispatch", []interceptors.Interceptor{validator("v", denyAll)}, nil,
			[]string{"unsent"}, "blocked request v", -32602, "Interceptor validation failed"},
		{"a mutator's crash after another had begun", []interceptors.Interceptor{mutator("claim", appendTag("c")), mutator("later", crash)}, nil,
			[]string{"unsent"}, "failed request later", -32603, "Interceptor mutation failed"},
		{"a validator's crash", []interceptors.Interceptor{validator("v", crashJudge)}, nil,
			[]string{"unsent"}, "failed request v", -32603, "Interceptor execution failed"},
		{"a denial of the answer", []interceptors.Interceptor{validator("v", denyAll, hooks(on(interceptors.PhaseResponse, "*")))},
			answers(`{"content":[],"isError":true}`),
			[]string{`answered {"content":[],"isError":true}`}, "blocked response v", -32602, "Interceptor validation failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w witness
			c := newChain(t, &chain.Options{Observer: w.observer()}, tt.all...)
			reply := c.Do(t.Context(), request, func(ctx context.Context, params json.RawMessage) chain.Answer {
				if tt.up == nil {
					t.Error("dispatched after the abort")
					return chain.Answer{}
				}
				return tt.up(ctx, params)
			})
			w.want(t, tt.settled, tt.outcome)
			wantError(t, reply, tt.code, tt.message)
			if strings.Contains(string(reply.Error), "swordfish") || strings.Contains(string(reply.Error), "kaboom") {
				t.Errorf("the requester is told %s", reply.Error)
			}
		})
	}
	t.Run("a caller who had left before", func(t *testing.T) {
		var w witness
		c := newChain(t, &chain.Options{Observer: w.observer()})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.Do(ctx, request, func(context.Context, json.RawMessage) chain.Answer {
			t.Error("dispatched")
			return chain.Answer{}
		})
		w.want(t, []string{"unsent"}, "failed request")
	})
	t.Run("a caller who leaves cancels what is not detached", func(t *testing.T) {
		var w witness
		c := newChain(t, &chain.Options{Observer: w.observer()})
		ctx, cancel := context.WithCancel(t.Context())
		c.Do(ctx, request, func(ctx context.Context, _ json.RawMessage) chain.Answer {
			cancel()
			<-ctx.Done()
			return chain.Answer{Kind: chain.Lost, Cause: ctx.Err()}
		})
		w.want(t, []string{"lost"}, "failed request")
	})
	t.Run("an interceptor that was given up on is settled again when it returns", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var w witness
			release := make(chan struct{})
			c := newChain(t, &chain.Options{Observer: w.observer(), Deadline: time.Second},
				mutator("claim", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
					<-release
					return nil, nil
				}))
			wantError(t, c.Do(t.Context(), request, nil), -32603, "Interceptor execution timeout")
			w.want(t, []string{"unsent"}, "failed request claim")
			close(release)
			synctest.Wait()
			w.want(t, []string{"unsent", "unsent"}, "failed request claim")
		})
	})
	t.Run("an observer that panics stops nothing", func(t *testing.T) {
		c := newChain(t, &chain.Options{Observer: chain.Observer{
			Settled: func(context.Context, *chain.Exchange, chain.Answer) { panic("observer") },
			Outcome: func(context.Context, *chain.Exchange, chain.Outcome) { panic("observer") },
		}})
		if reply := c.Do(t.Context(), request, answers(`{}`)); string(reply.Result) != `{}` {
			t.Errorf("reply %+v", reply)
		}
	})
}

func TestDo_Detached(t *testing.T) {
	t.Run("the caller leaves, the answer is awaited and settled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var w witness
			c := newChain(t, &chain.Options{Observer: w.observer()}, directed("d", `{"detach":true}`))
			ctx, cancel := context.WithCancel(t.Context())
			reply := c.Do(ctx, request, func(ctx context.Context, _ json.RawMessage) chain.Answer {
				cancel()
				time.Sleep(time.Minute)
				if ctx.Err() != nil {
					return chain.Answer{Kind: chain.Lost, Cause: ctx.Err()}
				}
				return chain.Answer{Kind: chain.Answered, Result: raw(`{"late":1}`)}
			})
			wantError(t, reply, -32603, "The request was cancelled")
			w.want(t, nil, "detached request")
			reply.Delivered(true)
			if len(w.told()) != 0 {
				t.Error("delivery was told before the settle")
			}
			if err := c.Wait(t.Context()); err != nil {
				t.Fatalf("Wait: %v", err)
			}
			w.want(t, []string{`answered {"late":1}`}, "detached request")
			if diff := cmp.Diff([]bool{false}, w.told()); diff != "" {
				t.Errorf("delivered (-want +got)\n%s", diff)
			}
		})
	})
	t.Run("the timeout goes on without the caller, and a late answer is settled after it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var w witness
			c := newChain(t, &chain.Options{Observer: w.observer()}, directed("d", `{"detach":true,"timeoutMs":30000}`))
			ctx, cancel := context.WithCancel(t.Context())
			c.Do(ctx, request, func(context.Context, json.RawMessage) chain.Answer {
				cancel()
				time.Sleep(time.Minute)
				return chain.Answer{Kind: chain.Answered, Result: raw(`{}`)}
			})
			if err := c.Wait(t.Context()); err != nil {
				t.Fatalf("Wait: %v", err)
			}
			w.want(t, []string{"lost", "answered {}"}, "detached request")
		})
	})
	t.Run("Drain cancels what does not end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var w witness
			c := newChain(t, &chain.Options{Observer: w.observer()}, directed("d", `{"detach":true}`))
			ctx, cancel := context.WithCancel(t.Context())
			c.Do(ctx, request, func(ctx context.Context, _ json.RawMessage) chain.Answer {
				cancel()
				<-ctx.Done()
				return chain.Answer{Kind: chain.Lost, Cause: context.Cause(ctx)}
			})
			limit, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			if err := c.Drain(limit); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Drain = %v", err)
			}
			w.want(t, []string{"lost"}, "detached request")
		})
	})
	t.Run("a directive from a host that is not trusted is not followed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var w witness
			c := newChain(t, &chain.Options{Observer: w.observer()})
			use(t, c, answering("m", interceptors.TypeValidation, &interceptors.Result{
				Valid: true, Info: raw(`{"dev.undolog/dispatch":{"detach":true}}`)}), nil)
			ctx, cancel := context.WithCancel(t.Context())
			c.Do(ctx, request, func(ctx context.Context, _ json.RawMessage) chain.Answer {
				cancel()
				<-ctx.Done()
				return chain.Answer{Kind: chain.Lost}
			})
			w.want(t, []string{"lost"}, "failed request")
		})
	})
}

func TestExecute_Dispatch(t *testing.T) {
	for directive, want := range map[string]chain.Dispatch{
		`{"detach":true,"timeoutMs":250}`:              {Detach: true, TimeoutMs: 250},
		`{ "timeoutMs" : 250 }`:                        {TimeoutMs: 250},
		`{"detach":false,"acme/x":{},"timeoutMs":250}`: {TimeoutMs: 250},
		`{"detach":true,"timeoutMs":"250"}`:            {},
		`{"detach":1}`:                                 {},
		`{"timeoutMs":1.5}`:                            {},
		`{}`:                                           {},
		`true`:                                         {},
	} {
		r := execute(t, newChain(t, nil, directed("m", directive)), chain.Receiving, hi)
		if diff := cmp.Diff(want, r.Dispatch); diff != "" {
			t.Errorf("%s (-want +got)\n%s", directive, diff)
		}
	}
}

func TestDo_Timeout(t *testing.T) {
	explain := func(w *witness) chain.Observer {
		o := w.observer()
		o.Explain = func(_ context.Context, _ *chain.Exchange, a chain.Answer) *interceptors.BlockError {
			if !errors.Is(a.Cause, chain.ErrTimeout) {
				return nil
			}
			return &interceptors.BlockError{Message: "in doubt: e1", Data: raw(`{"acme/effect":{"id":"e1"}}`)}
		}
		return o
	}
	slow := func(context.Context, json.RawMessage) chain.Answer {
		time.Sleep(time.Minute)
		return chain.Answer{Kind: chain.Answered, Result: raw(`{}`)}
	}
	t.Run("the caller is told, and the late answer is settled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var w witness
			c := newChain(t, &chain.Options{Observer: w.observer()}, directed("d", `{"detach":true,"timeoutMs":1000}`))
			reply := c.Do(t.Context(), request, slow)
			if string(reply.Error) != `{"code":-32603,"message":"No answer from the target","data":{"reason":"timeout"}}` {
				t.Errorf("error %s", reply.Error)
			}
			w.want(t, []string{"lost"}, "failed request")
			reply.Delivered(true)
			if len(w.told()) != 0 {
				t.Error("delivery was told before the last settle")
			}
			if err := c.Wait(t.Context()); err != nil {
				t.Fatalf("Wait: %v", err)
			}
			w.want(t, []string{"lost", "answered {}"}, "failed request")
			if diff := cmp.Diff([]bool{false}, w.told()); diff != "" {
				t.Errorf("delivered (-want +got)\n%s", diff)
			}
		})
	})
	t.Run("the shortest of several counts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(t, nil, directed("a", `{"timeoutMs":9000}`), directed("b", `{"timeoutMs":1000}`), directed("c", `{}`))
			started := time.Now()
			c.Do(t.Context(), request, slow)
			if took := time.Since(started); took != time.Second {
				t.Errorf("took %v", took)
			}
			_ = c.Wait(t.Context())
		})
	})
	t.Run("an observer may explain it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var w witness
			c := newChain(t, &chain.Options{Observer: explain(&w)}, directed("d", `{"timeoutMs":1000}`))
			reply := c.Do(t.Context(), request, slow)
			if string(reply.Error) != `{"code":-32603,"message":"in doubt: e1","data":{"acme/effect":{"id":"e1"}}}` {
				t.Errorf("error %s", reply.Error)
			}
			_ = c.Wait(t.Context())
		})
	})
	t.Run("what is not detached is cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var w witness
			c := newChain(t, &chain.Options{Observer: w.observer()}, directed("d", `{"timeoutMs":1000}`))
			c.Do(t.Context(), request, func(ctx context.Context, _ json.RawMessage) chain.Answer {
				<-ctx.Done()
				return chain.Answer{Kind: chain.Lost}
			})
			if err := c.Wait(t.Context()); err != nil {
				t.Errorf("Wait: %v", err)
			}
			w.want(t, []string{"lost"}, "failed request")
		})
	})
}

func TestDo_UngovernedGoesStraightToTheTarget(t *testing.T) {
	var w witness
	c := newChain(t, &chain.Options{Observer: w.observer()}, validator("v", denyAll))
	reply := c.Do(t.Context(), &chain.Request{Event: "ping"}, answers(`{}`))
	reply.Delivered(true)
	if string(reply.Result) != `{}` || len(w.settled)+len(w.outcomes)+len(w.delivered) != 0 {
		t.Errorf("reply %s, told %+v", reply.Result, &w)
	}
}

func TestDo_EveryExchangeHasItsOwnID(t *testing.T) {
	var w witness
	c := newChain(t, &chain.Options{Observer: w.observer()})
	for range 3 {
		c.Do(t.Context(), request, answers(`{}`))
	}
	if a, b, d := w.exchanges[0].ID, w.exchanges[1].ID, w.exchanges[2].ID; a == b || b == d || a == d {
		t.Errorf("ids %s %s %s", a, b, d)
	}
}
