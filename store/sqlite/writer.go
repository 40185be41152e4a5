package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/store"
)

// maxGroup bounds how many requests share one transaction, and with it how long the lock is held.
const maxGroup = 256

// request is one write on its way to the writer. It may be run more than once, in a group that failed
// and then alone, so that run MUST take everything from the transaction and set its results anew.
type request struct {
	run   func(*tx) error
	state atomic.Int32 // of requestQueued, requestTaken, requestLeft
	done  chan error   // buffered: the writer never waits for a caller
}

const (
	requestQueued int32 = iota
	requestTaken        // it runs, or has run
	requestLeft         // its caller has gone before it ran: it never will
)

// writer owns the one connection that writes. A goroutine serves who queues, in groups; who is alone need
// not wake it and writes by itself.
type writer struct {
	conn    *sql.Conn
	db      *sql.DB
	file    *openFile
	now     func() time.Time
	busy    time.Duration
	queue   chan *request
	stopped chan struct{}
	callers atomic.Int64 // in do

	turn    sync.Mutex // whose turn it is to write: guards what follows, and the connection
	grouped bool       // the last turn had several requests
	stmts   map[string]*sql.Stmt
	known   known

	mu     sync.RWMutex // held for reading while queueing or writing alone
	closed bool
}

func (d *Driver) startWriter(ctx context.Context) (*writer, error) {
	db, err := sql.Open("sqlite", d.dsn(fmt.Sprintf("busy_timeout(%d)", d.busy.Milliseconds()), "synchronous(FULL)", "wal_autocheckpoint(1000)"))
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	// Waiting for the lock is begin's own business: SQLite's handler backs off to 100 ms and starves. It
	// was of use only until here, with another process that looks whether it must migrate.
	if _, err := conn.ExecContext(ctx, `SELECT 1 FROM effect LIMIT 1; PRAGMA busy_timeout = 0`); err != nil {
		return nil, errors.Join(err, conn.Close(), db.Close())
	}
	file, err := lookAt(d.path)
	if err != nil {
		return nil, errors.Join(err, conn.Close(), db.Close())
	}
	w := &writer{
		conn: conn, db: db, file: file, now: d.now, busy: d.busy,
		queue: make(chan *request, 4*maxGroup), stopped: make(chan struct{}), stmts: map[string]*sql.Stmt{},
		known: newKnown(),
	}
	go w.loop()
	return w, nil
}

// do runs one write in a transaction and returns when it is durable, or not done at all. A caller whose
// ctx ends is let go only while the write has not begun: afterwards it is told the outcome.
func (w *writer) do(ctx context.Context, run func(*tx) error) error {
	r := &request{run: run, done: make(chan error, 1)}
	alone := w.callers.Add(1) == 1
	defer w.callers.Add(-1)
	if alone && ctx.Err() == nil && w.serveAlone(r) {
		return <-r.done
	}
	if err := w.enqueue(ctx, r); err != nil {
		return err
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if r.state.CompareAndSwap(requestQueued, requestLeft) {
			return ctx.Err()
		}
		return <-r.done
	}
}

// serveAlone runs a request on its caller's goroutine, which spares a lone one two wake-ups. It reports
// false, and has done nothing, when somebody else is writing, here or in another process, or when it did not
// go well: the queue tries again and says why. Callers that come in groups are left to the queue: they would
// take turns alone otherwise.
func (w *writer) serveAlone(r *request) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed || !w.turn.TryLock() {
		return false
	}
	defer w.turn.Unlock()
	if w.grouped || w.file.inPlace() != nil {
		return false
	}
	r.state.Store(requestTaken)
	if w.runGroup(w.newTx(), []*request{r}) != nil {
		r.state.Store(requestQueued)
		return false
	}
	return true
}

func (w *writer) enqueue(ctx context.Context, r *request) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return store.ErrClosed
	}
	select {
	case w.queue <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close lets the writes already queued end and closes the connection.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	close(w.queue)
	w.mu.Unlock()
	<-w.stopped
	for _, s := range w.stmts {
		s.Close()
	}
	return errors.Join(w.conn.Close(), w.db.Close())
}

func (w *writer) loop() {
	defer close(w.stopped)
	for first := range w.queue {
		// The callers just answered are about to come again: letting them run nearly doubles a group.
		// With nobody else to run this returns at once.
		runtime.Gosched()
		w.turn.Lock()
		w.serve(first)
		w.turn.Unlock()
	}
}

