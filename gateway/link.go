package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/undolog/undolog/internal/faults"
)

// link is a session's upstream over all its lives: the connection, the requests that are under way on
// it, and how it comes back when it has died.
//
//	down ─ open ─▶ up ─ the peer dies ─▶ down, not before retryAt
//	  └──────────── close ──────────────▶ closed
type link struct {
	target string
	logger *slog.Logger
	now    func() time.Time
	dial   func(ctx context.Context) (Conn, error)

	// revive brings a reopened upstream to where its predecessor was. It runs before others may send.
	revive func(ctx context.Context, conn Conn) error
	// receive is given what answers no request of this side. It is called by the reading goroutine.
	receive func(m *Message)
	// down is told that the upstream has died, after what was under way has ended.
	down func(cause error)

	readers sync.WaitGroup
	ctx     context.Context // ends when the link is closed
	cancel  context.CancelFunc

	mu       sync.Mutex
	conn     Conn     // nil while down
	busy     *attempt // somebody is opening or clearing away
	opened   bool     // it was up once
	upSince  time.Time
	failures int
	retryAt  time.Time
	cause    error // why it is down
	pending  map[string]*pending
	stale    map[string]bool // ids given up in this life that may still be answered
}

// pending is one request on its way to an answer. Exactly one of its ends happens: whoever takes it out
// of link.pending calls done.
type pending struct {
	done    func(ending)
	sending bool  // Write has not returned
	orphan  error // the upstream died while sending
}

// attempt is one try to open the upstream, or the clearing away of one that has died.
type attempt struct {
	done chan struct{}
	err  error // set before done is closed
}

// life is one connection of a link.
type life struct {
	conn  Conn
	dead  bool
	cause error
}

// ending is how a request ended: with an answer, or with the reason why none will come.
type ending struct {
	m     *Message
	cause error
}

// DownError says that an upstream is down and when it may be started again.
type DownError struct {
	After time.Duration // until the next try; zero: the next call tries
	Cause error
}

func (e *DownError) Error() string {
	if e.After <= 0 {
		return fmt.Sprintf("upstream is down: %v; it is started again on the next call", e.Cause)
	}
	return fmt.Sprintf("upstream is down: %v; it is not started again for %s", e.Cause, e.After.Round(100*time.Millisecond))
}

func (e *DownError) Unwrap() error { return e.Cause }

var errLinkClosed = errors.New("session has ended")

const (
	openTimeout  = 60 * time.Second // a package runner may have to download first
	backoffFirst = 500 * time.Millisecond
	backoffMost  = 30 * time.Second
	backoffWait  = time.Second      // a shorter pause is waited for
	healthyAfter = 10 * time.Second // of life, and earlier deaths are forgotten
)

// open returns the connection, and makes one when there is none. It fails with a *DownError while the
// upstream rests between two deaths.
func (l *link) open(ctx context.Context) (Conn, error) {
	for {
		l.mu.Lock()
		switch {
		case l.ctx.Err() != nil:
			l.mu.Unlock()
			return nil, errLinkClosed
		case l.conn != nil:
			defer l.mu.Unlock()
			return l.conn, nil
		case l.busy != nil:
			busy := l.busy
			l.mu.Unlock()
			if err := waitFor(ctx, busy.done); err != nil {
				return nil, err
			}
			if busy.err != nil {
				return nil, busy.err
			}
			continue
		}
		rest := l.retryAt.Sub(l.now())
		if rest > backoffWait {
			err := l.downError()
			l.mu.Unlock()
			return nil, err
		}
		busy := &attempt{done: make(chan struct{})}
		l.busy = busy
		l.readers.Add(1) // under the lock: close waits for it
		l.mu.Unlock()
		// Not under ctx: others wait for the same upstream, and a caller that leaves must not end it.
		go l.reopen(rest, busy)
	}
}

// downError says when the upstream may be opened again. The caller holds mu.
func (l *link) downError() error {
	return &DownError{After: max(0, l.retryAt.Sub(l.now())), Cause: l.cause}
}

