package chain_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

func TestDo_Respond(t *testing.T) {
	respond := func(e interceptors.RespondError) change {
		return func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
			if in.Phase == interceptors.PhaseResponse {
				return nil, nil
			}
			return nil, &e
		}
	}
	recordedResult := interceptors.RespondError{Result: raw(`{"n":9007199254740993}`)}
	never := func(context.Context, json.RawMessage) chain.Answer { panic("dispatched") }
	t.Run("takes the target's place; the response phase goes on", func(t *testing.T) {
		var w witness
		c := newChain(t, &chain.Options{Observer: w.observer()},
			mutator("replay", respond(recordedResult)),
			mutator("redact", appendTag("r"), hooks(on(interceptors.PhaseResponse, "*"))))
		reply := c.Do(t.Context(), request, never)
		if string(reply.Result) != `{"n":9007199254740993,"trace":["r"]}` {
			t.Errorf("result %s, error %s", reply.Result, reply.Error)
		}
		w.want(t, nil, "responded request replay")
		reply.Delivered(true)
		if diff := cmp.Diff([]bool{true}, w.told()); diff != "" {
			t.Errorf("delivered (-want +got)\n%s", diff)
		}
	})
	t.Run("a recorded error is passed on", func(t *testing.T) {
		var w witness
		c := newChain(t, &chain.Options{Observer: w.observer()},
			mutator("replay", respond(interceptors.RespondError{Err: raw(`{"code":-32050,"message":"no funds"}`)})),
			validator("v", denyAll, hooks(on(interceptors.PhaseResponse, "*"))))
		wantError(t, c.Do(t.Context(), request, never), -32050, "no funds")
		w.want(t, nil, "responded request replay")
	})
	t.Run("a response check can still stop it", func(t *testing.T) {
		var w witness
		c := newChain(t, &chain.Options{Observer: w.observer()}, mutator("replay", respond(recordedResult)),
			validator("v", denyAll, hooks(on(interceptors.PhaseResponse, "*"))))
		wantError(t, c.Do(t.Context(), request, never), -32602, "Interceptor validation failed")
		w.want(t, nil, "blocked response v")
	})
	t.Run("a request check that comes after it can stop it", func(t *testing.T) {
		var w witness
		c := newChain(t, &chain.Options{Observer: w.observer(), Posture: chain.PostureClient},
			mutator("replay", respond(recordedResult)), validator("v", denyAll, hooks(on(interceptors.PhaseRequest, "*"))))
		wantError(t, c.Do(t.Context(), request, never), -32602, "Interceptor validation failed")
		w.want(t, []string{"unsent"}, "blocked request v")
	})
	t.Run("in audit mode it is a failure that is recorded", func(t *testing.T) {
		c := newChain(t, nil, mutator("replay", respond(recordedResult), audit))
		if reply := c.Do(t.Context(), request, answers(`{"fresh":1}`)); string(reply.Result) != `{"fresh":1}` {
			t.Errorf("result %s, error %s", reply.Result, reply.Error)
		}
	})
	t.Run("from a host that is not trusted it blocks", func(t *testing.T) {
		host := answering("replay", interceptors.TypeMutation, nil)
		host.invoke = func(context.Context, *interceptors.InvokeParams) (*interceptors.Result, error) {
			return nil, &recordedResult
		}
		var w witness
		c := newChain(t, &chain.Options{Observer: w.observer()})
		use(t, c, host, nil)
		wantError(t, c.Do(t.Context(), request, never), -32603, "Interceptor mutation failed")
		w.want(t, []string{"unsent"}, "failed request replay")
	})
}

func TestDo_Block(t *testing.T) {
	block := &interceptors.BlockError{Code: -31001, Message: "ask a person", Data: raw(`{"acme/why":"x"}`)}
	blocking := func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) { return nil, block }
	blockingJudge := func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) { return nil, block }
	tests := []struct {
		name string
		in   interceptors.Interceptor
	}{
		{"a mutator's words reach the requester", mutator("b", blocking)},
		{"a validator's too", validator("b", blockingJudge)},
		{"failOpen does not turn it into a pass", mutator("b", blocking, failOpen)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w witness
			reply := newChain(t, &chain.Options{Observer: w.observer()}, tt.in).Do(t.Context(), request, nil)
			if string(reply.Error) != `{"code":-31001,"message":"ask a person","data":{"acme/why":"x"}}` {
				t.Errorf("error %s", reply.Error)
			}
			w.want(t, []string{"unsent"}, "blocked request b")
			reply.Delivered(true)
			if diff := cmp.Diff([]bool{false}, w.told()); diff != "" {
				t.Errorf("delivered (-want +got)\n%s", diff)
			}
		})
	}
	t.Run("an untrusted host's words do not", func(t *testing.T) {
		host := answering("b", interceptors.TypeValidation, nil)
		host.invoke = func(context.Context, *interceptors.InvokeParams) (*interceptors.Result, error) { return nil, block }
		c := newChain(t, nil)
		use(t, c, host, nil)
		wantError(t, c.Do(t.Context(), request, nil), -32603, "Interceptor execution failed")
	})
}
