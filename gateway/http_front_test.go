package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/gateway"
	"github.com/undolog/undolog/internal/mcptest"
)

// front is a gateway behind an HTTP server.
type front struct {
	url       string
	handler   *gateway.HTTPHandler
	delivered chan bool
	close     func()
	gone      chan struct{} // one for each request with X-Watched whose agent has hung up
}

type dialFunc = func(context.Context, *gateway.AgentInfo) (gateway.Conn, error)

func newFront(t *testing.T, o *gateway.HTTPOptions, dial dialFunc) *front {
	t.Helper()
	f := &front{delivered: make(chan bool, 100), gone: make(chan struct{}, 100)}
	c, err := chain.New(&chain.Options{Observer: chain.Observer{
		Delivered: func(_ context.Context, _ *chain.Exchange, _ time.Time, delivered bool) { f.delivered <- delivered },
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.open(t, o, gateway.Options{Chain: c, Dial: dial})
	return f
}

// newFrontOf is a front of a chain of one's own.
func newFrontOf(t *testing.T, o *gateway.HTTPOptions, opts gateway.Options) *front {
	t.Helper()
	f := &front{gone: make(chan struct{}, 100)}
	f.open(t, o, opts)
	return f
}

func (f *front) open(t *testing.T, o *gateway.HTTPOptions, opts gateway.Options) {
	t.Helper()
	opts.Drain = time.Second
	gw := gateway.New(&opts)
	f.handler = gateway.NewHTTPHandler(gw, o)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Watched") != "" {
			defer context.AfterFunc(r.Context(), func() { f.gone <- struct{}{} })()
		}
		f.handler.ServeHTTP(w, r)
	}))
	f.url = server.URL
	f.close = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(f.handler.Close(ctx), gw.Close(ctx)); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	t.Cleanup(f.close)
}

// waitGone waits until the server has noticed that an agent has hung up.
func (f *front) waitGone(t *testing.T) { t.Helper(); await(t, f.gone, "the server to notice") }

// agent returns a client, with a session where the version has them.
func (f *front) agent(t *testing.T, version string) *mcptest.HTTP {
	t.Helper()
	client := &mcptest.HTTP{URL: f.url, Version: version}
	if version < "2026-07-28" {
		client.Initialize(t, version)
	}
	return client
}

func (f *front) call(t *testing.T, client *mcptest.HTTP, id, tool string) mcptest.Message {
	t.Helper()
	meta := ""
	if client.Version >= "2026-07-28" {
		meta = mcptest.MetaMembers
	}
	m, err := client.Do(t.Context(), id, mcptest.ToolCall(id, tool, "{}", meta))
	if err != nil {
		t.Fatalf("call %s: %v", id, err)
	}
	return m
}

func (f *front) notify(t *testing.T, client *mcptest.HTTP, method string) {
	t.Helper()
	f.post(t, client, `{"jsonrpc":"2.0","method":"`+method+`"}`)
}

func (f *front) post(t *testing.T, client *mcptest.HTTP, body string) {
	t.Helper()
	stream, err := client.Post(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if stream.Status != http.StatusAccepted {
		t.Fatalf("POST of %s got status %d", body, stream.Status)
	}
}

// do makes a request with exactly the headers given; method is "POST /" when empty.
func (f *front) do(t *testing.T, method, body string, headers ...map[string]string) *http.Response {
	t.Helper()
	if method == "" {
		method = "POST /"
	}
	verb, path, _ := strings.Cut(method, " ")
	req, err := http.NewRequestWithContext(t.Context(), verb, f.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, header := range headers {
		for k, v := range header {
			switch {
			case k == "Host":
				req.Host = v
			case v == "-":
				req.Header.Del(k)
			default:
				req.Header.Set(k, v)
			}
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (f *front) expectGone(t *testing.T, client *mcptest.HTTP) {
	t.Helper()
	resp := f.do(t, "", `{"jsonrpc":"2.0","method":"x"}`, map[string]string{"Mcp-Session-Id": client.Session})
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("the session's end gives status %d, want 404", resp.StatusCode)
	}
}

// sdkUpstream opens a go-sdk server over a pipe.
func sdkUpstream(_ *testing.T, server *mcp.Server) dialFunc {
	return func(context.Context, *gateway.AgentInfo) (gateway.Conn, error) {
		fromGateway, toServer := io.Pipe()
		fromServer, toGateway := io.Pipe()
		if _, err := server.Connect(context.Background(), &mcp.IOTransport{Reader: fromGateway, Writer: toGateway}, nil); err != nil {
			return nil, err
		}
		return gateway.NewLineConn(fromServer, toServer, nil), nil
	}
}

// sdkHTTPUpstream opens a go-sdk server over HTTP, both generations at one address.
func sdkHTTPUpstream(t *testing.T, server *mcp.Server) dialFunc {
	get := func(*http.Request) *mcp.Server { return server }
	stateful := mcp.NewStreamableHTTPHandler(get, nil)
	stateless := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= "2026-07-28" {
			stateless.ServeHTTP(w, r)
		} else {
			stateful.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(up.Close)
	return func(ctx context.Context, _ *gateway.AgentInfo) (gateway.Conn, error) {
		return gateway.DialHTTP(ctx, up.URL, nil)
	}
}

// scripted opens an upstream that initializes, and gives handle every message else, one at a time.
func scripted(handle func(m *gateway.Message, send func(string))) dialFunc {
	return scriptedAll(func(m *gateway.Message, send func(string)) {
		if m.Method == "initialize" {
			var p struct{ ProtocolVersion string }
			json.Unmarshal(m.Params, &p)
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{},"serverInfo":{"name":"scripted","version":"1"}}}`, m.ID, p.ProtocolVersion))
			return
		}
		if m.Method == "server/discover" || m.Method == "tools/list" {
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, m.ID))
			return
		}
		if handle != nil {
			handle(m, send)
		}
	})
}

func scriptedAll(handle func(m *gateway.Message, send func(string))) dialFunc {
	limits := &gateway.LineOptions{Limits: &gateway.Limits{MaxBytes: 64 << 20}}
	return func(context.Context, *gateway.AgentInfo) (gateway.Conn, error) {
		fromGateway, toServer := io.Pipe()
		fromServer, toGateway := io.Pipe()
		go func() {
			server := gateway.NewLineConn(fromGateway, toGateway, limits)
			defer server.Close()
			for {
				m, err := server.Read(context.Background())
				if err != nil {
					return
				}
				handle(m, func(raw string) { io.WriteString(toGateway, raw+"\n") })
			}
		}()
		return gateway.NewLineConn(fromServer, toServer, limits), nil
	}
}

// onClose closes ch when the first connection of dial is closed.
func onClose(dial dialFunc, ch chan struct{}) dialFunc {
	return func(ctx context.Context, a *gateway.AgentInfo) (gateway.Conn, error) {
		conn, err := dial(ctx, a)
		return &closeWatch{Conn: conn, once: sync.OnceFunc(func() { close(ch) })}, err
	}
}

type closeWatch struct {
	gateway.Conn
	once func()
}

func (c *closeWatch) Close() error {
	defer c.once()
	return c.Conn.Close()
}
