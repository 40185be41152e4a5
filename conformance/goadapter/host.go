package goadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/conformance/behavior"
	"github.com/undolog/undolog/conformance/wire"
	"github.com/undolog/undolog/interceptors"
)

// host is one host of a session, with a raw connection for list and invoke steps.
type host struct {
	*behavior.Host
	name    string
	raw     wire.Conn   // nil when called directly
	web     *wire.HTTP  // over HTTP
	server  *mcp.Server // on pipes
	closers []func() error
}

// reach starts the host behind the transport and returns it as the engine sees it.
func (h *host) reach(ctx context.Context, t Transport, strict bool) (chain.Host, error) {
	switch t {
	case Direct:
		if len(h.Tampers) == 0 {
			return chain.Local("host-"+h.name, h.Server), nil
		}
		return &tampered{Host: chain.Local("host-"+h.name, h.Server), tampers: h.Tampers, strict: strict}, nil
	case HTTP, HTTPLegacy:
		return h.reachHTTP(ctx, t, strict)
	}
	return h.reachPipe(ctx, t, strict)
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func (h *host) reachPipe(ctx context.Context, t Transport, strict bool) (chain.Host, error) {
	server, err := h.MCP()
	if err != nil {
		return nil, err
	}
	theirs, ours := pipes(t)
	if err := h.serve(server, theirs); err != nil {
		return nil, err
	}
	reached, err := h.remote(ctx, ours, wire.Legacy, strict)
	if err != nil {
		return nil, err
	}
	h.server = server
	lines, err := h.rawPipe()
	if err != nil {
		return nil, err
	}
	h.raw = lines
	_, err = lines.Start(ctx, wire.Legacy)
	return reached, err
}

// rawPipe is one more connection to the host, on which nothing was said yet.
func (h *host) rawPipe() (*wire.Lines, error) {
	toServer, fromRaw := io.Pipe()
	toRaw, fromServer := io.Pipe()
	if err := h.serve(h.server, &mcp.IOTransport{Reader: toServer, Writer: fromServer}); err != nil {
		return nil, err
	}
	lines := wire.NewLines(toRaw, fromRaw)
	h.closers = append(h.closers, lines.Close)
	return lines, nil
}

func pipes(t Transport) (server, client mcp.Transport) {
	if t == Memory {
		return mcp.NewInMemoryTransports()
	}
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	return &mcp.IOTransport{Reader: toServer, Writer: fromServer}, &mcp.IOTransport{Reader: toClient, Writer: fromClient}
}

// serve connects the server; the session ends when its client does.
func (h *host) serve(server *mcp.Server, t mcp.Transport) error {
	ss, err := server.Connect(context.Background(), t, nil)
	if err != nil {
		return fmt.Errorf("serve host: %w", err)
	}
	h.closers = append(h.closers, func() error { _ = ss.Wait(); return nil }) // its client has closed it
	return nil
}

// remote is the host as the engine reaches it over a transport.
func (h *host) remote(ctx context.Context, t mcp.Transport, revision string, strict bool) (chain.Host, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "engine"}, nil)
	if err := interceptors.AddClient(client); err != nil {
		return nil, err
	}
	cs, err := client.Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return nil, fmt.Errorf("connect to host: %w", err)
	}
	h.closers = append(h.closers, cs.Close)
	return chain.Remote("host-"+h.name, cs, &chain.RemoteOptions{Strict: strict}), nil
}

func (h *host) reachHTTP(ctx context.Context, t Transport, strict bool) (chain.Host, error) {
	handler, err := h.handler()
	if err != nil {
		return nil, err
	}
	server := httptest.NewServer(handler)
	revision := wire.Stateless
	if t == HTTPLegacy {
		revision = wire.Legacy
	}
	h.web = wire.NewHTTP(server.URL, nil)
	if _, err := h.web.Start(ctx, revision); err != nil {
		server.Close()
		return nil, err
	}
	h.raw = h.web
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	h.closers = append(h.closers, func() error {
		client.CloseIdleConnections()
		server.Close()
		return nil
	}, h.web.Close)
	return h.remote(ctx, &mcp.StreamableClientTransport{Endpoint: server.URL, HTTPClient: client, DisableStandaloneSSE: true, MaxRetries: -1},
		revision, strict)
}

// handler takes a bearer token, where there is one, for the name of the invoker and of its tenant.
func (h *host) handler() (http.Handler, error) {
	handler, err := h.Handler()
	if err != nil {
		return nil, err
	}
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Extra: map[string]any{"tenant": token}}, nil
	}
	known := auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(handler)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
			known.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}), nil
}

// close ends what reach has begun, clients first.
func (h *host) close() error {
	var errs []error
	for i := len(h.closers) - 1; i >= 0; i-- {
		errs = append(errs, h.closers[i]())
	}
	h.Server.Wait()
	return errors.Join(errs...)
}

// tampered is a host in the same process whose results are tampered with.
type tampered struct {
	chain.Host
	tampers map[string]func(json.RawMessage) (json.RawMessage, error)
	strict  bool
}

func (t *tampered) Invoke(ctx context.Context, p *interceptors.InvokeParams) (*interceptors.Result, error) {
	res, err := t.Host.Invoke(ctx, p)
	tamper := t.tampers[p.Name]
	if err != nil || tamper == nil {
		return res, err
	}
	raw, err := json.Marshal(res)
	if err != nil {
		return nil, err
	}
	if raw, err = tamper(raw); err != nil {
		return nil, err
	}
	changed := new(interceptors.Result)
	if err := json.Unmarshal(raw, changed); err != nil {
		return nil, err
	}
	if changed.Interceptor == "" && changed.Phase == "" {
		if t.strict {
			return nil, errors.New("the result does not say of what it is")
		}
		changed.Type = "" // read from the shape
	}
	return changed, nil
}
