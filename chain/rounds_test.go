package chain_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

const asks = `{"resultType":"input_required","inputRequests":{"b":{"method":"elicitation/create","params":{"message":"who","mode":"form"}},` +
	`"a":{"method":"sampling/createMessage","params":{"maxTokens":9007199254740993}}},"requestState":"theirs"}`

// asking is a target that asks first and keeps what it is told.
func asking(told *[]string) chain.Upstream {
	return func(_ context.Context, params json.RawMessage) chain.Answer {
		*told = append(*told, string(params))
		if splice.Get(params, "inputResponses") != nil {
			return chain.Answer{Kind: chain.Answered, Result: raw(`{"content":[]}`)}
		}
		return chain.Answer{Kind: chain.Answered, Result: raw(asks)}
	}
}

func toolRequest(params string) *chain.Request {
	return &chain.Request{Event: call, Params: raw(params), Protocol: "2026-07-28",
		Principal: &interceptors.Principal{Type: "user", ID: "alice"}}
}

const elicit, sample = "elicitation/create", "sampling/createMessage"

func TestDo_QuestionsInsideAnAnswerAreGoverned(t *testing.T) {
	t.Run("each is a request of the server's, in order, under its key", func(t *testing.T) {
		var calls seen
		c := newChain(t, &chain.Options{Posture: chain.PostureGateway},
			validator("pii", notingJudge(&calls, "pii", allowAll), hooks(on(interceptors.PhaseRequest, elicit, sample))),
			mutator("tag", appendTag("x"), hooks(on(interceptors.PhaseRequest, elicit))))
		var told []string
		reply := c.Do(t.Context(), toolRequest(`{"name":"t"}`), asking(&told))
		want := strings.Replace(asks, `"mode":"form"}`, `"mode":"form","trace":["x"]}`, 1)
		if diff := cmp.Diff(want, string(reply.Result)); diff != "" {
			t.Errorf("result (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff([]string{`{"message":"who","mode":"form","trace":["x"]}`, `{"maxTokens":9007199254740993}`}, calls.of("pii")); diff != "" {
			t.Errorf("toward the agent a question is sent, so mutated first: it was shown (-want +got)\n%s", diff)
		}
	})
	t.Run("one that is denied blocks the whole answer", func(t *testing.T) {
		c := newChain(t, nil, validator("pii", denyAll, hooks(on(interceptors.PhaseRequest, elicit))))
		var told []string
		reply := c.Do(t.Context(), toolRequest(`{"name":"t"}`), asking(&told))
		if reply.Error == nil || reply.Outcome.Verdict != chain.Blocked || reply.Outcome.By != "pii" {
			t.Errorf("reply %s, outcome %+v", reply.Result, reply.Outcome)
		}
		if strings.Contains(string(reply.Error), "swordfish") {
			t.Errorf("the error tells the validator's words: %s", reply.Error)
		}
	})
	t.Run("where nobody judges answers, the state stays the target's", func(t *testing.T) {
		c := newChain(t, nil, validator("v", allowAll, hooks(on(interceptors.PhaseRequest, elicit))))
		var told []string
		reply := c.Do(t.Context(), toolRequest(`{"name":"t"}`), asking(&told))
		if string(reply.Result) != asks {
			t.Errorf("result %s", reply.Result)
		}
	})
}

// round asks, and returns the params of the request that answers with responses.
func round(t *testing.T, c *chain.Chain, told *[]string, responses string) string {
	t.Helper()
	reply := c.Do(t.Context(), toolRequest(`{"name":"t"}`), asking(told))
	state := splice.Get(reply.Result, "requestState")
	if state == nil {
		t.Fatalf("no state: %s %s", reply.Result, reply.Error)
	}
	*told = nil
	return `{"name":"t","inputResponses":` + responses + `,"requestState":` + string(state) + `}`
}

func TestDo_AnswersInsideARequestAreGoverned(t *testing.T) {
	const responses = `{"b":{"action":"accept","content":{"who":"me"}},"a":{"role":"assistant"}}`
	judge := func(f judge, calls *seen) *interceptors.Validator {
		return validator("v", notingJudge(calls, "v", f), hooks(on(interceptors.PhaseResponse, elicit)))
	}
	t.Run("the target gets its own state and the answers under their keys", func(t *testing.T) {
		var calls seen
		var told []string
		c := newChain(t, nil, judge(allowAll, &calls),
			mutator("tag", appendTag("x"), hooks(on(interceptors.PhaseResponse, sample))))
		params := round(t, c, &told, responses)
		if reply := c.Do(t.Context(), toolRequest(params), asking(&told)); reply.Error != nil {
			t.Fatalf("error %s", reply.Error)
		}
		want := `{"name":"t","inputResponses":{"b":{"action":"accept","content":{"who":"me"}},"a":{"role":"assistant","trace":["x"]}},"requestState":"theirs"}`
		if diff := cmp.Diff([]string{want}, told); diff != "" {
			t.Errorf("the target was told (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff([]string{`{"action":"accept","content":{"who":"me"}}`}, calls.of("v")); diff != "" {
			t.Errorf("the validator saw (-want +got)\n%s", diff)
		}
	})
	refusals := []struct {
		name string
		bend func(params string) *chain.Request
	}{
		{"an answer that is denied", func(p string) *chain.Request { return toolRequest(p) }},
		{"an answer to what was not asked", func(p string) *chain.Request {
			return toolRequest(strings.Replace(p, `{"b":`, `{"c":`, 1))
		}},
		{"an answer under a key that is there twice", func(p string) *chain.Request {
			return toolRequest(strings.Replace(p, `{"b":`, `{"b":{},"b":`, 1))
		}},
		{"answers that are there twice", func(p string) *chain.Request {
			return toolRequest(strings.Replace(p, `"inputResponses":`, `"inputResponses":{},"inputResponses":`, 1))
		}},
		{"answers without the state", func(p string) *chain.Request {
			return toolRequest(`{"name":"t","inputResponses":{"b":{"action":"accept"}}}`)
		}},
		{"answers under the target's bare state", func(p string) *chain.Request {
			return toolRequest(`{"name":"t","inputResponses":{"b":{"action":"accept"}},"requestState":"theirs"}`)
		}},
		{"a state that was changed", func(p string) *chain.Request {
			return toolRequest(strings.Replace(p, "undolog1.e", "undolog1.f", 1))
		}},
		{"somebody else's state", func(p string) *chain.Request {
			r := toolRequest(p)
			r.Principal.ID = "bob"
			return r
		}},
	}
	for _, tt := range refusals {
		t.Run(tt.name+" stops the request", func(t *testing.T) {
			var calls seen
			var told []string
			deny := allowAll
			if strings.Contains(tt.name, "denied") {
				deny = denyAll
			}
			c := newChain(t, nil, judge(deny, &calls))
			params := round(t, c, &told, responses)
			reply := c.Do(t.Context(), tt.bend(params), asking(&told))
			if reply.Error == nil || len(told) != 0 {
				t.Errorf("reply %s, the target was told %v", reply.Result, told)
			}
		})
	}
	t.Run("replicas with one key take each other's", func(t *testing.T) {
		var calls seen
		var told []string
		opts := &chain.Options{StateKey: []byte("shared")}
		params := round(t, newChain(t, opts, judge(allowAll, &calls)), &told, responses)
		reply := newChain(t, opts, judge(allowAll, &calls)).Do(t.Context(), toolRequest(params), asking(&told))
		if reply.Error != nil {
			t.Errorf("error %s", reply.Error)
		}
	})
}

func TestDo_ResumedTaskPassesTheResponsePhase(t *testing.T) {
	w := &witness{}
	c := newChain(t, &chain.Options{Observer: w.observer()},
		mutator("redact", appendTag("seen"), hooks(on(interceptors.PhaseResponse, call))))
	first := c.Do(t.Context(), toolRequest(`{"name":"t"}`), answers(`{"resultType":"task","taskId":"1"}`))
	reply := c.Resume(t.Context(), first.Exchange(), chain.Answer{Kind: chain.Answered, Result: raw(`{"content":[]}`)})
	if want := `{"content":[],"trace":["seen"]}`; string(reply.Result) != want {
		t.Errorf("result %s, want %s", reply.Result, want)
	}
	if n := len(w.settled); n != 2 {
		t.Errorf("settled %d times, want once for the handle and once for the result", n)
	}
}

func TestDo_ListThatMutatorsSawIsPrivate(t *testing.T) {
	list := func(protocol, result string, all ...interceptors.Interceptor) string {
		c := newChain(t, nil, all...)
		reply := c.Do(t.Context(), &chain.Request{Event: "tools/list", Protocol: protocol}, answers(result))
		return string(reply.Result)
	}
	filter := mutator("filter", unchanged)
	tests := []struct{ name, got, want string }{
		{"public becomes private", list("2026-07-28", `{"tools":[],"cacheScope":"public"}`, filter), `{"tools":[],"cacheScope":"private"}`},
		{"unsaid becomes private", list("2026-07-28", `{"tools":[]}`, filter), `{"tools":[],"cacheScope":"private"}`},
		{"older revisions do not know it", list("2025-11-25", `{"tools":[]}`, filter), `{"tools":[]}`},
		{"validators change nothing", list("2026-07-28", `{"tools":[],"cacheScope":"public"}`, validator("v", allowAll)), `{"tools":[],"cacheScope":"public"}`},
		{"nor do mutators in audit mode", list("2026-07-28", `{"cacheScope":"public"}`, mutator("m", unchanged, audit)), `{"cacheScope":"public"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.got); diff != "" {
				t.Errorf("result (-want +got)\n%s", diff)
			}
		})
	}
}
