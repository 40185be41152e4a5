package interceptors_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
)

func invokeOf(name string) json.RawMessage {
	return json.RawMessage(`{"name":"` + name + `","event":"tools/call","phase":"request","payload":{"name":"echo"}}`)
}

// TestServer_Install_Plural is case H30, on every revision.
func TestServer_Install_Plural(t *testing.T) {
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			cs := connect(t, newServer(t, nil, validator("v", requestOnly("*"), allow)), revision)
			_, err := rawCall(t.Context(), cs, "interceptors/invoke", invokeOf("v"))
			wantCode(t, err, jsonrpc.CodeMethodNotFound)
			if _, err := rawCall(t.Context(), cs, interceptors.MethodInvoke, invokeOf("v")); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

func wantCode(t *testing.T, err error, code int64) *jsonrpc.Error {
	t.Helper()
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) {
		t.Fatalf("error = %v, want a JSON-RPC error %d", err, code)
	}
	if wire.Code != code {
		t.Errorf("code = %d, want %d", wire.Code, code)
	}
	return wire
}

// TestServer_Install_LegacyEnvelope is case H31.
func TestServer_Install_LegacyEnvelope(t *testing.T) {
	s := newServer(t, &interceptors.ServerOptions{LegacyEnvelope: true},
		validator("t/deny-all", requestOnly("tools/call"), deny),
		mutator("t/uppercase-note", requestOnly("tools/call"), uppercaseNote))
	cs := connect(t, s, "2025-11-25")
	cases := map[string]string{
		"t/deny-all": `{"interceptor":"t/deny-all","type":"validation","phase":"request","valid":false,"severity":"error",
			"messages":[{"message":"denied by policy","severity":"error"}],
			"validation":{"valid":false,"severity":"error","messages":[{"message":"denied by policy","severity":"error"}]}}`,
		"t/uppercase-note": `{"interceptor":"t/uppercase-note","type":"mutation","phase":"request","modified":false,"payload":{"name":"echo"},
			"mutation":{"modified":false,"payload":{"name":"echo"}}}`,
	}
	for name, want := range cases {
		got, err := rawCall(t.Context(), cs, interceptors.MethodInvoke, invokeOf(name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(canonical(t, []byte(want)), canonical(t, got, volatile...)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// TestServer_Install_LegacyTimeoutCode is case H11 with the compatibility option on.
func TestServer_Install_LegacyTimeoutCode(t *testing.T) {
	for legacy, code := range map[bool]int64{false: -32603, true: -32000} {
		s := newServer(t, &interceptors.ServerOptions{LegacyTimeoutCode: legacy},
			validator("slow", requestOnly("tools/call"),
				func(ctx context.Context, _ *interceptors.Invocation) (*interceptors.Verdict, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}))
		cs := connect(t, s, "2025-11-25")
		_, err := rawCall(t.Context(), cs, interceptors.MethodInvoke, json.RawMessage(
			`{"name":"slow","event":"tools/call","phase":"request","payload":{},"timeoutMs":20}`))
		wire := wantCode(t, err, code)
		if want := `{"interceptor":"slow","reason":"timeout","timeoutMs":20,"phase":"request"}`; string(wire.Data) != want {
			t.Errorf("data = %s, want %s", wire.Data, want)
		}
	}
}

func TestServer_Install_MalformedParamsAreNotQuoted(t *testing.T) {
	for _, revision := range revisions {
		cs := connect(t, newServer(t, nil, validator("v", requestOnly("*"), allow)), revision)
		_, err := rawCall(t.Context(), cs, interceptors.MethodInvoke,
			json.RawMessage(`{"name":{"canary":1},"event":"tools/call","phase":"request","payload":{"canary":2}}`))
		wire := wantCode(t, err, jsonrpc.CodeInvalidParams)
		if strings.Contains(wire.Message+string(wire.Data), "canary") {
			t.Errorf("%s: the error quotes the params: %s %s", revision, wire.Message, wire.Data)
		}
	}
}

func TestServer_Install_KeepsDigits(t *testing.T) {
	const payload = `{"id":9007199254740993,"n":1.0e2,"s":"<a&b>\ud83d"}`
	var seen string
	s := newServer(t, nil, mutator("m", requestOnly("tools/call"),
		func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
			seen = string(in.Payload)
			return &interceptors.Change{Payload: append(in.Payload[:len(in.Payload)-1], `,"id2":18446744073709551617}`...)}, nil
		}))
	for _, revision := range revisions {
		cs := connect(t, s, revision)
		got, err := rawCall(t.Context(), cs, interceptors.MethodInvoke,
			json.RawMessage(`{"name":"m","event":"tools/call","phase":"request","payload":`+payload+`}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, number := range []string{`9007199254740993`, `1.0e2`} {
			if !strings.Contains(seen, number) || !bytes.Contains(got, []byte(number)) {
				t.Errorf("%s: %s came as %s and went as %s", revision, number, seen, got)
			}
		}
		if !bytes.Contains(got, []byte(`18446744073709551617`)) {
			t.Errorf("%s: result is %s", revision, got)
		}
	}
}

func TestServer_Install_MethodsOfOthersAreLeftAlone(t *testing.T) {
	s := newServer(t, nil, validator("v", requestOnly("*"), allow))
	server := mcp.NewServer(&mcp.Implementation{Name: "tools"}, nil)
	server.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: 4711, Message: "mine"}
		})
	if err := s.Install(server); err != nil {
		t.Fatal(err)
	}
	theirs, ours := mcp.NewInMemoryTransports()
	ss, err := server.Connect(t.Context(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs := connectTransport(t, ours, "")
	defer ss.Wait()
	defer cs.Close()
	_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
	wantCode(t, err, 4711)
}

// TestServer_Install_Traceparent is case W16, as far as the host goes.
func TestServer_Install_Traceparent(t *testing.T) {
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	var log bytes.Buffer
	var seen interceptors.Context
	s := newServer(t, &interceptors.ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		validator("v", requestOnly("*"),
			func(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
				seen = *in.Context
				return interceptors.Allow(), nil
			}))
	cs := connect(t, s, "2025-11-25")
	_, err := rawCall(t.Context(), cs, interceptors.MethodInvoke, json.RawMessage(
		`{"name":"v","event":"tools/call","phase":"request","payload":{},"context":{"traceId":"other","sessionId":"s"},
		  "_meta":{"traceparent":"00-`+trace+`-`+span+`-01"}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := interceptors.Context{TraceID: trace, SpanID: span, SessionID: "s"}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("context (-want +got)\n%s", diff)
	}
	if !strings.Contains(log.String(), "claimed=other") {
		t.Errorf("the mismatch is not in the log: %s", &log)
	}
}

func TestServer_Install_MaxConcurrent(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	s := newServer(t, &interceptors.ServerOptions{MaxConcurrent: 1}, validator("v", requestOnly("*"),
		func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
			started <- struct{}{}
			<-release
			return interceptors.Allow(), nil
		}))
	cs := connect(t, s, "2025-11-25")
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := rawCall(t.Context(), cs, interceptors.MethodInvoke, invokeOf("v"))
			errs <- err
		}()
	}
	<-started
	if _, err := rawCall(t.Context(), cs, interceptors.MethodList, json.RawMessage(`{}`)); err != nil {
		t.Fatal(err) // both invocations are with the host by now, and lists do not wait
	}
	select {
	case <-started:
		t.Error("two invocations run at once")
	default:
	}
	release <- struct{}{}
	<-started
	release <- struct{}{}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestWireError(t *testing.T) {
	cases := map[string]struct {
		err  error
		code int64
		data string
	}{
		"a block keeps code and data": {&interceptors.BlockError{Code: 77, Message: "no", Data: json.RawMessage(`{"a":1}`)}, 77, `{"a":1}`},
		"a block has a code":          {&interceptors.BlockError{Message: "no"}, -32603, ``},
		"an answer keeps its bytes and shows its info beside it": {
			&interceptors.RespondError{Result: json.RawMessage(`{"n":1.0e2,"s":"<"}`), Info: json.RawMessage(`{"dev.undolog/effect":{"id":"e"}}`)},
			-32603, `{"dev.undolog/respond":{"result":{"n":1.0e2,"s":"<"}},"dev.undolog/effect":{"id":"e"}}`},
		"an answer can be an error": {
			&interceptors.RespondError{Err: json.RawMessage(`{"code":1}`)}, -32603, `{"dev.undolog/respond":{"error":{"code":1}}}`},
		"info cannot answer": {
			&interceptors.RespondError{Err: json.RawMessage(`{"code":1}`), Info: json.RawMessage(`{"dev.undolog/respond":{"result":{}}}`)},
			-32603, `{"dev.undolog/respond":{"error":{"code":1}}}`},
		"a handler's own JSON-RPC error is a crash like any": {
			&interceptors.CrashError{Interceptor: "i", Reason: "internal error", Err: &jsonrpc.Error{Code: 1, Message: secret}},
			-32603, `{"interceptor":"i","reason":"internal error"}`},
		"any other error says nothing": {errors.New(secret), -32603, ``},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := interceptors.WireError(c.err)
			if w.Code != c.code || string(w.Data) != c.data {
				t.Errorf("WireError = %d %s, want %d %s", w.Code, w.Data, c.code, c.data)
			}
			if strings.Contains(w.Message, "canary") {
				t.Errorf("message = %q", w.Message)
			}
		})
	}
}
