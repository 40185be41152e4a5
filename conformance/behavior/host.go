package behavior

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/interceptors"
)

// Host hosts the interceptors of a fixture that are on one of its hosts.
type Host struct {
	Server  *interceptors.Server
	Tampers map[string]func(json.RawMessage) (json.RawMessage, error) // by interceptor

	log  *Log
	gate Gate
}

// HostParams say what NewHost registers and who is told.
type HostParams struct {
	Fixture *conformance.Fixture
	Name    string       // of the host
	Log     *Log         // gets the invocations that Gate lets count
	Gate    Gate         // nil lets all count
	Logger  *slog.Logger // of the host; nil is silent
}

// NewHost registers the fixture's interceptors of one host.
func NewHost(p *HostParams) (*Host, error) {
	f := p.Fixture
	h := &Host{Tampers: map[string]func(json.RawMessage) (json.RawMessage, error){}, log: p.Log, gate: p.Gate}
	h.Server = interceptors.NewServer(&interceptors.ServerOptions{
		LegacyEnvelope: f.Host.LegacyEnvelope, LegacyTimeoutCode: f.Host.LegacyTimeoutCode, Logger: p.Logger,
		ListTTL: time.Duration(f.Host.TTLMs) * time.Millisecond,
	})
	for i := range f.Interceptors {
		in := &f.Interceptors[i]
		if in.Host != p.Name {
			continue
		}
		if err := h.Add(in); err != nil {
			return nil, err
		}
		if tamper := Tamper(in); tamper != nil {
			h.Tampers[in.Name] = tamper
		}
	}
	return h, nil
}

// Add registers one more interceptor.
func (h *Host) Add(in *conformance.Interceptor) error {
	gate := h.gate
	if in.Behavior == "grow" {
		gate = h.growing(in)
	}
	made, err := New(in, h.log, gate)
	if err != nil {
		return err
	}
	return h.Server.Add(made)
}

// growing is the gate of an interceptor that registers another at its own host when it first runs: a mutator
// that comes after it.
func (h *Host) growing(in *conformance.Interceptor) Gate {
	var once sync.Once
	return func(inv *interceptors.Invocation) bool {
		if h.gate != nil && !h.gate(inv) {
			return false
		}
		once.Do(func() {
			grown := &conformance.Interceptor{Name: in.Args.Tag, Type: "mutation", Behavior: "append", Events: in.Events,
				Phases: in.Phases, Args: conformance.Args{Tag: in.Args.Tag}, PriorityHint: json.RawMessage("1000")}
			if err := h.Add(grown); err != nil {
				panic(err) // the host contains it, and the step finds that its interceptor has failed
			}
		})
		return true
	}
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