// serve runs the first request and whatever has queued up until the lock is ours.
func (w *writer) serve(first *request) {
	group := []*request{first}
	err := w.begin()
	group = w.take(w.drain(group))
	w.grouped = len(group) > 1
	if err != nil {
		answer(group, err)
		return
	}
	w.run(group)
}

// run runs the requests, in the transaction that has begun, and answers them.
func (w *writer) run(group []*request) {
	if err := w.runGroup(w.begun(), group); err == nil {
		return
	}
	for _, r := range group { // one of them is bad: the others must not suffer for it
		w.runAlone(r)
	}
}

func (w *writer) drain(group []*request) []*request {
	for len(group) < maxGroup {
		select {
		case r, ok := <-w.queue:
			if !ok {
				return group
			}
			group = append(group, r)
		default:
			return group
		}
	}
	return group
}

// take marks the requests as running and leaves out those whose callers have gone.
func (w *writer) take(group []*request) []*request {
	taken := group[:0]
	for _, r := range group {
		if r.state.CompareAndSwap(requestQueued, requestTaken) {
			taken = append(taken, r)
		}
	}
	return taken
}

// runGroup runs the requests in one transaction and ends it. A request that fails by its own rules (a
// conflict, not found) has written nothing and fails alone; any other error undoes the group and is
// returned, and nobody was answered.
func (w *writer) runGroup(t *tx, group []*request) error {
	refusals := make([]error, len(group))
	for i, r := range group {
		err := r.run(t)
		if err != nil && !isRefusal(err) {
			return errors.Join(err, t.rollback())
		}
		refusals[i] = err
	}
	if err := t.commit(); err != nil {
		return errors.Join(err, t.rollback())
	}
	for _, learn := range t.learned {
		learn()
	}
	for i, r := range group {
		r.done <- refusals[i]
	}
	return nil
}

func (w *writer) runAlone(r *request) {
	if err := w.begin(); err != nil {
		r.done <- err
		return
	}
	if err := w.runGroup(w.begun(), []*request{r}); err != nil {
		r.done <- explain(err)
	}
}

func answer(group []*request, err error) {
	for _, r := range group {
		r.done <- err
	}
}

// isRefusal reports whether an error is an answer of the log and not a fault of the file.
func isRefusal(err error) bool {
	_, conflict := errors.AsType[*store.ConflictError](err)
	return conflict || errors.Is(err, store.ErrNotFound)
}

// begin takes the write lock. Other processes hold it for a group's length at most, so that it tries
// often and at random; a killed holder's lock is dropped by the kernel.
func (w *writer) begin() error {
	if err := w.file.inPlace(); err != nil {
		return err
	}
	var deadline time.Time
	for {
		err := w.exec(`BEGIN IMMEDIATE`)
		if err == nil || !isBusy(err) {
			return explain(err)
		}
		now := time.Now()
		switch {
		case deadline.IsZero():
			deadline = now.Add(w.busy)
		case now.After(deadline):
			return fmt.Errorf("%w: another process has held the file's lock for %s: %w", store.ErrBusy, w.busy, err)
		}
		time.Sleep(100*time.Microsecond + rand.N(2*time.Millisecond))
	}
}

func (w *writer) exec(query string) error {
	s, err := w.prepare(query)
	if err != nil {
		return err
	}
	_, err = s.ExecContext(context.Background())
	return err
}

// prepare keeps every statement open: the queries are the constants of this package.
func (w *writer) prepare(query string) (*sql.Stmt, error) {
	if s, ok := w.stmts[query]; ok {
		return s, nil
	}
	s, err := w.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	w.stmts[query] = s
	return s, nil
}

// snapshot reads outside the writer, under the caller's context.
type snapshot struct {
	ctx context.Context
	db  *sql.DB
}

func (s snapshot) query(query string, args ...any) (*sql.Rows, error) {
	return s.db.QueryContext(s.ctx, query, args...)
}

// queryer is what a question needs: asked by a decision in its transaction, or by a reader.
type queryer interface {
	query(query string, args ...any) (*sql.Rows, error)
}

var (
	_ queryer = (*tx)(nil)
	_ queryer = snapshot{}
)
