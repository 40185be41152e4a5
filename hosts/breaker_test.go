package hosts_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/hosts"
	"github.com/undolog/undolog/interceptors"
)

// quiet is a transport to a server that a test can silence: what is written then is answered by nobody.
type quiet struct {
	mcp.Transport
	silent *atomic.Bool
}

func (q *quiet) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := q.Transport.Connect(ctx)
	return &quietConn{c, q.silent}, err
}

type quietConn struct {
	mcp.Connection
	silent *atomic.Bool
}

func (c *quietConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if c.silent.Load() {
		return nil
	}
	return c.Connection.Write(ctx, m)
}

// silenceable is a host whose connections can be silenced, and how often it was connected to.
func silenceable(t *testing.T, opts *hosts.Options, silent *atomic.Bool) *hosts.Host {
	t.Helper()
	h, err := hosts.Dial("far", func() (mcp.Transport, error) {
		s := mcp.NewServer(&mcp.Implementation{Name: "host"}, nil)
		install(t)(s)
		near, far := mcp.NewInMemoryTransports()
		_, err := s.Connect(context.Background(), far, nil)
		return &quiet{near, silent}, err
	}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHost_BreakerOpensAfterThreeTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		h := silenceable(t, &hosts.Options{PingEvery: -1}, &silent)
		defer h.Close()
		if _, err := h.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := h.Invoke(ctx, invoke("allow", 100))
			return err
		}
		silent.Store(true)
		var late *hosts.TimeoutError
		for range 2 {
			if err := ask(); !errors.As(err, &late) {
				t.Fatalf("error %v, want a time-out", err)
			}
		}
		silent.Store(false)
		if err := ask(); err != nil { // a sign of life begins the count again
			t.Fatal(err)
		}
		silent.Store(true)
		for range 3 {
			if err := ask(); !errors.As(err, &late) {
				t.Fatalf("error %v, want a time-out", err)
			}
		}
		began := time.Now()
		var open *hosts.BreakerError
		if err := ask(); !errors.As(err, &open) || time.Since(began) != 0 {
			t.Fatalf("error %v after %s, want to be told at once", err, time.Since(began))
		}
		if s := h.Status(); s.Breaker != hosts.BreakerOpen || s.TimedOut != 3 {
			t.Errorf("status %+v", s)
		}
		time.Sleep(10 * time.Second) // of the bubble's clock
		if s := h.Status(); s.Breaker != hosts.BreakerHalfOpen {
			t.Errorf("status %+v", s)
		}
		if err := ask(); !errors.As(err, &late) {
			t.Fatalf("error %v, want that one tries and times out", err)
		}
		if err := ask(); !errors.As(err, &open) {
			t.Fatalf("error %v, want open again after one", err)
		}
		time.Sleep(10 * time.Second)
		silent.Store(false)
		for range 2 {
			if err := ask(); err != nil {
				t.Fatal(err)
			}
		}
		if s := h.Status(); s.Breaker != hosts.BreakerClosed || s.TimedOut != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestHost_ListsThatHangOpenTheBreakerToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		h := silenceable(t, &hosts.Options{PingEvery: -1}, &silent)
		defer h.Close()
		if _, err := h.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		silent.Store(true)
		began := time.Now()
		for range 4 {
			if _, err := h.List(t.Context()); err == nil {
				t.Fatal("answered")
			}
		}
		if took := time.Since(began); took != 15*time.Second || h.Status().Breaker != hosts.BreakerOpen {
			t.Errorf("four lists took %s, breaker %s", took, h.Status().Breaker)
		}
	})
}

func TestHost_CallersWhoLeaveSayNothingOfTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := silenceable(t, &hosts.Options{PingEvery: -1}, new(atomic.Bool))
		defer h.Close()
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if _, err := h.Invoke(ctx, invoke("hang", 0)); err == nil {
				t.Fatal("answered")
			}
			cancel()
		}
		if s := h.Status(); s.Breaker != hosts.BreakerClosed || s.TimedOut != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestHost_NoticesAConnectionThatIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		h := silenceable(t, nil, &silent)
		defer h.Close()
		if _, err := h.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		silent.Store(true)
		time.Sleep(41 * time.Second) // a look, and the wait for its answer
		if s := h.Status(); s.State == hosts.StateConnected {
			t.Errorf("status %+v", s)
		}
		silent.Store(false)
		time.Sleep(time.Minute)
		if s := h.Status(); s.State != hosts.StateConnected || s.Connected != 2 {
			t.Errorf("status %+v", s)
		}
	})
}

// A request that may take long does not keep a dead connection.
func TestHost_NoticesAConnectionThatIsDeadUnderARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		h := silenceable(t, &hosts.Options{Timeout: time.Hour}, &silent)
		defer h.Close()
		if _, err := h.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		silent.Store(true)
		began := time.Now()
		if _, err := h.Invoke(t.Context(), invoke("allow", 0)); err == nil || time.Since(began) > 3*time.Minute {
			t.Errorf("error %v after %s", err, time.Since(began))
		}
	})
}

// slow is a transport on which each message takes a while to be read, once it is told to.
type slow struct {
	mcp.Transport
	from *atomic.Bool
}

