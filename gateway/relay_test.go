package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/gateway"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// peer is the raw far end of a line connection: an agent, or one life of an upstream.
type peer struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan string // closed when the relay has closed its end
}

// newPipe returns a Conn for the relay and the peer at its far end.
func newPipe(t *testing.T, limits *gateway.Limits) (gateway.Conn, *peer) {
	t.Helper()
	toRelay, in := io.Pipe()
	out, fromRelay := io.Pipe()
	p := &peer{t: t, in: in, lines: make(chan string, 64)}
	go func() {
		defer close(p.lines)
		conn := gateway.NewLineConn(out, nopWriter{io.Discard}, &gateway.LineOptions{Limits: &gateway.Limits{MaxBytes: 1 << 30}})
		defer conn.Close()
		for {
			m, err := conn.Read(context.Background())
			if err != nil {
				return
			}
			p.lines <- string(m.Raw)
		}
	}()
	return gateway.NewLineConn(toRelay, fromRelay, &gateway.LineOptions{Limits: limits}), p
}

func (p *peer) say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		p.t.Errorf("say %.100s: %v", line, err)
	}
}

// hear returns the next line from the relay.
func (p *peer) hear() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatal("the relay has closed the connection")
		}
		return line
	case <-time.After(patience):
		p.t.Fatal("nothing is heard")
	}
	return ""
}

// expect fails unless the next line is want, byte for byte.
func (p *peer) expect(want string) {
	p.t.Helper()
	if got := p.hear(); got != want {
		p.t.Fatalf("heard %.500s\nwant  %.500s", got, want)
	}
}

// hang ends the peer's side of the connection.
func (p *peer) hang() { p.in.Close() }

// relay is a gateway with one agent on it, and its upstream in the test's hand.
type relay struct {
	t       *testing.T
	agent   *peer
	lives   chan *peer // an upstream each time one is dialed
	gateway *gateway.Gateway
	served  chan error
	stop    context.CancelFunc
	log     *lockedBuffer
}

func start(t *testing.T, o gateway.Options) *relay {
	t.Helper()
	r := &relay{t: t, lives: make(chan *peer, 16), served: make(chan error, 1), log: &lockedBuffer{}}
	if o.Chain == nil {
		o.Chain = newChain(t, nil)
	}
	if o.Dial == nil {
		o.Dial = func(context.Context, *gateway.AgentInfo) (gateway.Conn, error) {
			conn, life := newPipe(t, &gateway.Limits{MaxBytes: o.MaxResult, MaxDepth: 10_000})
			r.lives <- life
			return conn, nil
		}
	}
	if o.Target == "" {
		o.Target = "upstream --test"
	}
	o.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.gateway = gateway.New(&o)
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	conn, agent := newPipe(t, &gateway.Limits{MaxBytes: 2 << 20})
	r.agent = agent
	go func() {
		r.served <- r.gateway.Serve(ctx, conn, gateway.AgentInfo{Tenant: "default", Principal: "agent:test"})
	}()
	t.Cleanup(func() {
		cancel()
		for range agent.lines { // until closed
		}
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// upstream returns the upstream that was dialed next.
func (r *relay) upstream() *peer {
	r.t.Helper()
	select {
	case life := <-r.lives:
		return life
	case <-time.After(patience):
		r.t.Fatal("no upstream was started")
	}
	return nil
}

// end waits for Serve and returns what it returned.
func (r *relay) end() error {
	r.t.Helper()
	select {
	case err := <-r.served:
		return err
	case <-time.After(patience):
		r.t.Fatal("Serve does not return")
	}
	return nil
}

// spy is an interceptor server and observer that tests look through.
type spy struct {
	mu       sync.Mutex
	stamp    bool // add a member to the request's _meta
	detach   bool
	respond  json.RawMessage          // answer in the target's place
	hold     map[string]chan struct{} // events whose request phase waits
	seen     []string                 // payloads of the request phase
	answers  []string                 // payloads of the response phase
	settled  chan chain.Answer
	delivery chan bool
}

func newSpy() *spy {
	return &spy{settled: make(chan chain.Answer, 64), delivery: make(chan bool, 64)}
}

func (s *spy) request(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	if held := s.hold[in.Event]; held != nil {
		<-held
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, in.Event+" "+string(in.Payload))
	c := &interceptors.Change{}
	if s.respond != nil {
		return nil, &interceptors.RespondError{Result: s.respond}
	}
	if s.stamp && in.Event == "tools/call" {
		stamped, err := splice.Set(in.Payload, []byte(`"yes"`), "_meta", "stamped")
		if err != nil {
			return nil, err
		}
		c.Payload = stamped
	}
	if s.detach && in.Event == "tools/call" {
		c.Info = json.RawMessage(`{"` + chain.DispatchKey + `":{"detach":true}}`)
	}
	return c, nil
}

func (s *spy) response(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, in.Event+" "+string(in.Payload))
	return &interceptors.Change{}, nil
}

func (s *spy) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

func (s *spy) responses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.answers...)
}

// settlement waits for the next one.
func (s *spy) settlement(t *testing.T) chain.Answer {
	t.Helper()
	select {
	case a := <-s.settled:
		return a
	case <-time.After(patience):
		t.Fatal("nothing was settled")
	}
	return chain.Answer{}
}

func (s *spy) delivered(t *testing.T) bool {
	t.Helper()
	select {
	case d := <-s.delivery:
		return d
	case <-time.After(patience):
		t.Fatal("no delivery was told")
	}
	return false
}

func newChain(t testing.TB, s *spy) *chain.Chain {
	t.Helper()
	var o chain.Options
	if s != nil {
		o.Observer = chain.Observer{
			Settled: func(_ context.Context, x *chain.Exchange, a chain.Answer) {
				if x.Request.Event == "tools/call" {
					s.settled <- a
				}
			},
			Delivered: func(_ context.Context, x *chain.Exchange, _ time.Time, d bool) {
				if x.Request.Event == "tools/call" {
					s.delivery <- d
				}
			},
		}
	}
	c, err := chain.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	if s == nil {
		return c
	}
	server := interceptors.NewServer(nil)
	for phase, mutate := range map[interceptors.Phase]func(context.Context, *interceptors.Invocation) (*interceptors.Change, error){
		interceptors.PhaseRequest: s.request, interceptors.PhaseResponse: s.response,
	} {
		err := server.Add(&interceptors.Mutator{
			Descriptor: interceptors.Descriptor{
				Name: "spy/" + string(phase), Type: interceptors.TypeMutation,
				Hooks: []interceptors.Hook{{Events: []string{"*"}, Phase: phase}},
			},
			Mutate: mutate,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Use(chain.Local("spy", server), nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// errorOf returns the id, code, message and reason of an error answer.
func errorOf(t *testing.T, line string) (id string, code int, message, reason string) {
	t.Helper()
	var m struct {
		ID    json.RawMessage
		Error *struct {
			Code    int
			Message string
			Data    struct{ Reason string }
		}
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(line))).Decode(&m); err != nil || m.Error == nil {
		t.Fatalf("%.300s is no error answer (%v)", line, err)
	}
	return string(m.ID), m.Error.Code, m.Error.Message, m.Error.Data.Reason
}
