package behavior

import (
	"encoding/json"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/interceptors"
)

// Host hosts the interceptors of a fixture that are on one of its hosts.
type Host struct {
	Server  *interceptors.Server
	Tampers map[string]func(json.RawMessage) (json.RawMessage, error) // by interceptor
}

// NewHost registers the fixture's interceptors of the named host. Invocations that the gate lets count go
// into the log.
func NewHost(f *conformance.Fixture, name string, log *Log, gate Gate) (*Host, error) {
	h := &Host{Tampers: map[string]func(json.RawMessage) (json.RawMessage, error){}}
	h.Server = interceptors.NewServer(&interceptors.ServerOptions{
		LegacyEnvelope: f.Host.LegacyEnvelope, LegacyTimeoutCode: f.Host.LegacyTimeoutCode,
	})
	for i := range f.Interceptors {
		in := &f.Interceptors[i]
		if in.Host != name {
			continue
		}
		made, err := New(in, log, gate)
		if err != nil {
			return nil, err
		}
		if err := h.Server.Add(made); err != nil {
			return nil, err
		}
		if tamper := Tamper(in); tamper != nil {
			h.Tampers[in.Name] = tamper
		}
	}
	return h, nil
}

// MCP is the host as an MCP server. Results are tampered with on their way out.
func (h *Host) MCP() (*mcp.Server, error) {
	server := mcp.NewServer(&mcp.Implementation{Name: "host"}, &mcp.ServerOptions{Capabilities: h.Server.Capabilities()})
	if err := h.Server.Install(server); err != nil {
		return nil, err
	}
	server.AddReceivingMiddleware(TamperMiddleware(h.Tampers))
	return server, nil
}

// Handler is the library's own HTTP handler, or its like for a host whose results are tampered with.
func (h *Host) Handler() (http.Handler, error) {
	if len(h.Tampers) == 0 {
		return h.Server.Handler(nil)
	}
	server, err := h.MCP()
	if err != nil {
		return nil, err
	}
	get := func(*http.Request) *mcp.Server { return server }
	current := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	sessions := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{JSONResponse: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= "2026-07-28" {
			current.ServeHTTP(w, r)
			return
		}
		sessions.ServeHTTP(w, r)
	}), nil
}
