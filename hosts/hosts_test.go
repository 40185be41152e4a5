package hosts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/hosts"
	"github.com/undolog/undolog/interceptors"
)

// asHost makes this program a host on its standard streams.
const asHost = "UNDOLOG_TEST_HOST"

func TestMain(m *testing.M) {
	if role := os.Getenv(asHost); role != "" {
		playHost(role)
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

const patience = time.Minute

var always = []interceptors.Hook{{Events: []string{"*"}, Phase: interceptors.PhaseRequest}}

// house is a host with a validator, a mutator, one that kills its process and one that is slow.
func house() *interceptors.Server {
	s := interceptors.NewServer(nil)
	verdict := func(f func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error)) func(name string, failOpen bool) {
		return func(name string, failOpen bool) {
			err := s.Add(&interceptors.Validator{Descriptor: interceptors.Descriptor{Name: name, Hooks: always, FailOpen: failOpen}, Validate: f})
			if err != nil {
				panic(err)
			}
		}
	}
	verdict(func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
		return interceptors.Allow(), nil
	})("allow", false)
	verdict(func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
		os.Exit(3)
		return nil, nil
	})("die", true)
	verdict(func(ctx context.Context, _ *interceptors.Invocation) (*interceptors.Verdict, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})("hang", false)
	for i := range 16 { // for benchmarks
		verdict(func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
			return interceptors.Allow(), nil
		})(fmt.Sprintf("v%d", i), false)
	}
	if err := s.Add(&interceptors.Mutator{
		Descriptor: interceptors.Descriptor{Name: "large", Hooks: always},
		Mutate: func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: fmt.Appendf(nil, `"%s"`, bytes.Repeat([]byte("x"), 17<<20))}, nil
		},
	}, &interceptors.Mutator{
		Descriptor: interceptors.Descriptor{Name: "mark", Hooks: always},
		Mutate: func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: json.RawMessage(`{"n":9007199254740993,"marked":true}`)}, nil
		},
	}); err != nil {
		panic(err)
	}
	return s
}

func invoke(name string, timeoutMs int64) *interceptors.InvokeParams {
	return &interceptors.InvokeParams{
		Name: name, Event: "tools/call", Phase: interceptors.PhaseRequest, Payload: json.RawMessage(`{"n":1}`), TimeoutMs: timeoutMs,
	}
}

