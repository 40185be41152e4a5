package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/internal/splice"
)

// linger is how long requests may still be answered after the agent has closed its end: a script that
// pipes its requests in reads the answers later.
const linger = 5 * time.Second

// session relays between one agent and an upstream of its own. Ids are the same on both sides.
type session struct {
	core
	agent  Conn
	replay replay
	order  order
	calls  tracker // goroutines of governed requests
	gone   atomic.Bool
	ownIDs string // what the ids of our own requests begin with

	reading context.Context // ends when nothing more is taken from the agent
	ctx     context.Context // ends when the session is over
	cancel  context.CancelFunc

	inFlightMu sync.Mutex
	inFlight   map[string]*call // of the agent
	greeting   chan struct{}    // closed when the last initialize has been answered; nil before the first
	answered   answered
	asked      map[string]*asking // requests to the agent
	ending     chan struct{}      // closed when no call is held any more
	busy       tracker            // the agent's requests, subscriptions aside
}

// call is a request of the agent under way.
type call struct {
	m         *Message
	cancel    context.CancelCauseFunc // nil when not governed
	cancelled bool
	arrival   arrival
	turn      *turn         // of a governed request
	greeting  chan struct{} // of an initialize: closed when it has ended
	open      bool          // it ends when the agent says so, not when it is answered
}

// cancelledError is the cause of a context that the agent has cancelled.
type cancelledError struct{ params json.RawMessage }

func (e *cancelledError) Error() string { return "cancelled by the agent" }

func (g *Gateway) newSession(agent Conn, info AgentInfo) *session {
	s := &session{
		agent:    agent,
		inFlight: make(map[string]*call),
		asked:    make(map[string]*asking),
		ending:   make(chan struct{}),
	}
	s.init(g, info)
	s.ownIDs = "undolog:" + rand.Text() + ":" // the agent's ids are the agent's choice
	s.newID = func(n uint64) json.RawMessage { return fmt.Appendf(nil, "%q", fmt.Sprint(s.ownIDs, n)) }
	s.link.receive = s.fromUpstream
	s.link.revive = func(ctx context.Context, conn Conn) error { return s.replay.run(ctx, &s.core, conn) }
	s.link.down = s.upstreamDown
	return s
}

func (s *session) run(ctx context.Context) error {
	s.reading = ctx
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer s.cancel()
	if _, err := s.link.open(ctx); err != nil {
		s.link.close()
		return errors.Join(notStarted(ctx, err), s.agent.Close())
	}
	err := s.readAgent(ctx)
	s.end(ctx)
	if closeErr := s.agent.Close(); err == nil {
		err = closeErr
	}
	return err
}

// notStarted is what Serve says of an upstream that could not be opened at all.
func notStarted(ctx context.Context, err error) error {
	var down *DownError
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.As(err, &down):
		return down.Cause
	}
	return err
}

// readAgent takes what the agent says until it has gone or ctx ends.
func (s *session) readAgent(ctx context.Context) error {
	defer s.gone.Store(true)
	for {
		m, err := s.agent.Read(ctx)
		var refused *RefusedError
		switch {
		case errors.As(err, &refused):
			s.refused(refused)
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read from agent: %w", err)
		default:
			s.fromAgent(m)
		}
	}
}

// refused deals with a message of the agent that is not relayed.
func (s *session) refused(r *RefusedError) {
	s.logger.Warn("message of the agent refused", slog.String("method", r.Method), slog.String("error", r.Message))
	if r.IsResponse() {
		if s.answerAsked(NewError(r.ID, codeInternal, "the answer was refused: "+r.Message, nil)) {
			return
		}
		if s.isInFlight(r.ID) { // an error under this id would be taken for that request's answer
			s.toAgent(NewError(nil, r.Code, r.Message, nil))
			return
		}
	}
	s.toAgent(NewError(r.ID, r.Code, r.Message, nil))
}

// fromAgent takes one message of the agent.
func (s *session) fromAgent(m *Message) {
	switch {
	case m.Truncated:
		s.refused(&RefusedError{ID: m.ID, Method: m.Method, Code: codeInvalidRequest,
			Message: fmt.Sprintf("message of %d bytes is above the limit", m.Size)})
	case m.IsResponse():
		if s.answerAsked(m) {
			return
		}
		s.logger.Debug("answer to no request dropped", slog.String("id", string(m.ID)))
	case m.IsNotification():
		s.notification(m)
	default:
		s.request(m)
	}
}