func waitFor(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reopen is one attempt to bring the upstream up. It ends busy.
func (l *link) reopen(rest time.Duration, busy *attempt) {
	defer l.readers.Done()
	if rest > 0 {
		select {
		case <-time.After(rest):
		case <-l.ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(l.ctx, openTimeout)
	defer cancel()
	conn, err := l.dial(ctx)
	born := &life{conn: conn}
	if err == nil {
		l.readers.Add(1)
		go l.read(born)
		if l.opened {
			if err = l.revive(ctx, conn); err != nil {
				err = fmt.Errorf("bring upstream back: %w", err)
				conn.Close()
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(busy.done)
	l.busy = nil
	if err == nil && born.dead {
		err = born.cause
	}
	if err != nil {
		l.rest(err)
		busy.err = l.downError()
		return
	}
	if l.opened {
		l.logger.Info("upstream started again", slog.String("upstream", l.target))
	}
	l.conn, l.opened, l.upSince = conn, true, l.now()
}

// rest notes a death and puts off the next life. The first one is not put off.
func (l *link) rest(cause error) {
	if !l.upSince.IsZero() && l.now().Sub(l.upSince) >= healthyAfter {
		l.failures = 0
	}
	l.failures++
	l.upSince = time.Time{}
	l.cause = cause
	l.retryAt = l.now().Add(backoff(l.failures))
}

func backoff(failures int) time.Duration {
	if failures < 2 {
		return 0
	}
	d := backoffFirst << min(failures-2, 10)
	d = min(d, backoffMost)
	return d - time.Duration(rand.Int64N(int64(d)/4))
}

// read takes what the upstream says until it is gone.
func (l *link) read(born *life) {
	defer l.readers.Done()
	conn := born.conn
	for {
		m, err := conn.Read(l.ctx)
		var refused *RefusedError
		switch {
		case errors.As(err, &refused):
			l.refused(conn, refused)
		case err != nil:
			l.died(born, err)
			return
		case m.Lost:
			l.end(m.ID, ending{cause: m.Cause})
		case m.IsResponse():
			l.answered(m)
		case m.Truncated:
			l.refused(conn, &RefusedError{ID: m.ID, Method: m.Method, Code: codeInvalidRequest,
				Message: fmt.Sprintf("message of %d bytes is above the limit", m.Size)})
		default:
			l.receive(m)
		}
	}
}

func (l *link) answered(m *Message) {
	switch {
	case l.end(m.ID, ending{m: m}):
	case l.outlived(m.ID):
		l.logger.Debug("answer to a request that was given up dropped", slog.String("id", string(m.ID)))
	case m.Truncated:
		l.logger.Warn("upstream wrote what is not a message", slog.Int64("size", m.Size))
	case m.ID == nil || string(m.ID) == "null":
		l.receive(m)
	default:
		l.logger.Debug("answer to no request dropped", slog.String("id", string(m.ID)))
	}
}

// refused deals with a message that cannot be relayed. An answer that cannot be read is a lost one.
func (l *link) refused(conn Conn, r *RefusedError) {
	switch {
	case r.IsRequest():
		_, _ = conn.Write(l.ctx, NewError(r.ID, r.Code, r.Message, nil)) // a failed write ends Read too
	case r.IsResponse() && l.end(r.ID, ending{cause: fmt.Errorf("read answer of upstream: %w", r)}):
	default:
		l.logger.Warn("upstream wrote what is not a message", slog.String("error", r.Message))
	}
}

// end ends the request id, and reports whether it was under way.
func (l *link) end(id json.RawMessage, e ending) bool {
	key := idKey(id)
	l.mu.Lock()
	p := l.pending[key]
	delete(l.pending, key)
	l.mu.Unlock()
	if p == nil {
		return false
	}
	p.done(e)
	return true
}

// died ends what was under way on conn. What is still being written is left to its sender, who knows
// whether any byte went out.
func (l *link) died(born *life, cause error) {
	if errors.Is(cause, io.EOF) {
		cause = errors.New("it closed the connection")
	}
	l.mu.Lock()
	born.dead, born.cause = true, cause
	current := l.conn == born.conn
	var busy *attempt
	if current { // nobody may start the next one before this one is gone
		l.conn = nil
		clear(l.stale)
		busy = &attempt{done: make(chan struct{})}
		l.busy = busy
	}
	l.mu.Unlock()
	born.conn.Close()

	l.mu.Lock()
	var ended []*pending
	for key, p := range l.pending {
		if p.sending {
			p.orphan = cause
			continue
		}
		ended = append(ended, p)
		delete(l.pending, key)
	}
	if current {
		l.rest(cause)
		l.busy = nil
		close(busy.done)
	}
	l.mu.Unlock()
	for _, p := range ended {
		p.done(ending{cause: cause})
	}
	if current {
		l.down(cause)
	}
}

// inFlight reports whether a request of that id is under way.
func (l *link) inFlight(id json.RawMessage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending[idKey(id)] != nil
}

// request sends a request. When it returns nil, done is called once with its end, perhaps before it
// returns and perhaps by the reading goroutine. When it returns an error, done is not called; written
// false is then proof that nothing was sent.
func (l *link) request(ctx context.Context, m *Message, done func(ending)) (written bool, err error) {
	conn, err := l.open(ctx)
	if err != nil {
		return false, err
	}
	return l.requestOn(ctx, conn, m, done)
}

func (l *link) requestOn(ctx context.Context, conn Conn, m *Message, done func(ending)) (written bool, err error) {
	key := idKey(m.ID)
	p := &pending{done: done, sending: true}
	l.mu.Lock()
	if l.pending[key] != nil {
		l.mu.Unlock()
		return false, fmt.Errorf("request id %s is under way", shorten(string(m.ID)))
	}
	l.pending[key] = p
	l.mu.Unlock()

	written, err = conn.Write(ctx, m)
	if m.Method == methodToolsCall {
		faults.Point("after-dispatch")
	}

	l.mu.Lock()
	p.sending = false
	mine := l.pending[key] == p && (err != nil || p.orphan != nil)
	if mine {
		delete(l.pending, key)
	}
	orphan := p.orphan
	l.mu.Unlock()
	switch {
	case !mine:
		return true, nil
	case err != nil:
		return written, err
	default:
		return true, orphan
	}
}

// startOn sends a request whose end comes on the channel.
func (l *link) startOn(ctx context.Context, conn Conn, m *Message) (ends <-chan ending, written bool, err error) {
	ch := make(chan ending, 1)
	written, err = l.requestOn(ctx, conn, m, func(e ending) { ch <- e })
	return ch, written, err
}

// answerOf waits for the end of a request. When ctx ends first the request is left to abandon.
func answerOf(ctx context.Context, ends <-chan ending) (*Message, error) {
	select {
	case e := <-ends:
		return e.m, e.cause
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// abandon forgets the request id, whose answer nobody wants, and tells the upstream so. It reports
// whether the request was still under way.
func (l *link) abandon(id, params json.RawMessage) bool {
	l.mu.Lock()
	key := idKey(id)
	p := l.pending[key]
	delete(l.pending, key)
	if p != nil && len(l.stale) <= staleMost {
		l.stale[key] = true
	}
	l.mu.Unlock()
	if p == nil {
		return false
	}
	l.notify(NewNotification(methodCancelled, params))
	return true
}

// staleMost bounds link.stale; beyond it every id counts as stale.
const staleMost = 1 << 14

// isStale reports whether an answer to an earlier request of that id may still come. It would be taken
// for the answer to a new one.
func (l *link) isStale(id json.RawMessage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.stale) > staleMost || l.stale[idKey(id)]
}

// outlived reports whether id was given up, and ends that: its answer has come.
func (l *link) outlived(id json.RawMessage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := idKey(id)
	stale := l.stale[key]
	if len(l.stale) <= staleMost {
		delete(l.stale, key)
	}
	return stale
}

// notify sends what wants no answer. It starts no upstream: a notification to one that has died means
// nothing to its successor.
func (l *link) notify(m *Message) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil {
		return
	}
	if _, err := conn.Write(l.ctx, m); err != nil {
		l.logger.Debug("notification not sent", slog.String("method", m.Method), slog.Any("error", err))
	}
}

// spawn runs a goroutine that close ends and waits for.
func (l *link) spawn(run func(ctx context.Context)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() == nil {
		l.readers.Go(func() { run(l.ctx) })
	}
}

// close ends the upstream and what is under way on it, and waits until it is gone.
func (l *link) close() {
	l.mu.Lock()
	l.cancel()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil { // the reading goroutine may be held up by an agent that does not read
		conn.Close()
	}
	l.readers.Wait()
}
