package wire_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/wire"
)

// peer answers each line by what reply makes of it.
func peer(t *testing.T, reply func(line string) string) *wire.Lines {
	t.Helper()
	toPeer, ours := io.Pipe()
	theirs, fromPeer := io.Pipe()
	go func() {
		dec := json.NewDecoder(toPeer)
		for {
			var line json.RawMessage
			if dec.Decode(&line) != nil {
				fromPeer.Close()
				return
			}
			if answer := reply(string(line)); answer != "" {
				_, _ = io.WriteString(fromPeer, answer+"\n") // the test's end may close it
			}
		}
	}()
	return wire.NewLines(theirs, ours)
}

func TestLines_Call(t *testing.T) {
	for name, c := range map[string]struct{ answer, fault string }{
		"a result":           {`{"jsonrpc":"2.0","id":1,"result":{"a":9007199254740993}}`, ""},
		"an error":           {`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}`, ""},
		"after noise":        {"starting up…\n" + `{"jsonrpc":"2.0","method":"notifications/x"}` + "\n" + `{"jsonrpc":"2.0","id":1,"result":{}}`, ""},
		"both":               {`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}`, "not exactly one"},
		"neither":            {`{"jsonrpc":"2.0","id":1}`, "not exactly one"},
		"without a version":  {`{"id":1,"result":{}}`, "without jsonrpc"},
		"the id in a string": {`{"jsonrpc":"2.0","id":"1","result":{}}`, ""},
		"no id":              {`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}`, ""},
		"another id":         {`{"jsonrpc":"2.0","id":2,"result":{}}`, "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := peer(t, func(string) string { return c.answer })
				defer l.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second) // of the bubble's clock
				defer cancel()
				_, err := l.Send(ctx, "m", nil)
				if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
					t.Errorf("Send: %v, want %q", err, c.fault)
				}
			})
		})
	}
}

func TestLines_AddsWhatTheRevisionDemands(t *testing.T) {
	got := make(chan string, 1)
	l := peer(t, func(line string) string {
		got <- line
		return `{"jsonrpc":"2.0","id":1,"result":{}}`
	})
	defer l.Close()
	if _, err := l.Start(t.Context(), wire.Stateless); err != nil {
		t.Fatalf("Start: %v", err)
	}
	if _, err := l.Call(t.Context(), "m", json.RawMessage(`{"_meta":{"traceparent":"x"},"big":9007199254740993}`)); err != nil {
		t.Fatalf("Call: %v", err)
	}
	for _, want := range []string{`"traceparent":"x"`, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"big":9007199254740993`} {
		if line := <-got; !strings.Contains(line, want) {
			t.Errorf("sent %s, want in it %s", line, want)
		} else {
			got <- line
		}
	}
}

func TestHTTP_Request(t *testing.T) {
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":1}}\n\n")
	}))
	defer server.Close()
	h := wire.NewHTTP(server.URL, nil)
	defer h.Close()
	a, err := h.Request(t.Context(), &conformance.Request{Method: "interceptors/list", Headers: map[string]string{"Mcp-Method": "", "Origin": "https://x.example"},
		Meta: json.RawMessage(`{"only":1}`)})
	if err != nil {
		t.Fatalf("Request: %v", err)
	}
	if string(a.Result) != `{"a":1}` || a.Status != http.StatusOK {
		t.Errorf("answer %+v", a)
	}
	if got.Header.Get("Mcp-Method") != "" || got.Header.Get("Origin") != "https://x.example" || got.Header.Get("Mcp-Protocol-Version") != wire.Stateless {
		t.Errorf("headers %v", got.Header)
	}
	if !strings.Contains(string(body), `"_meta":{"only":1}`) {
		t.Errorf("body %s", body)
	}
}

// What a peer says right after the handshake is not missed.
func TestHTTP_ListensWhenItHasStarted(t *testing.T) {
	var listens atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			listens.Store(true)
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush() // the test's end may close it
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	defer server.Close()
	h := wire.NewHTTP(server.URL, nil)
	h.OnMessage = func(*wire.Message) json.RawMessage { return nil }
	defer h.Close()
	if _, err := h.Start(t.Context(), wire.Legacy); err != nil {
		t.Fatalf("Start: %v", err)
	}
	if !listens.Load() {
		t.Error("nobody listens after Start")
	}
}