func (s *session) notification(m *Message) {
	switch {
	case chain.Governed(m.Method):
		// Without an id there is no answer, and without an answer there is nothing to record.
		s.logger.Warn("request without an id dropped", slog.String("method", m.Method))
	case m.Method == methodCancelled:
		s.cancelCall(m)
	default:
		if m.Method == methodInitialized {
			s.replay.initialized(m)
		}
		s.link.notify(m)
		if m.Method == methodInitialized {
			s.takeUp(m)
		}
	}
}

// cancelCall ends a call that the agent does not want any more. What becomes of a governed one at the
// upstream is for the chain to say.
func (s *session) cancelCall(m *Message) {
	id := splice.Get(m.Params, "requestId")
	s.inFlightMu.Lock()
	c := s.inFlight[idKey(id)]
	if c != nil && c.m.Method != methodInitialize {
		c.cancelled = true
	}
	s.inFlightMu.Unlock()
	switch {
	case c == nil: // answered already, or going on without its caller
		s.answered.withdraw(id) // the agent had given it up when its answer came
		s.logger.Debug("cancellation of no request dropped", slog.String("id", string(id)))
	case c.cancel != nil:
		c.cancel(&cancelledError{m.Params})
	case c.cancelled:
		if s.link.abandon(id, m.Params) {
			s.finish(c)
		}
	}
}

