package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/undolog/undolog/internal/splice"
)

// httpAgent is the agent's end of one session up to 2025-11-25: what its POSTs bring is read from it,
// and what is written to it finds its way to the right HTTP response.
type httpAgent struct {
	id     string
	info   AgentInfo
	opts   *HTTPOptions
	logger *slog.Logger
	cancel context.CancelFunc // ends the relay
	inbox  chan *Message
	ended  context.Context // ends with Close
	end    context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	posts   map[string]*agentPost // requests under way, by idKey
	tokens  map[string]*agentPost // the same, by progress token
	stream  *answerStream         // the GET stream; nil: none is open
	queue   []*queued             // for the next GET stream
	holds   int                   // HTTP requests being served
	idle    *time.Timer
	dropped bool // queue has overflown; said once
}

// agentPost is a POST that carried requests, until all are answered.
type agentPost struct {
	stream *answerStream
	open   int // requests without an answer
}

// queued is a message that waits for a GET stream.
type queued struct {
	message *Message
	timer   *time.Timer // for requests: when it is refused instead
	taken   bool        // sent, or being refused
}

var (
	_ Conn   = (*httpAgent)(nil)
	_ leaver = (*httpAgent)(nil)
)

func newHTTPAgent(id string, info AgentInfo, o *HTTPOptions, cancel context.CancelFunc) *httpAgent {
	a := &httpAgent{
		id:     id,
		info:   info,
		opts:   o,
		logger: o.Logger.With(slog.String("session", shorten(id))),
		cancel: cancel,
		inbox:  make(chan *Message),
		posts:  make(map[string]*agentPost),
		tokens: make(map[string]*agentPost),
	}
	a.ended, a.end = context.WithCancel(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock() // a very short time-out may fire before it is assigned
	a.idle = time.AfterFunc(o.IdleTimeout, a.endIdle)
	return a
}

// Read returns the next message that the agent has posted.
func (a *httpAgent) Read(ctx context.Context) (*Message, error) {
	select {
	case m := <-a.inbox:
		return m, nil
	case <-a.ended.Done():
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write sends m on the HTTP response that it belongs to. An answer whose POST the agent has closed is
// not written: a later response cannot carry it.
func (a *httpAgent) Write(_ context.Context, m *Message) (written bool, err error) {
	switch {
	case m.IsResponse():
		err = a.answer(m)
	case m.IsRequest():
		err = a.ask(m)
	default:
		err = a.tell(m)
	}
	return err == nil, err
}

// Close ends every response and makes Read return.
func (a *httpAgent) Close() error {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil
	}
	a.closed = true
	a.end()
	a.idle.Stop()
	for _, q := range a.queue {
		if q.timer != nil {
			q.timer.Stop()
		}
	}
	a.queue = nil
	stream := a.stream
	a.mu.Unlock()
	if stream != nil {
		stream.close()
	}
	a.work.Wait()
	return nil
}

// push hands m to Read.
func (a *httpAgent) push(ctx context.Context, m *Message) error {
	select {
	case a.inbox <- m:
		return nil
	case <-a.ended.Done():
		return errors.New("the session has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin enters the requests among messages as those of a new POST. It fails, and enters none, when an
// id is under way already.
func (a *httpAgent) begin(messages []*Message, stream *answerStream) (*agentPost, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	post := &agentPost{stream: stream}
	here := map[string]bool{}
	for _, m := range messages {
		if !m.IsRequest() {
			continue
		}
		key := idKey(m.ID)
		twice := here[key]
		here[key] = true
		if twice || a.posts[key] != nil {
			return nil, &RefusedError{ID: m.ID, Method: m.Method, Code: codeInvalidRequest, Message: "a request with this id is under way"}
		}
	}
	for _, m := range messages {
		if !m.IsRequest() {
			continue
		}
		a.posts[idKey(m.ID)] = post
		post.open++
		if token := splice.Get(m.Params, "_meta", "progressToken"); token != nil {
			a.tokens[idKey(token)] = post
		}
	}
	return post, nil
}

// settle takes the request id off the list. last says that its POST has no other without an answer.
func (a *httpAgent) settle(id json.RawMessage) (post *agentPost, last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := idKey(id)
	post = a.posts[key]
	if post == nil {
		return nil, false
	}
	delete(a.posts, key)
	post.open--
	if post.open > 0 {
		return post, false
	}
	for token, p := range a.tokens {
		if p == post {
			delete(a.tokens, token)
		}
	}
	return post, true
}

// answer writes a response on the stream of its request.
func (a *httpAgent) answer(m *Message) error {
	post, last := a.settle(m.ID)
	if post == nil {
		return fmt.Errorf("answer request %s: %w", shorten(string(m.ID)), errStreamClosed)
	}
	return post.stream.send(m, last)
}

// Left is closed when the response of the request id is: no later one can carry its answer. Nil: the request is
// not under way.
func (a *httpAgent) Left(id json.RawMessage) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if post := a.posts[idKey(id)]; post != nil {
		return post.stream.over
	}
	return nil
}

// abandon ends the stream of a request that the agent has cancelled: MCP answers it with nothing.
func (a *httpAgent) abandon(id json.RawMessage) {
	if post, last := a.settle(id); post != nil && last {
		post.stream.close()
	}
}

// tell sends a notification to where it belongs: its request's response, else the GET stream.
func (a *httpAgent) tell(m *Message) error {
	a.mu.Lock()
	stream := a.related(m)
	if stream == nil && m.Method == "notifications/message" {
		stream = a.onlyPost()
	}
	if stream == nil && a.stream != nil {
		stream = a.stream
	}
	if stream == nil {
		defer a.mu.Unlock()
		return a.enqueue(&queued{message: m})
	}
	a.mu.Unlock()
	return stream.send(m, false)
}

// ask sends a request of the upstream. Where nothing says which call it belongs to, the only candidate
// under way takes it, else the GET stream; without one it waits for StreamWait and is then refused.
func (a *httpAgent) ask(m *Message) error {
	a.mu.Lock()
	stream := a.related(m)
	if stream == nil {
		stream = a.onlyPost()
	}
	if stream == nil {
		stream = a.stream
	}
	if stream != nil {
		a.mu.Unlock()
		if err := stream.send(m, false); err == nil {
			return nil
		}
		a.mu.Lock()
	}
	defer a.mu.Unlock()
	q := &queued{message: m}
	q.timer = time.AfterFunc(a.opts.StreamWait, func() { a.refuse(q) })
	return a.enqueue(q)
}

// related returns the open stream that m belongs to, as far as m says. a.mu is held.
func (a *httpAgent) related(m *Message) *answerStream {
	var post *agentPost
	if m.Method == methodProgress {
		post = a.tokens[idKey(splice.Get(m.Params, "progressToken"))]
	}
	if post == nil && m.For != nil {
		post = a.posts[idKey(m.For)]
	}
	if post == nil || !post.stream.takesEvents() {
		return nil
	}
	return post.stream
}

// onlyPost returns the stream of the only request under way that can carry other messages; nil when
// there is none or more than one. a.mu is held.
func (a *httpAgent) onlyPost() *answerStream {
	var only *answerStream
	for _, post := range a.posts {
		if !post.stream.takesEvents() || post.stream == only {
			continue
		}
		if only != nil {
			return nil
		}
		only = post.stream
	}
	return only
}

// enqueue keeps q for the next GET stream. a.mu is held.
func (a *httpAgent) enqueue(q *queued) error {
	if a.closed {
		return errStreamClosed
	}
	if len(a.queue) >= a.opts.QueueSize {
		if !a.dropped {
			a.dropped = true
			a.logger.Warn("agent reads no stream, its oldest messages are dropped", slog.Int("kept", a.opts.QueueSize))
		}
		oldest := a.queue[0]
		a.queue = a.queue[1:]
		if oldest.timer != nil {
			oldest.timer.Reset(0)
		}
	}
	a.queue = append(a.queue, q)
	return nil
}

// refuse answers a request of the upstream that no stream of the agent could take.
func (a *httpAgent) refuse(q *queued) {
	if !a.takeForRefusal(q) {
		return
	}
	defer a.work.Done()
	// Close unblocks it.
	a.push(context.Background(), NewError(q.message.ID, codeInternal, "the agent has no open stream that could take this request", nil))
}

func (a *httpAgent) takeForRefusal(q *queued) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || q.taken {
		return false
	}
	q.taken = true
	if i := slices.Index(a.queue, q); i >= 0 {
		a.queue = slices.Delete(a.queue, i, i+1)
	}
	a.work.Add(1)
	return true
}

// listen makes stream the GET stream, in place of an older one.
func (a *httpAgent) listen(stream *answerStream) {
	a.mu.Lock()
	older := a.stream
	a.stream = stream
	a.mu.Unlock()
	if older != nil {
		older.close()
	}
}

// catchUp sends what has waited for the GET stream.
func (a *httpAgent) catchUp(stream *answerStream) error {
	for {
		q := a.nextFor(stream)
		if q == nil {
			return nil
		}
		if err := stream.send(q.message, false); err != nil {
			a.putBack(q)
			return err
		}
	}
}

// nextFor takes the first message that waits for a GET stream; nil when there is none, or when that is another by now.
func (a *httpAgent) nextFor(stream *answerStream) *queued {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stream != stream || len(a.queue) == 0 {
		return nil
	}
	q := a.queue[0]
	a.queue = a.queue[1:]
	q.taken = true
	if q.timer != nil {
		q.timer.Stop()
	}
	return q
}

// putBack keeps what a stream could not take for the next one.
func (a *httpAgent) putBack(q *queued) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	q.taken = false
	if q.timer != nil {
		q.timer.Reset(a.opts.StreamWait)
	}
	a.queue = slices.Insert(a.queue, 0, q)
}

// unlisten forgets stream as the GET stream.
func (a *httpAgent) unlisten(stream *answerStream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stream == stream {
		a.stream = nil
	}
}

// hold keeps the session from ending idle until release.
func (a *httpAgent) hold() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holds++
	a.idle.Stop()
}

func (a *httpAgent) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holds--
	if a.holds == 0 && !a.closed {
		a.idle.Reset(a.opts.IdleTimeout)
	}
}

// endIdle ends the session, unless a request is under way whose POST the agent has closed.
func (a *httpAgent) endIdle() {
	a.mu.Lock()
	busy := a.holds > 0 || len(a.posts) > 0
	if busy && a.holds == 0 && !a.closed {
		a.idle.Reset(a.opts.IdleTimeout)
	}
	a.mu.Unlock()
	if !busy {
		a.logger.Info("idle session ended")
		a.cancel()
	}
}
