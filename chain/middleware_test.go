package chain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

// bench is a server with one tool behind a chain, and what the tool was called with.
type bench struct {
	session *mcp.ClientSession
	calls   []*mcp.CallToolParamsRaw
}

func serve(t testing.TB, protocol string, c *chain.Chain, opts *chain.MiddlewareOptions, tool mcp.ToolHandler) *bench {
	t.Helper()
	b := &bench{}
	s := mcp.NewServer(implementation, nil)
	s.AddTool(&mcp.Tool{Name: "pay", InputSchema: raw(`{"type":"object"}`)},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			b.calls = append(b.calls, req.Params)
			if tool == nil {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "paid"}}}, nil
			}
			return tool(ctx, req)
		})
	s.AddReceivingMiddleware(c.Middleware(opts))
	b.session = connect(t, s, mcp.NewClient(implementation, nil), protocol)
	return b
}

func (b *bench) call(t testing.TB, arguments string) (*mcp.CallToolResult, error) {
	t.Helper()
	return b.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "pay", Arguments: raw(arguments)})
}

func eachProtocol(t *testing.T, f func(t *testing.T, protocol string)) {
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) { f(t, p) })
	}
}

func TestMiddleware_ChangedRequest(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		drop := mutator("drop", func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(`{"name":"pay","arguments":{"id":9007199254740993}}`)}, nil
		}, hooks(on(interceptors.PhaseRequest, call)))
		b := serve(t, protocol, newChain(t, nil, drop), nil, nil)
		res, err := b.session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "pay", Arguments: raw(`{"ssn":"123","id":1}`), Meta: mcp.Meta{"acme/secret": "s", "progressToken": "p1"}})
		if err != nil {
			t.Fatalf("CallTool: %v", err)
		}
		if len(b.calls) != 1 || string(b.calls[0].Arguments) != `{"id":9007199254740993}` {
			t.Fatalf("the tool got %+v", b.calls)
		}
		meta := b.calls[0].Meta
		if _, ok := meta["acme/secret"]; ok || meta["progressToken"] != "p1" {
			t.Errorf("_meta = %v", meta)
		}
		if text := res.Content[0].(*mcp.TextContent).Text; text != "paid" {
			t.Errorf("result %q", text)
		}
	})
}

func TestMiddleware_ArgumentsThatAreTakenOutStayOut(t *testing.T) {
	drop := mutator("drop", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
		return &interceptors.Change{Payload: raw(`{"name":"pay","Arguments":{"smuggled":true}}`)}, nil
	}, hooks(on(interceptors.PhaseRequest, call)))
	b := serve(t, "2025-11-25", newChain(t, nil, drop), nil, nil)
	if _, err := b.call(t, `{"ssn":"123"}`); err != nil {
		t.Fatalf("CallTool: %v", err)
	}
	if got := string(b.calls[0].Arguments); got != "" && got != "{}" {
		t.Errorf("the tool got %s", got)
	}
}

func TestMiddleware_RecordedResult(t *testing.T) {
	const recorded = `{"content":[{"type":"text","text":"as it was"}],"structuredContent":{"n":9007199254740993},"_meta":{"acme/replayed":true},"acmeUnknown":1}`
	eachProtocol(t, func(t *testing.T, protocol string) {
		replay := mutator("replay", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return nil, &interceptors.RespondError{Result: raw(recorded)}
		}, hooks(on(interceptors.PhaseRequest, call)))
		var wire wireTap
		b := &bench{}
		s := mcp.NewServer(implementation, nil)
		s.AddTool(&mcp.Tool{Name: "pay", InputSchema: raw(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			t.Error("dispatched")
			return nil, errors.New("dispatched")
		})
		s.AddReceivingMiddleware(newChain(t, nil, replay).Middleware(nil))
		b.session = wire.connect(t, s, protocol)
		res, err := b.call(t, `{}`)
		if err != nil {
			t.Fatalf("CallTool: %v", err)
		}
		if res.Content[0].(*mcp.TextContent).Text != "as it was" || res.Meta["acme/replayed"] != true {
			t.Errorf("result %+v", res)
		}
		got := wire.lastResult(t)
		if !strings.Contains(got, `"n":9007199254740993`) || !strings.Contains(got, `"acmeUnknown":1`) {
			t.Errorf("on the wire: %s", got)
		}
		if has := strings.Contains(got, `"resultType":"complete"`); has != (protocol >= "2026-07-28") {
			t.Errorf("resultType on the wire of %s: %s", protocol, got)
		}
	})
}

func TestMiddleware_ChangedResponse(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		redact := mutator("redact", func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(strings.ReplaceAll(string(in.Payload), "paid", "****"))}, nil
		}, hooks(on(interceptors.PhaseResponse, call)))
		b := serve(t, protocol, newChain(t, nil, redact), nil, nil)
		res, err := b.call(t, `{}`)
		if err != nil || res.Content[0].(*mcp.TextContent).Text != "****" {
			t.Errorf("result %+v, error %v", res, err)
		}
	})
}