func (s *slow) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := s.Transport.Connect(ctx)
	return &slowConn{c, s.from}, err
}

type slowConn struct {
	mcp.Connection
	from *atomic.Bool
}

func (c *slowConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err == nil && c.from.Load() {
		time.Sleep(50 * time.Second) // of the bubble's clock
	}
	return m, err
}

// Behind a long answer that of a look is late, and nobody may be cut off for it.
func TestHost_IsKeptWhileItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var from atomic.Bool
		h, err := hosts.Dial("far", func() (mcp.Transport, error) {
			s := mcp.NewServer(&mcp.Implementation{Name: "host"}, nil)
			install(t)(s)
			near, far := mcp.NewInMemoryTransports()
			_, err := s.Connect(context.Background(), far, nil)
			return &slow{near, &from}, err
		}, &hosts.Options{Timeout: 2 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if _, err := h.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		from.Store(true)
		if _, err := h.Invoke(t.Context(), invoke("allow", 0)); err != nil {
			t.Errorf("Invoke: %v", err)
		}
		from.Store(false)
	})
}

// deaf is a connection to a host that answers nothing before the handshake.
type deaf struct{ mcp.Transport }

func (d *deaf) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := d.Transport.Connect(ctx)
	return &deafConn{c}, err
}

type deafConn struct{ mcp.Connection }

func (c *deafConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Request); ok && r.Method == "server/discover" {
		return nil
	}
	return c.Connection.Write(ctx, m)
}

func TestHost_OlderOneThatLetsTheProbeHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := hosts.Dial("far", func() (mcp.Transport, error) {
			s := mcp.NewServer(&mcp.Implementation{Name: "host"}, nil)
			install(t)(s)
			near, far := mcp.NewInMemoryTransports()
			_, err := s.Connect(context.Background(), far, nil)
			return &deaf{near}, err
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if _, err := h.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := h.Status(); s.Protocol != "2025-11-25" {
			t.Errorf("status %+v", s)
		}
	})
}

// teller is a connection on which the host says that its list has changed, when told to.
type teller struct {
	mcp.Transport
	say chan struct{}
}

func (s *teller) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := s.Transport.Connect(ctx)
	return &tellerConn{Connection: c, say: s.say, in: make(chan read)}, err
}

type read struct {
	m   jsonrpc.Message
	err error
}

type tellerConn struct {
	mcp.Connection
	say     chan struct{}
	in      chan read
	reading bool
}

func (c *tellerConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	if !c.reading {
		c.reading = true
		go func() {
			m, err := c.Connection.Read(ctx)
			c.in <- read{m, err}
		}()
	}
	select {
	case <-c.say:
		return &jsonrpc.Request{Method: "notifications/interceptors/list_changed", Params: json.RawMessage(`{}`)}, nil
	case r := <-c.in:
		c.reading = false
		return r.m, r.err
	}
}

func TestHost_SaysThatItsInterceptorsHaveChanged(t *testing.T) {
	say, changed := make(chan struct{}), make(chan struct{}, 1)
	h, err := hosts.Dial("far", func() (mcp.Transport, error) {
		s := mcp.NewServer(&mcp.Implementation{Name: "host"}, nil)
		install(t)(s)
		near, far := mcp.NewInMemoryTransports()
		_, err := s.Connect(context.Background(), far, nil)
		return &teller{near, say}, err
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	h.Watch(func() { changed <- struct{}{} })
	if _, err := h.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	say <- struct{}{}
	select {
	case <-changed:
	case <-time.After(patience):
		t.Error("nobody was told")
	}
	if _, err := h.Invoke(t.Context(), &interceptors.InvokeParams{
		Name: "allow", Event: "x/y", Phase: interceptors.PhaseRequest, Payload: json.RawMessage(`{}`)}); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// stuck is a transport that does not open until it is told to.
type stuck struct {
	mcp.Transport
	open chan struct{}
}

func (s *stuck) Connect(ctx context.Context) (mcp.Connection, error) {
	select {
	case <-s.open:
		return s.Transport.Connect(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestHost_ThatDoesNotOpenKeepsNobodyASecondTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		h, err := hosts.Dial("far", func() (mcp.Transport, error) {
			s := mcp.NewServer(&mcp.Implementation{Name: "host"}, nil)
			install(t)(s)
			near, far := mcp.NewInMemoryTransports()
			_, err := s.Connect(context.Background(), far, nil)
			return &stuck{near, open}, err
		}, &hosts.Options{Timeout: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		for i, want := range []time.Duration{2 * time.Second, 0, 0} {
			began := time.Now()
			if _, err := h.List(t.Context()); err == nil {
				t.Fatal("a host that has not opened has answered")
			}
			if got := time.Since(began); got != want {
				t.Errorf("try %d was kept for %v, want %v", i+1, got, want)
			}
		}
		told := make(chan struct{}, 1)
		h.Watch(func() { told <- struct{}{} })
		close(open)
		<-told
		if _, err := h.List(t.Context()); err != nil {
			t.Errorf("List: %v", err)
		}
	})
}
