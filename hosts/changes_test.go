package hosts_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/hosts"
	"github.com/undolog/undolog/interceptors"
)

// growing is a host whose one interceptor adds another when it first runs.
func growing(opts *interceptors.ServerOptions) *interceptors.Server {
	s := interceptors.NewServer(opts)
	passing := func(name string, run func() error) *interceptors.Validator {
		return &interceptors.Validator{
			Descriptor: interceptors.Descriptor{Name: name, Hooks: always},
			Validate: func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
				return interceptors.Allow(), run()
			},
		}
	}
	var grown atomic.Bool
	err := s.Add(passing("grow", func() error {
		if grown.Swap(true) {
			return nil
		}
		return s.Add(passing("grown", func() error { return nil }))
	}))
	if err != nil {
		panic(err)
	}
	return s
}

func serveGrowing() {
	h := growing(nil)
	s := mcp.NewServer(&mcp.Implementation{Name: "host"}, &mcp.ServerOptions{
		Capabilities: h.Capabilities(), SupportedProtocolVersions: []string{"2025-11-25"},
	})
	if err := h.Install(s); err != nil {
		panic(err)
	}
	_ = s.Run(context.Background(), h.Announcing(&mcp.StdioTransport{})) // its end is the test's
}

// legacy keeps the later revisions away from a handler.
func legacy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= "2026-07-28" {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ran are the interceptors that one phase runs.
func ran(t *testing.T, c *chain.Chain) (names []string) {
	t.Helper()
	r := c.Execute(t.Context(), &chain.PhaseParams{Event: "tools/call", Phase: interceptors.PhaseRequest, Payload: json.RawMessage(`{}`)})
	if r.Abort != nil {
		t.Fatalf("abort %+v", r.Abort)
	}
	for _, record := range r.Records {
		names = append(names, record.Interceptor)
	}
	return names
}

func chainOf(t *testing.T, opts *chain.Options, h *hosts.Host) *chain.Chain {
	t.Helper()
	c, err := chain.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Use(h, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestHost_BeforeStatelessTellsAChainOfItsChanges(t *testing.T) {
	kinds := map[string]func(*testing.T) *hosts.Host{
		"on standard streams": func(t *testing.T) *hosts.Host { return play(t, "growing") },
		"on the stream of a GET": func(t *testing.T) *hosts.Host {
			handler, err := growing(nil).Handler(nil)
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(legacy(handler))
			t.Cleanup(server.Close)
			h, err := hosts.URL("far", server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(h.Close)
			return h
		},
	}
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			c := chainOf(t, &chain.Options{DiscoveryTTL: -1}, h) // nothing but the host's word has it asked again
			before := ran(t, c)
			if !slices.Equal(before, []string{"grow"}) {
				t.Errorf("before the change %q run", before)
			}
			if s := h.Status(); s.Protocol != "2025-11-25" {
				t.Errorf("the host speaks %s", s.Protocol)
			}
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for deadline := time.Now().Add(patience); !slices.Contains(ran(t, c), "grown"); <-tick.C {
				if time.Now().After(deadline) {
					t.Fatal("the chain never learns of the change")
				}
			}
		})
	}
}

func TestHost_FromStatelessOnIsAskedAgainWhenItsTTLIsOver(t *testing.T) {
	handler, err := growing(&interceptors.ServerOptions{ListTTL: 20 * time.Second}).Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	h, err := hosts.URL("far", server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	c := chainOf(t, &chain.Options{Now: func() time.Time { return now }}, h)
	for _, step := range []struct {
		passes time.Duration
		want   []string
	}{{0, []string{"grow"}}, {19 * time.Second, []string{"grow"}}, {time.Second, []string{"grow", "grown"}}} {
		now = now.Add(step.passes)
		if got := ran(t, c); !slices.Equal(got, step.want) {
			t.Errorf("%s later %q run, want %q", step.passes, got, step.want)
		}
	}
}

// foreignList is the answer of a host that is not ours.
type foreignList struct {
	mcp.ResultBase
	raw string
}

func (l *foreignList) MarshalJSON() ([]byte, error) { return []byte(l.raw), nil }

func (l *foreignList) UnmarshalJSON(raw []byte) error {
	l.raw = string(raw)
	return nil
}

type foreignParams struct{ mcp.ParamsBase }

func TestHost_AGuardOfAnOddPriorityStillFailsClosed(t *testing.T) {
	h := memory(t, nil, func(s *mcp.Server) {
		err := mcp.AddReceivingCustomMethod(s, interceptors.MethodList, func(context.Context, *mcp.ServerSession, *foreignParams) (*foreignList, error) {
			return &foreignList{raw: `{"interceptors":[{"name":"guard","type":"validation","priorityHint":"first",
				"hooks":[{"events":["*"],"phase":"request"}]}]}`}, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	c := chainOf(t, nil, h)
	r := c.Execute(t.Context(), &chain.PhaseParams{Event: "tools/call", Phase: interceptors.PhaseRequest, Payload: json.RawMessage(`{}`)})
	if r.Abort == nil || r.Abort.Interceptor != "guard" { // it cannot be invoked
		t.Errorf("abort %+v, want one by the guard", r.Abort)
	}
}

func TestHost_ListensAgainWhenItsStreamHasEnded(t *testing.T) {
	handler, err := growing(nil).Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	var streams atomic.Int32
	server := httptest.NewServer(legacy(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && streams.Add(1) == 1 {
			w.Header().Set("Content-Type", "text/event-stream")
			return
		}
		handler.ServeHTTP(w, r)
	})))
	t.Cleanup(server.Close)
	h, err := hosts.URL("far", server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	begun := make(chan struct{}, 8)
	h.Watch(func() { begun <- struct{}{} })
	if _, err := h.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what has changed while nobody listened is not known, so each stream begins with that word
		select {
		case <-begun:
		case <-time.After(patience):
			t.Fatalf("after %d streams nobody is told", streams.Load())
		}
	}
}