func TestMiddleware_Errors(t *testing.T) {
	tests := []struct {
		name    string
		tool    mcp.ToolHandler
		all     []interceptors.Interceptor
		code    int64
		message string
		data    string
		settled string
	}{
		{name: "a denial", all: []interceptors.Interceptor{validator("v", denyAll)},
			code: -32602, message: "Interceptor validation failed", data: `{"reason":"denied","phase":"request"}`, settled: "unsent"},
		{name: "an error of the tool keeps its data", tool: func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: -32050, Message: "no funds", Data: raw(`{"balance":9007199254740993}`)}
		}, code: -32050, message: "no funds", data: `{"balance":9007199254740993}`, settled: "answered"},
		{name: "an error without a code is internal", tool: func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, errors.New("disk full")
		}, code: -32603, message: "disk full", settled: "answered"},
		{name: "an error that is a context's end is no answer", tool: func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, fmt.Errorf("call bank: %w", context.DeadlineExceeded)
		}, code: -32603, message: "No answer from the target", data: `{"reason":"lost"}`, settled: "lost"},
		{name: "a panic of the tool is no answer", tool: func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			panic("boom")
		}, code: -32603, message: "No answer from the target", data: `{"reason":"lost"}`, settled: "lost"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w witness
			b := serve(t, "2025-11-25", newChain(t, &chain.Options{Observer: onlyCalls(w.observer())}, tt.all...), nil, tt.tool)
			_, err := b.call(t, `{}`)
			var wire *jsonrpc.Error
			if !errors.As(err, &wire) {
				t.Fatalf("error %v", err)
			}
			got := fmt.Sprintf("%d %s %s", wire.Code, wire.Message, wire.Data)
			if diff := cmp.Diff(fmt.Sprintf("%d %s %s", tt.code, tt.message, tt.data), got); diff != "" {
				t.Errorf("error (-want +got)\n%s", diff)
			}
			if len(w.settled) != 1 || !strings.HasPrefix(w.settled[0], tt.settled) {
				t.Errorf("settled %v, want %s", w.settled, tt.settled)
			}
		})
	}
}

// onlyCalls leaves out what a client asks beside its calls.
func onlyCalls(o chain.Observer) chain.Observer {
	settled := o.Settled
	o.Settled = func(ctx context.Context, x *chain.Exchange, a chain.Answer) {
		if x.Request.Event == call {
			settled(ctx, x, a)
		}
	}
	return o
}

func TestMiddleware_TellsWhoAsks(t *testing.T) {
	var calls seen
	c := newChain(t, nil, validator("v", notingJudge(&calls, "v", allowAll), hooks(on(interceptors.PhaseRequest, call))))
	b := serve(t, "2025-11-25", c, &chain.MiddlewareOptions{
		Principal:  func(mcp.Request) *interceptors.Principal { return &interceptors.Principal{Type: "user", ID: "alice"} },
		Attributes: func(mcp.Request) map[string]json.RawMessage { return map[string]json.RawMessage{"acme/h": raw(`1`)} },
	}, nil)
	_, err := b.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "pay", Arguments: raw(`{}`),
		Meta: mcp.Meta{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}})
	if err != nil {
		t.Fatalf("CallTool: %v", err)
	}
	in := calls.contexts["v"][0]
	if in.Principal.ID != "alice" || string(in.Extra["acme/h"]) != "1" || in.TraceID != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Errorf("context %+v", in)
	}
}

func TestMiddleware_GovernsListsAndLeavesTheHandshakeAlone(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		hide := mutator("hide", func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(`{"tools":[]}`)}, nil
		}, hooks(on(interceptors.PhaseResponse, "tools/list")))
		cursor := mutator("cursor", func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(`{"acme":1}`)}, nil
		}, hooks(on(interceptors.PhaseRequest, "tools/list")))
		b := serve(t, protocol, newChain(t, nil, hide, cursor), nil, nil)
		res, err := b.session.ListTools(t.Context(), nil)
		if err != nil || len(res.Tools) != 0 {
			t.Errorf("tools %+v, error %v", res, err)
		}
	})
}

func TestMiddleware_DeliversWhereItCanTell(t *testing.T) {
	var w witness
	o := w.observer()
	delivered := o.Delivered
	o.Delivered = func(ctx context.Context, x *chain.Exchange, at time.Time, d bool) {
		if x.Request.Event == call {
			delivered(ctx, x, at, d)
		}
	}
	b := serve(t, "2025-11-25", newChain(t, &chain.Options{Observer: o}), nil, nil)
	if _, err := b.call(t, `{}`); err != nil {
		t.Fatalf("CallTool: %v", err)
	}
	if diff := cmp.Diff([]bool{true}, w.delivered); diff != "" {
		t.Errorf("delivered (-want +got)\n%s", diff)
	}
}

// wireTap keeps what a client is sent.
type wireTap struct{ log syncBuilder }

func (w *wireTap) connect(t testing.TB, s *mcp.Server, protocol string) *mcp.ClientSession {
	t.Helper()
	serverSide, clientSide := mcp.NewInMemoryTransports()
	ss, err := s.Connect(t.Context(), serverSide, nil)
	if err != nil {
		t.Fatalf("connect server: %v", err)
	}
	cs, err := mcp.NewClient(implementation, nil).Connect(t.Context(), &mcp.LoggingTransport{Transport: clientSide, Writer: &w.log},
		&mcp.ClientSessionOptions{ProtocolVersion: protocol})
	if err != nil {
		t.Fatalf("connect client: %v", err)
	}
	t.Cleanup(func() {
		_ = cs.Close()
		_ = ss.Wait()
	})
	return cs
}

// lastResult is the last message that was read.
func (w *wireTap) lastResult(t testing.TB) string {
	t.Helper()
	last := ""
	for line := range strings.Lines(w.log.String()) {
		if strings.HasPrefix(line, "read:") {
			last = line
		}
	}
	if last == "" {
		t.Fatal("nothing was read")
	}
	return last
}