func (s *session) request(m *Message) {
	c, err := s.begin(m)
	if err != nil {
		s.toAgent(NewError(m.ID, codeInvalidRequest, err.Error(), nil))
		return
	}
	if m.Method == methodInitialize {
		c.greeting = make(chan struct{})
		s.inFlightMu.Lock()
		s.greeting = c.greeting
		s.inFlightMu.Unlock()
	}
	switch {
	case m.Method == methodTaskUpdate:
		s.updateTask(c)
		return
	case !chain.Governed(m.Method):
		s.forward(c)
		return
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	s.inFlightMu.Lock()
	c.cancel = cancel
	c.turn = s.order.take()
	greeting := s.greeting
	s.inFlightMu.Unlock()
	s.calls.add()
	go func() {
		growStack()
		defer s.calls.done()
		defer cancel(nil)
		defer c.turn.leave()
		if greeting != nil { // a call that came too early is known by the name that the upstream is about to say
			_ = waitFor(ctx, greeting) // a cancelled call ends in the chain
		}
		s.governed(ctx, c)
	}()
}

// growStack gives a goroutine that is about to go deep, as the claim of a call does, the stack for it at
// once: growing it step by step from below costs about 50 µs a call, in copies of all that stands on it.
//
//go:noinline
func growStack() {
	var room [32 << 10]byte
	runtime.KeepAlive(&room)
}

// begin enters a request of the agent. Its id may be under way once: an answer could not be told from
// the other's.
func (s *session) begin(m *Message) (*call, error) {
	c := &call{m: m, open: m.Method == methodListen, arrival: s.deliveries.arrived()}
	key := idKey(m.ID)
	detached := s.link.inFlight(m.ID)
	s.inFlightMu.Lock()
	defer s.inFlightMu.Unlock()
	switch {
	case detached || s.inFlight[key] != nil:
		return nil, fmt.Errorf("request id %s is in use by a request that has not ended", m.ID)
	case len(s.inFlight) >= s.opts.MaxInFlight:
		return nil, fmt.Errorf("%d requests are in flight, and no more are taken", len(s.inFlight))
	}
	s.inFlight[key] = c
	if !c.open {
		s.busy.add()
	}
	return c, nil
}

func (s *session) isInFlight(id json.RawMessage) bool {
	s.inFlightMu.Lock()
	defer s.inFlightMu.Unlock()
	return s.inFlight[idKey(id)] != nil
}

// finish takes a request out again and reports whether the agent has cancelled it.
func (s *session) finish(c *call) (cancelled bool) {
	key := idKey(c.m.ID)
	s.inFlightMu.Lock()
	defer s.inFlightMu.Unlock()
	if s.inFlight[key] != c {
		return c.cancelled
	}
	delete(s.inFlight, key)
	if !c.open {
		s.busy.done()
	}
	if c.greeting != nil {
		close(c.greeting)
	}
	return c.cancelled
}

// updateTask passes the agent's answers to a task on, apart: they pass the chain.
func (s *session) updateTask(c *call) {
	s.calls.add()
	go func() {
		defer s.calls.done()
		out, refusal := s.taskTold(s.ctx, c.m)
		if refusal != nil {
			if !s.finish(c) {
				_ = s.toAgent(refusal)
			}
			return
		}
		_, err := s.link.request(s.reading, out, func(e ending) { s.forwarded(c, e) })
		if err != nil {
			s.forwarded(c, ending{cause: err})
		}
	}()
}

// forward passes an ungoverned request on as it is.
func (s *session) forward(c *call) {
	_, err := s.link.request(s.reading, c.m, func(e ending) { s.forwarded(c, e) })
	if err != nil {
		s.forwarded(c, ending{cause: err})
	}
}

func (s *session) forwarded(c *call, e ending) {
	answer := e.m
	switch {
	case answer == nil:
		answer = s.failure(c.m.ID, e.cause)
	case answer.Truncated:
		answer = NewErrorObject(c.m.ID, s.tooLarge(answer.Size))
	case answer.Error != nil:
		answer = s.scrubbed(answer)
	case c.m.Method == methodInitialize || c.m.Method == methodDiscover:
		answer = s.introduced(c.m, answer)
	case tellsOfTask(c.m.Method):
		s.tellOfTask(c, answer)
		return
	}
	if !s.finish(c) {
		s.toAgent(answer)
	}
}

// tellOfTask passes on what the upstream says of a task, apart from the goroutine that reads it: the end
// of one passes the chain.
func (s *session) tellOfTask(c *call, answer *Message) {
	s.calls.add()
	go func() {
		defer s.calls.done()
		told, reply := s.taskAnswer(s.ctx, c.m, answer)
		cancelled := s.finish(c)
		s.deliveries.deliver(reply, func() bool { return !cancelled && s.toAgent(told) == nil })
	}()
}

// introduced learns from the answer to initialize or server/discover, and adds our extension to it.
func (s *session) introduced(m, answer *Message) *Message {
	s.learn(m.Method, answer.Result)
	if m.Method == methodInitialize {
		s.replay.initialize(m)
		s.mu.Lock()
		s.abilities = abilitiesOf(splice.Get(m.Params, "capabilities"))
		s.mu.Unlock()
	}
	declared := declare(answer.Result)
	if bytes.Equal(declared, answer.Result) {
		return answer
	}
	return answer.WithResult(declared)
}

// governed takes one request through the chain and answers it, unless the agent has cancelled it: then
// nothing may be sent.
func (s *session) governed(ctx context.Context, c *call) {
	sent := c.m.ID
	g := &governed{
		m:       c.m,
		arrival: c.arrival,
		turn:    c.turn,
		outgoing: func(params json.RawMessage) *Message {
			out := withParams(c.m, params)
			if s.link.isStale(out.ID) {
				out = out.WithID(s.newID(s.lastID.Add(1)))
			}
			sent = out.ID
			return out
		},
		cancelled: func(ctx context.Context) json.RawMessage { return cancelReason(ctx, c.m.ID, sent) },
		agent:     s.waiter(c),
	}
	reply := s.govern(ctx, g)
	response := s.response(g, reply)
	if reply.Error == nil {
		s.replay.note(c.m)
	}
	loss := reply.Withdraw()
	s.answered.add(c.m.ID, loss) // before a cancellation can find that the call is not under way any more
	if s.finish(c) {
		reply.Delivered(false)
		return
	}
	// An agent that has closed its end waits for us to end and for nothing else: what is written to it then
	// is no evidence that it has the answer.
	gone := s.gone.Load()
	answer := *response
	answer.OnLoss = loss
	s.deliveries.deliver(reply, func() bool { return s.toAgent(&answer) == nil && !gone })
}

// waiter is the agent's end of a call.
func (s *session) waiter(c *call) waiter {
	w := waiter{
		can:    func() abilities { return s.canElicit(c.m) },
		ending: s.ending,
		tell: func(m *Message) {
			m.For = c.m.ID
			_ = s.toAgent(m) // an agent that is gone is noticed by its reader
		},
		elicit: func(params json.RawMessage) (<-chan *Message, func()) { return s.elicit(c.m.ID, params) },
	}
	if agent, ok := s.agent.(leaver); ok {
		w.left = agent.Left(c.m.ID)
	}
	return w
}

// leaver is a Conn whose agent can give up waiting for one answer while the session goes on.
type leaver interface {
	// Left returns what is closed when no answer to the request id can reach the agent any more.
	Left(id json.RawMessage) <-chan struct{}
}

func withParams(m *Message, params json.RawMessage) *Message {
	if bytes.Equal(m.Params, params) {
		return m
	}
	return m.WithParams(params)
}

// cancelReason returns the params of notifications/cancelled for the request id that was sent on under
// the id sent: the agent's own when the agent has cancelled.
func cancelReason(ctx context.Context, id, sent json.RawMessage) json.RawMessage {
	var byAgent *cancelledError
	if !errors.As(context.Cause(ctx), &byAgent) {
		return cancelParams(sent, "no longer awaited")
	}
	if bytes.Equal(id, sent) {
		return byAgent.params
	}
	params, err := splice.Set(byAgent.params, sent, "requestId")
	if err != nil { // its requestId was found there
		return cancelParams(sent, "no longer awaited")
	}
	return params
}

func (s *session) toAgent(m *Message) error {
	_, err := s.agent.Write(s.ctx, m)
	if err != nil {
		s.logger.Debug("message not sent to the agent", slog.Any("error", err))
	}
	return err
}

// fromUpstream takes what the upstream says of its own accord.
func (s *session) fromUpstream(m *Message) {
	switch {
	case m.IsRequest():
		s.askAgent(m)
		return
	case m.Method == methodListChanged:
		s.primer.stale()
	case m.Method == methodCancelled:
		s.forgetAsked(splice.Get(m.Params, "requestId"))
	case m.Method == methodTaskNote && s.isOwn(m.For):
		return // beside an answer to ourselves, which says the same
	case m.Method == methodTaskNote && splice.Get(m.Params, "result") != nil:
		s.noteOfTask(m)
		return
	}
	_ = s.toAgent(m) // an agent that is gone is noticed by its reader
}

// isOwn reports whether an id is that of a request of our own.
func (s *session) isOwn(id json.RawMessage) bool {
	return id != nil && strings.HasPrefix(unquote(id), s.ownIDs)
}

// noteOfTask passes on a notification that carries the result of a task.
func (s *session) noteOfTask(m *Message) {
	s.calls.add()
	go func() {
		defer s.calls.done()
		if told, reply := s.taskNote(s.ctx, m); told != nil {
			s.deliveries.deliver(reply, func() bool { return s.toAgent(told) == nil })
		}
	}()
}

// upstreamDown takes back what the upstream had asked the agent.
func (s *session) upstreamDown(cause error) {
	s.primer.stale()
	if s.ctx.Err() == nil && s.link.ctx.Err() == nil {
		s.logger.Warn("upstream has gone", slog.String("upstream", s.opts.Label), slog.Any("cause", cause))
	}
	for _, a := range s.forgetAllAsked() {
		_ = s.toAgent(NewNotification(methodCancelled, cancelParams(a.id, "the upstream has gone")))
	}
}

// end lets what is under way come to its end: first the answers that a reader may still want, then the
// dispatches that outlive their callers. What is left after that is lost with the upstream.
func (s *session) end(ctx context.Context) {
	close(s.ending)
	s.busy.wait(min(linger, max(s.opts.Drain, 0)), ctx.Done())
	s.inFlightMu.Lock()
	for _, c := range s.inFlight {
		if c.cancel != nil {
			c.cancel(errors.New("the session has ended"))
		}
	}
	s.inFlightMu.Unlock()
	if left := s.open.wait(s.opts.Drain, nil); left > 0 {
		s.logger.Warn("session ends before its calls have", slog.Int("calls", left))
	}
	s.closeUpstream()
	s.awaitSettled()
}

// awaitSettled lets the chain record the ends that closing has brought about, before who called Serve
// closes what they are recorded in.
func (s *session) awaitSettled() {
	ctx, cancel := context.WithTimeout(context.Background(), settleMost)
	defer cancel()
	if err := s.opts.Chain.Wait(ctx); err != nil { // perhaps another session's
		s.logger.Debug("chain has calls that go on", slog.Any("error", err))
	}
}

const settleMost = 5 * time.Second

// closeUpstream ends the upstream and waits for our own goroutines. An agent that does not read what it
// is sent holds them up; its end is then closed under them.
func (s *session) closeUpstream() {
	closed := make(chan struct{})
	go func() {
		s.link.close()
		for s.calls.wait(time.Hour, nil) > 0 {
		}
		close(closed)
	}()
	if await(stuckAfter, closed, nil) {
		return
	}
	s.cancel()
	s.agent.Close()
	if !await(stuckAfter, closed, nil) {
		s.logger.Error("session ends with a message that the agent does not take")
	}
}

const stuckAfter = 10 * time.Second

// await reports whether one of the channels, of which the second may be nil, was closed within d.
func await(d time.Duration, first, second <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-first:
		return true
	case <-second:
		return true
	case <-t.C:
		return false
	}
}
