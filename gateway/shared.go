package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/internal/splice"
)

// shared is one upstream for all stateless agents of a tenant and principal. Their ids, progress tokens
// and subscription ids may collide, so that each request goes out under a number of ours.
type shared struct {
	core
	gateway *Gateway
	key     sharedKey

	users int // guarded by Gateway.mu
	idle  *time.Timer

	mu    sync.Mutex
	calls map[string]*sharedCall // by the key of our number
}

type sharedKey struct{ tenant, principal string }

// sharedCall is one request of an agent on a shared upstream.
type sharedCall struct {
	m      *Message        // as the agent sent it
	number json.RawMessage // its id and its progress token upstream
	token  json.RawMessage // the agent's progress token; nil without one
	notes  chan *Message   // what belongs to it beside its answer

	arrival arrival
	judging sync.WaitGroup // of notifications that the chain still looks at
}

// noteQueue bounds what one slow agent may leave unread before its notifications are dropped: the
// upstream speaks to others too.
const noteQueue = 1024

var errGatewayClosed = errors.New("gateway is closed")

func (g *Gateway) sharedFor(info AgentInfo) (*shared, error) {
	key := sharedKey{info.Tenant, info.Principal}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errGatewayClosed
	}
	s := g.shared[key]
	if s == nil {
		info.Session = "" // it is of many
		s = &shared{gateway: g, key: key, calls: make(map[string]*sharedCall)}
		s.init(g, info)
		s.newID = func(n uint64) json.RawMessage { return strconv.AppendUint(nil, n, 10) }
		s.link.receive = s.fromUpstream
		s.link.down = s.upstreamDown
		g.shared[key] = s
	}
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	s.users++
	return s, nil
}

// release ends a use of the upstream, which is closed when nobody has used it for a while.
func (s *shared) release() {
	g := s.gateway
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.users--; s.users == 0 && !g.closed {
		s.idle = time.AfterFunc(g.opts.SharedIdle, s.expire)
	}
}

func (s *shared) expire() {
	g := s.gateway
	g.mu.Lock()
	gone := s.users == 0 && g.shared[s.key] == s && s.open.wait(0, nil) == 0
	if gone {
		delete(g.shared, s.key)
	} else if s.users == 0 && !g.closed { // a dispatch goes on without its caller
		s.idle = time.AfterFunc(g.opts.SharedIdle, s.expire)
	}
	g.mu.Unlock()
	if gone {
		s.link.close()
	}
}

func (g *Gateway) closeShared(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	all := make([]*shared, 0, len(g.shared))
	for _, s := range g.shared {
		if s.idle != nil {
			s.idle.Stop()
		}
		all = append(all, s)
	}
	g.mu.Unlock()
	var left int
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, s := range all {
		wg.Go(func() {
			n := s.open.wait(g.opts.Drain, ctx.Done())
			s.link.close()
			mu.Lock()
			left += n
			mu.Unlock()
		})
	}
	wg.Wait()
	if err := g.opts.Chain.Wait(ctx); err != nil {
		return fmt.Errorf("close gateway: wait for the chain: %w", err)
	}
	if left > 0 {
		return fmt.Errorf("close gateway: %d calls had not ended", left)
	}
	return nil
}

func (s *shared) do(ctx context.Context, m *Message, send func(*Message) error) error {
	switch {
	case m.IsNotification() && (chain.Governed(m.Method) || m.Method == methodCancelled):
		// A request without an id cannot be answered, and this generation cancels by hanging up.
		s.logger.Warn("notification dropped", slog.String("method", m.Method))
		return nil
	case m.IsNotification():
		s.link.notify(m)
		return nil
	case !m.IsRequest():
		return &RefusedError{ID: m.ID, Code: codeInvalidRequest, Message: "this endpoint takes requests and notifications"}
	}
	c := s.begin(m)
	if c == nil {
		return send(NewError(m.ID, codeInternal, fmt.Sprintf("%d requests are in flight, and no more are taken", s.opts.MaxInFlight), nil))
	}
	defer s.finish(c)
	if chain.Governed(m.Method) {
		return s.doGoverned(ctx, c, send)
	}
	return s.doForward(ctx, c, send)
}

