package chain_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

// conversation is a session in which the client answers what the server asks.
type conversation struct {
	server *mcp.ServerSession
	client *mcp.ClientSession
	asked  []*mcp.ElicitParams
}

// converse connects both ends up to 2025-11-25, where servers ask by requests of their own. prepare adds
// middleware.
func converse(t *testing.T, prepare func(s *mcp.Server, c *mcp.Client)) *conversation {
	t.Helper()
	talk := &conversation{}
	s := mcp.NewServer(implementation, nil)
	s.AddTool(&mcp.Tool{Name: "pay", InputSchema: raw(`{"type":"object"}`)},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(req.Params.Arguments)}}}, nil
		})
	c := mcp.NewClient(implementation, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			talk.asked = append(talk.asked, req.Params)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"secret": "s"}}, nil
		},
	})
	prepare(s, c)
	st, ct := mcp.NewInMemoryTransports()
	var err error
	if talk.server, err = s.Connect(t.Context(), st, nil); err != nil {
		t.Fatal(err)
	}
	if talk.client, err = c.Connect(t.Context(), ct, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { talk.client.Close(); talk.server.Wait() })
	return talk
}

func (c *conversation) elicit(t *testing.T) (*mcp.ElicitResult, error) {
	t.Helper()
	return c.server.Elicit(t.Context(), &mcp.ElicitParams{Message: "who?"})
}

func TestMiddleware_WhatAServerAsksIsGoverned(t *testing.T) {
	rewrite := func(phase interceptors.Phase, to string) *interceptors.Mutator {
		return mutator("rewrite", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(to)}, nil
		}, hooks(on(phase, elicit)))
	}
	sides := map[string]struct {
		posture chain.Posture
		first   string // of a request's pass
		prepare func(c *chain.Chain) func(*mcp.Server, *mcp.Client)
	}{
		"by the server that sends": {chain.PostureServer, "rewrite", func(c *chain.Chain) func(*mcp.Server, *mcp.Client) {
			return func(s *mcp.Server, _ *mcp.Client) { s.AddSendingMiddleware(c.SendingMiddleware(nil)) }
		}},
		"by the client that receives": {chain.PostureClient, "v", func(c *chain.Chain) func(*mcp.Server, *mcp.Client) {
			return func(_ *mcp.Server, cl *mcp.Client) { cl.AddReceivingMiddleware(c.Middleware(nil)) }
		}},
	}
	for name, side := range sides {
		t.Run(name, func(t *testing.T) {
			t.Run("a changed question and a changed answer arrive as changed", func(t *testing.T) {
				var calls seen
				c := newChain(t, &chain.Options{Posture: side.posture},
					rewrite(interceptors.PhaseRequest, `{"message":"what?","mode":"form"}`),
					validator("v", notingJudge(&calls, "v", allowAll), hooks(on(interceptors.PhaseRequest, elicit))),
					mutator("redact", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
						return &interceptors.Change{Payload: raw(`{"action":"accept","content":{"secret":"gone"}}`)}, nil
					}, hooks(on(interceptors.PhaseResponse, elicit))))
				talk := converse(t, side.prepare(c))
				res, err := talk.elicit(t)
				if err != nil {
					t.Fatal(err)
				}
				if len(talk.asked) != 1 || talk.asked[0].Message != "what?" {
					t.Errorf("the client was asked %+v", talk.asked)
				}
				if diff := cmp.Diff(map[string]any{"secret": "gone"}, res.Content); diff != "" {
					t.Errorf("content (-want +got)\n%s", diff)
				}
				mutatedFirst := noteMessage(calls.of("v")[0]) == "what?"
				if mutatedFirst != (side.first == "rewrite") {
					t.Errorf("the validator saw %s", calls.of("v")[0])
				}
			})
			t.Run("a denied question is not asked", func(t *testing.T) {
				c := newChain(t, &chain.Options{Posture: side.posture}, validator("v", denyAll, hooks(on(interceptors.PhaseRequest, "elicitation/*"))))
				talk := converse(t, side.prepare(c))
				if res, err := talk.elicit(t); err == nil || len(talk.asked) != 0 {
					t.Errorf("answered %+v, asked %+v", res, talk.asked)
				}
			})
			t.Run("a denied answer does not reach the server", func(t *testing.T) {
				c := newChain(t, &chain.Options{Posture: side.posture}, validator("v", denyAll, hooks(on(interceptors.PhaseResponse, elicit))))
				talk := converse(t, side.prepare(c))
				if res, err := talk.elicit(t); err == nil {
					t.Errorf("answered %+v", res)
				}
			})
		})
	}
}

func noteMessage(payload string) string {
	var p struct{ Message string }
	_ = json.Unmarshal([]byte(payload), &p)
	return p.Message
}

// noteText is the text of a tool result, with single quotes so that it can stand in another text.
func noteText(payload json.RawMessage) string {
	var p struct{ Content []struct{ Text string } }
	_ = json.Unmarshal(payload, &p)
	return strings.ReplaceAll(p.Content[0].Text, `"`, "'")
}

func TestSendingMiddleware_ClientGovernsItsOwnCalls(t *testing.T) {
	digits := `{"id":9007199254740993}`
	c := newChain(t, &chain.Options{Posture: chain.PostureClient},
		mutator("set", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(`{"name":"pay","arguments":` + digits + `}`)}, nil
		}, hooks(on(interceptors.PhaseRequest, call))),
		mutator("redact", func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(`{"content":[{"type":"text","text":"got ` + noteText(in.Payload) + `"}]}`)}, nil
		}, hooks(on(interceptors.PhaseResponse, call))))
	talk := converse(t, func(_ *mcp.Server, cl *mcp.Client) { cl.AddSendingMiddleware(c.SendingMiddleware(nil)) })
	res, err := talk.client.CallTool(t.Context(), &mcp.CallToolParams{Name: "pay", Arguments: map[string]any{"ssn": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := res.Content[0].(*mcp.TextContent).Text, `got {'id':9007199254740993}`; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}