// program is this test as a command.
func program(t *testing.T, opts *hosts.Options) *hosts.Host {
	t.Helper()
	if opts == nil {
		opts = &hosts.Options{}
	}
	opts.Env = append(opts.Env, asHost+"=plain")
	opts.Stderr = os.Stderr
	h, err := hosts.Command("far", []string{os.Args[0]}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// site is a host behind HTTP; wrap sees every request.
func site(t *testing.T, opts *hosts.Options, wrap func(http.Handler) http.Handler) *hosts.Host {
	t.Helper()
	handler, err := house().Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	if wrap != nil {
		handler = wrap(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	h, err := hosts.URL("far", server.URL, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// memory is a host in this process; prepare makes the server of each connection.
func memory(t *testing.T, opts *hosts.Options, prepare func(s *mcp.Server)) *hosts.Host {
	t.Helper()
	h, err := hosts.Dial("far", func() (mcp.Transport, error) {
		s := mcp.NewServer(&mcp.Implementation{Name: "host"}, &mcp.ServerOptions{Capabilities: house().Capabilities()})
		prepare(s)
		near, far := mcp.NewInMemoryTransports()
		_, err := s.Connect(context.Background(), far, nil)
		return near, err
	}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func install(t *testing.T) func(*mcp.Server) {
	return func(s *mcp.Server) {
		if err := house().Install(s); err != nil {
			t.Error(err)
		}
	}
}

func TestHost_RunsLikeALocalOne(t *testing.T) {
	kinds := map[string]func(*testing.T) *hosts.Host{
		"command":   func(t *testing.T) *hosts.Host { return program(t, nil) },
		"URL":       func(t *testing.T) *hosts.Host { return site(t, nil, nil) },
		"in memory": func(t *testing.T) *hosts.Host { return memory(t, nil, install(t)) },
	}
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			if s := h.Status(); s.State != hosts.StateIdle {
				t.Errorf("it was connected before it was asked: %+v", s)
			}
			c, err := chain.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			off := chain.Override{Disabled: true}
			if err := c.Use(h, &chain.HostPolicy{Overrides: map[string]chain.Override{"die": off, "hang": off, "large": off}}); err != nil {
				t.Fatal(err)
			}
			r := c.Execute(t.Context(), &chain.PhaseParams{
				Event: "tools/call", Phase: interceptors.PhaseRequest, Direction: chain.Receiving, Payload: json.RawMessage(`{"n":1}`)})
			if want := `{"n":9007199254740993,"marked":true}`; string(r.Payload) != want {
				t.Errorf("payload %s, want %s; abort %+v", r.Payload, want, r.Abort)
			}
			s := h.Status()
			if s.State != hosts.StateConnected || s.Protocol != "2026-07-28" || s.Declared != hosts.DeclaredYes || s.Connected != 1 || s.InFlight != 0 {
				t.Errorf("status %+v", s)
			}
		})
	}
}

func TestHost_ComesBackAfterItsProcessDied(t *testing.T) {
	h := program(t, nil)
	back := make(chan struct{}, 1)
	h.Watch(func() {
		select {
		case back <- struct{}{}:
		default:
		}
	})
	if _, err := h.Invoke(t.Context(), invoke("die", 0)); err == nil {
		t.Fatal("a dead process has answered")
	}
	if res, err := h.Invoke(t.Context(), invoke("allow", 0)); err != nil || !res.Valid {
		t.Errorf("after the first death: %+v, %v; the short pause is waited for", res, err)
	}
	select {
	case <-back:
	case <-time.After(patience):
		t.Error("nobody was told that it may list others now")
	}
	if s := h.Status(); s.Connected != 2 || s.State != hosts.StateConnected {
		t.Errorf("status %+v", s)
	}
}

func TestHost_ThatCannotBeReached(t *testing.T) {
	h, err := hosts.Command("far", []string{"/nowhere/such-a-program"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	for range 3 { // until the pause is one that nobody waits for
		_, err = h.List(t.Context())
	}
	var down *hosts.DownError
	if !errors.As(err, &down) {
		t.Fatalf("error %v, want that it is down", err)
	}
	if s := h.Status(); s.State != hosts.StateDown || s.Err == nil || s.RetryAt.IsZero() {
		t.Errorf("status %+v", s)
	}
	c, err := chain.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Use(h, &chain.HostPolicy{Required: map[string]interceptors.Type{"guard": interceptors.TypeValidation}}); err != nil {
		t.Fatal(err)
	}
	r := c.Execute(t.Context(), &chain.PhaseParams{Event: "tools/call", Phase: interceptors.PhaseRequest, Payload: json.RawMessage(`{}`)})
	if r.Abort == nil {
		t.Error("a required interceptor of a host that is gone does not block")
	}
}

func TestHost_Begin(t *testing.T) {
	h := memory(t, nil, install(t))
	h.Begin()
	h.Begin() // the second finds it on the way
	if _, err := h.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.Status(); s.Connected != 1 {
		t.Errorf("status %+v", s)
	}
}

func TestHost_ThatIsNone(t *testing.T) {
	h, err := hosts.Dial("far", func() (mcp.Transport, error) {
		near, far := mcp.NewInMemoryTransports()
		_, err := mcp.NewServer(&mcp.Implementation{Name: "other"}, nil).Connect(context.Background(), far, nil)
		return near, err
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	_, err = h.List(t.Context())
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeMethodNotFound {
		t.Errorf("error %v, want method not found", err)
	}
	if s := h.Status(); s.Declared != hosts.DeclaredUnknown || s.State != hosts.StateConnected {
		t.Errorf("status %+v", s)
	}
}

func TestHost_TakesSixteenAtATime(t *testing.T) {
	var mu sync.Mutex
	var under, most int
	full := make(chan struct{})
	isFull := sync.OnceFunc(func() { close(full) })
	release := make(chan struct{})
	s := interceptors.NewServer(nil)
	err := s.Add(&interceptors.Validator{
		Descriptor: interceptors.Descriptor{Name: "count", Hooks: always},
		Validate: func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
			mu.Lock()
			under++
			most = max(most, under)
			if under == 16 { // again, perhaps, when others have left
				isFull()
			}
			mu.Unlock()
			<-release
			mu.Lock()
			under--
			mu.Unlock()
			return interceptors.Allow(), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := memory(t, nil, func(server *mcp.Server) {
		if err := s.Install(server); err != nil {
			t.Error(err)
		}
	})
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			if _, err := h.Invoke(t.Context(), invoke("count", 0)); err != nil {
				t.Error(err)
			}
		})
	}
	<-full
	if n := h.Status().InFlight; n != 16 {
		t.Errorf("%d in flight", n)
	}
	close(release)
	wg.Wait()
	if most != 16 {
		t.Errorf("%d at a time, want 16", most)
	}
}

func TestHost_SendsItsHeadersAndFollowsNoRedirect(t *testing.T) {
	t.Run("headers", func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		h := site(t, &hosts.Options{Header: http.Header{"authorization": {"Bearer s3cret"}}}, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				got = append(got, r.Header.Get("Authorization"))
				mu.Unlock()
				next.ServeHTTP(w, r)
			})
		})
		if _, err := h.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, value := range got {
			if value != "Bearer s3cret" {
				t.Errorf("a request went out with %q", value)
			}
		}
	})
	t.Run("redirects", func(t *testing.T) {
		var elsewhere atomic.Bool
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Store(true) }))
		t.Cleanup(other.Close)
		h := site(t, &hosts.Options{Header: http.Header{"X-Key": {"k"}}}, func(http.Handler) http.Handler {
			return http.RedirectHandler(other.URL, http.StatusTemporaryRedirect)
		})
		if _, err := h.List(t.Context()); err == nil || elsewhere.Load() {
			t.Errorf("error %v, was elsewhere: %v", err, elsewhere.Load())
		}
	})
}

func TestHost_AnswersWithoutAnEndAreGivenUpOn(t *testing.T) {
	var sent atomic.Int64
	host := site(t, nil, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Mcp-Method") != interceptors.MethodInvoke {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			for chunk := bytes.Repeat([]byte(" "), 1<<20); sent.Load() < 1<<30; {
				n, err := w.Write(chunk)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if res, err := host.Invoke(ctx, invoke("allow", 0)); err == nil {
		t.Fatalf("Invoke returned %v, want an error", res)
	}
	if got := sent.Load(); got > 128<<20 {
		t.Errorf("%d bytes were taken from the host", got)
	}
}

func TestHost_SharesSeveralConnections(t *testing.T) {
	h := program(t, &hosts.Options{Connections: 3})
	for range 6 {
		if _, err := h.Invoke(t.Context(), invoke("allow", 0)); err != nil {
			t.Fatal(err)
		}
	}
	if s := h.Status(); s.Connections != 3 || s.Connected != 3 {
		t.Errorf("status %+v", s)
	}
}

func TestHost_Close(t *testing.T) {
	h := memory(t, nil, install(t))
	if _, err := h.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := h.Invoke(context.Background(), invoke("hang", 0))
		ended <- err
	}()
	for h.Status().InFlight == 0 {
	}
	h.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a call under way has succeeded")
		}
	case <-time.After(patience):
		t.Fatal("a call under way goes on")
	}
	if _, err := h.List(t.Context()); err == nil {
		t.Error("a closed host answers")
	}
}

func TestNew_RefusesWhatCannotBeMeant(t *testing.T) {
	_, noCommand := hosts.Command("x", nil, nil)
	_, noURL := hosts.URL("x", "ftp://x", nil)
	_, noName := hosts.Dial("", nil, nil)
	got := []bool{noCommand == nil, noURL == nil, noName == nil}
	if diff := cmp.Diff([]bool{false, false, false}, got); diff != "" {
		t.Errorf("accepted (-want +got)\n%s", diff)
	}
}