// begin enters a request under a number of ours; nil when there are too many.
func (s *shared) begin(m *Message) *sharedCall {
	number := s.newID(s.lastID.Add(1))
	c := &sharedCall{m: m, number: number, notes: make(chan *Message, noteQueue), arrival: s.deliveries.arrived()}
	if token := splice.Get(m.Params, "_meta", "progressToken"); len(token) > 0 && token[0] != 'n' {
		c.token = token
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) >= s.opts.MaxInFlight {
		return nil
	}
	s.calls[idKey(number)] = c
	return c
}

func (s *shared) finish(c *sharedCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, idKey(c.number))
}

// outgoing makes the message for the upstream of the params that are to go out.
func (c *sharedCall) outgoing(params json.RawMessage) *Message {
	m := withParams(c.m, params)
	if c.token != nil {
		if mapped, err := splice.Set(params, c.number, "_meta", "progressToken"); err == nil {
			m = m.WithParams(mapped)
		}
	}
	return m.WithID(c.number)
}

// doGoverned takes a request through the chain and sends what belongs to it meanwhile.
func (s *shared) doGoverned(ctx context.Context, c *sharedCall, send func(*Message) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := &governed{
		m:         c.m,
		arrival:   c.arrival,
		outgoing:  c.outgoing,
		cancelled: func(context.Context) json.RawMessage { return cancelParams(c.number, "no longer awaited") },
		agent: waiter{
			can:    func() abilities { return s.canElicit(c.m) },
			ending: s.gateway.ending,
			tell:   func(m *Message) { s.queue(c, m) },
		},
	}
	replies := make(chan *chain.Reply, 1)
	go func() { replies <- s.govern(ctx, g) }()
	var sendErr error
	for {
		select {
		case note := <-c.notes:
			if sendErr == nil {
				if sendErr = send(note); sendErr != nil {
					cancel() // and wait for the chain: it is quick to let go
				}
			}
		case reply := <-replies:
			if sendErr == nil {
				sendErr = s.flush(c, send)
			}
			if sendErr == nil && ctx.Err() != nil {
				sendErr = ctx.Err()
			}
			s.deliveries.deliver(reply, func() bool {
				if sendErr == nil {
					answer := *s.response(g, reply)
					answer.OnLoss = reply.Withdraw()
					sendErr = send(&answer)
				}
				return sendErr == nil
			})
			return sendErr
		}
	}
}

