package chain_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

// What a host that is not ours writes into its failures and messages may be long, and hold stacks and payloads:
// records and logs keep the beginning, and only the debug log the rest.
func TestDo_AForeignHostsTextIsKeptInBrief(t *testing.T) {
	foreign := "it broke\n  at handler (guard.js:12)\n  payload canary " + strings.Repeat("x", 1<<20)
	failing := func(err error) *fakeHost {
		h := answering("v", interceptors.TypeValidation, nil)
		h.invoke = func(context.Context, *interceptors.InvokeParams) (*interceptors.Result, error) { return nil, err }
		return h
	}
	panicking := answering("v", interceptors.TypeValidation, nil)
	panicking.invoke = func(context.Context, *interceptors.InvokeParams) (*interceptors.Result, error) { panic(foreign) }
	cases := map[string]struct {
		host chain.Host
		want string
	}{
		"an error":             {failing(errors.New(foreign)), "it broke…"},
		"an error on the wire": {chain.Remote("far", failingSession(t, foreign), nil), "it broke…"},
		"a panic":              {panicking, "host host-of-v panicked: it broke…"},
		"a denial": {answering("v", interceptors.TypeValidation, &interceptors.Result{
			Severity: interceptors.SeverityError, Messages: []interceptors.Message{{Message: foreign, Severity: interceptors.SeverityError}}}), "it broke…"},
	}
	for name, c := range cases {
		for _, level := range []slog.Level{slog.LevelInfo, slog.LevelDebug} {
			t.Run(name+" at "+level.String(), func(t *testing.T) {
				var log syncBuilder
				var told chain.Outcome
				ch := newChain(t, &chain.Options{
					Logger:   slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level})),
					Observer: chain.Observer{Outcome: func(_ context.Context, _ *chain.Exchange, o chain.Outcome) { told = o }},
				})
				use(t, ch, c.host, nil)
				reply := ch.Do(t.Context(), &chain.Request{Event: call, Params: raw(hi)}, answers(`{}`))
				if !strings.HasSuffix(told.Reason, c.want) || len(told.Reason) > 100 {
					t.Errorf("reason %q, want %q", told.Reason, c.want)
				}
				if strings.Contains(string(reply.Error), "broke") {
					t.Errorf("the requester is told %s", reply.Error)
				}
				whole := strings.Contains(log.String(), "canary")
				if failed := told.Verdict == chain.Failed; whole != (failed && level == slog.LevelDebug) || len(log.String()) > 128<<10 {
					t.Errorf("the log has %d bytes, the canary: %t", len(log.String()), whole)
				}
				if stack := strings.Contains(log.String(), "goroutine "); stack != (name == "a panic" && level == slog.LevelDebug) {
					t.Errorf("the log has a stack: %t", stack)
				}
			})
		}
	}
}

// failingSession is a session with a host that answers every invocation by this error.
func failingSession(t *testing.T, message string) *mcp.ClientSession {
	t.Helper()
	s := mcp.NewServer(implementation, nil)
	if err := server(t, validator("v", allowAll)).Install(s); err != nil {
		t.Fatal(err)
	}
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == interceptors.MethodInvoke {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: message}
			}
			return next(ctx, method, req)
		}
	})
	client := mcp.NewClient(implementation, nil)
	if err := interceptors.AddClient(client); err != nil {
		t.Fatal(err)
	}
	return connect(t, s, client, "2025-11-25")
}