// flush sends what came before the answer.
func (s *shared) flush(c *sharedCall, send func(*Message) error) error {
	c.judging.Wait()
	for {
		select {
		case note := <-c.notes:
			if err := send(note); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// doForward passes an ungoverned request on, a subscription for instance.
func (s *shared) doForward(ctx context.Context, c *sharedCall, send func(*Message) error) error {
	ends := make(chan ending, 1)
	params := c.m.Params
	if c.m.Method == methodTaskUpdate {
		told, refusal := s.taskTold(ctx, c.m)
		if refusal != nil {
			return send(refusal)
		}
		params = told.Params
	}
	out := c.outgoing(params)
	if _, err := s.link.request(ctx, out, func(e ending) { ends <- e }); err != nil {
		return send(s.failure(c.m.ID, err))
	}
	for {
		var err error
		select {
		case note := <-c.notes:
			err = send(note)
		case e := <-ends:
			if err := s.flush(c, send); err != nil {
				return err
			}
			return s.sendForwarded(ctx, c, e, send)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			s.link.abandon(c.number, cancelParams(c.number, "no longer awaited"))
			return err
		}
	}
}

// sendForwarded sends the answer to an ungoverned request. What it tells of a task's end passes the chain.
func (s *shared) sendForwarded(ctx context.Context, c *sharedCall, e ending, send func(*Message) error) (err error) {
	answer := s.forwarded(c, e)
	if answer.Result == nil || !tellsOfTask(c.m.Method) {
		return send(answer)
	}
	told, reply := s.taskAnswer(ctx, c.m, answer)
	s.deliveries.deliver(reply, func() bool {
		err = send(told)
		return err == nil
	})
	return err
}

func (s *shared) forwarded(c *sharedCall, e ending) *Message {
	switch {
	case e.m == nil:
		return s.failure(c.m.ID, e.cause)
	case e.m.Truncated:
		return NewErrorObject(c.m.ID, s.tooLarge(e.m.Size))
	case e.m.Error != nil:
		return s.scrubbed(e.m).WithID(c.m.ID)
	}
	result := c.restore(e.m.Result, metaSubscription)
	if c.m.Method == methodDiscover {
		s.learn(c.m.Method, result)
		result = declare(result)
	}
	answer := e.m
	if !bytes.Equal(result, answer.Result) {
		answer = answer.WithResult(result)
	}
	return answer.WithID(c.m.ID)
}

// restore puts the agent's id back where the upstream names our number in _meta.
func (c *sharedCall) restore(obj json.RawMessage, name string) json.RawMessage {
	if idKey(splice.Get(obj, "_meta", name)) != idKey(c.number) {
		return obj
	}
	restored, err := splice.Set(obj, c.m.ID, "_meta", name)
	if err != nil {
		return obj
	}
	return restored
}

// fromUpstream finds the call to which a message of the upstream belongs. One that belongs to none has
// no agent to go to: in this generation nothing is said outside a request.
func (s *shared) fromUpstream(m *Message) {
	if m.IsRequest() {
		s.link.notify(NewError(m.ID, codeMethodNotFound, "no agent can be asked here", nil))
		return
	}
	if m.Method == methodListChanged {
		s.primer.stale()
	}
	c := s.callOf(m)
	if c != nil && m.Method == methodTaskNote && splice.Get(m.Params, "result") != nil {
		s.noteOfTask(c, m)
		return
	}
	if c == nil {
		s.logger.Debug("notification of no request dropped", slog.String("method", m.Method))
		return
	}
	s.pass(c, m)
}

func (s *shared) pass(c *sharedCall, m *Message) { s.queue(c, c.incoming(m)) }

// queue has a message that belongs to c sent to its agent.
func (s *shared) queue(c *sharedCall, m *Message) {
	select {
	case c.notes <- m:
	default:
		s.logger.Warn("notification dropped: the agent does not read", slog.String("method", m.Method))
	}
}

// noteOfTask passes on a notification that carries the result of a task, apart from the goroutine that
// reads: the result passes the chain.
func (s *shared) noteOfTask(c *sharedCall, m *Message) {
	s.open.add()
	c.judging.Add(1)
	go func() {
		defer s.open.done()
		defer c.judging.Done()
		told, reply := s.taskNote(s.link.ctx, m)
		if told != nil {
			s.pass(c, told)
		}
		reply.Delivered(false) // whether it is read is not known here
	}()
}

func (s *shared) callOf(m *Message) *sharedCall {
	id := splice.Get(m.Params, "_meta", metaSubscription)
	switch {
	case id != nil:
	case m.Method == methodProgress:
		id = splice.Get(m.Params, "progressToken")
	case m.Method == methodCancelled:
		id = splice.Get(m.Params, "requestId")
	case m.For != nil:
		id = m.For
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == nil && len(s.calls) == 1 { // nobody else can be meant
		for _, only := range s.calls {
			return only
		}
	}
	return s.calls[idKey(id)]
}

// incoming gives a message of the upstream the agent's ids again.
func (c *sharedCall) incoming(m *Message) *Message {
	params := c.restore(m.Params, metaSubscription)
	var with json.RawMessage
	name := ""
	switch m.Method {
	case methodProgress:
		name, with = "progressToken", c.token
	case methodCancelled:
		name, with = "requestId", c.m.ID
	}
	if with != nil {
		if restored, err := splice.Set(params, with, name); err == nil {
			params = restored
		}
	}
	return withParams(m, params)
}

// upstreamDown has the next upstream looked at again: it may be another program by now.
func (s *shared) upstreamDown(cause error) {
	s.primer.stale()
	if s.link.ctx.Err() == nil {
		s.logger.Warn("upstream has gone", slog.String("upstream", s.opts.Label), slog.Any("cause", cause))
	}
}
