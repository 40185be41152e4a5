package postgres

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/store"
)

const (
	// maxGroup bounds how many writes share one transaction.
	maxGroup = 256
	// maxSenders is how many groups are under way at once: while one is flushed the next is made.
	maxSenders = 2
)

// write is a row on its way: an effect or a move. It is answered by done; won says whether the row was
// inserted.
type write struct {
	tenant string
	effect *effectRow
	move   *moveRow

	won  bool
	seq  int64
	at   time.Time
	err  error
	done chan struct{}

	state atomic.Int32
}

const (
	writeQueued int32 = iota
	writeTaken        // it is sent
	writeLeft         // its caller has gone before it was sent: it never is
)

// writes groups the writes of concurrent callers. Who comes while few groups are under way sends its own
// write at once; who comes later is taken along with all the others who wait, when one ends.
type writes struct {
	driver *Driver

	mu      sync.Mutex
	queue   []*write
	senders int
	closed  bool
	running sync.WaitGroup

	groups, grouped atomic.Int64
}

// do sends the write and waits for the answer. A caller whose context ends is let go while its write was not
// sent, and always when it is a move: that is found where it was made, by whoever tries again.
func (w *writes) do(ctx context.Context, r *write) error {
	r.done = make(chan struct{})
	sends, err := w.enqueue(ctx, r)
	if err != nil {
		return err
	}
	if sends {
		w.sendOwn(ctx)
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		if r.state.CompareAndSwap(writeQueued, writeLeft) || r.move != nil {
			return ctx.Err()
		}
	}
	<-r.done // within the time that a group has
	return r.err
}

// enqueue reports whether the caller is to send.
func (w *writes) enqueue(ctx context.Context, r *write) (sends bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false, store.ErrClosed
	}
	w.queue = append(w.queue, r)
	if w.senders == maxSenders {
		return false, nil
	}
	w.senders++
	w.running.Add(1)
	return true, nil
}

// sendOwn sends one group, of the caller's write and nearly always no other, and leaves the rest to a
// goroutine.
func (w *writes) sendOwn(ctx context.Context) {
	w.send(ctx, w.take())
	if !w.retire() {
		go w.sendAll()
	}
}

func (w *writes) sendAll() {
	for {
		// The callers just answered are about to come again: letting them run makes a group larger.
		runtime.Gosched()
		w.send(context.Background(), w.take())
		if w.retire() {
			return
		}
	}
}

// retire ends a sender when nothing is left to send.
func (w *writes) retire() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		return false
	}
	w.senders--
	w.running.Done()
	return true
}

// take returns the next group, without those whose callers have gone.
func (w *writes) take() []*write {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.queue), maxGroup)
	group := make([]*write, 0, n)
	for _, r := range w.queue[:n] {
		if r.state.CompareAndSwap(writeQueued, writeTaken) {
			group = append(group, r)
		}
	}
	w.queue = append(w.queue[:0], w.queue[n:]...)
	return group
}

// wait refuses new writes and returns when those begun have ended.
func (w *writes) wait() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}

// send answers every write of the group. When the database refuses the group, one of them is bad, and the
// others must not suffer for it; when it is away, each caller tries again.
func (w *writes) send(ctx context.Context, group []*write) {
	if len(group) == 0 {
		return
	}
	err := w.try(ctx, group)
	if err != nil && len(group) > 1 && !isPassing(err) {
		for _, r := range group {
			w.answer([]*write{r}, w.try(ctx, []*write{r}))
		}
		return
	}
	w.answer(group, err)
}

func (w *writes) answer(group []*write, err error) {
	for _, r := range group {
		r.err = err
		close(r.done)
	}
}

// try sends a group as one transaction, in one round trip. It does not end with one caller's context, and
// has that one's time only when it is alone.
func (w *writes) try(ctx context.Context, group []*write) error {
	timeout := w.driver.patience / 3
	if deadline, ok := ctx.Deadline(); ok && len(group) == 1 {
		timeout = min(timeout, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	w.groups.Add(1)
	w.grouped.Add(int64(len(group)))
	var b pgx.Batch
	w.fill(&b, group)
	return w.driver.pool.SendBatch(ctx, &b).Close()
}

// fill queues the statements of a group: for each tenant its effects, then its moves, all in an order that
// every group keeps, so that no two of them wait for each other.
func (w *writes) fill(b *pgx.Batch, group []*write) {
	slices.SortFunc(group, (*write).compare)
	for len(group) > 0 {
		tenant := group[0].tenant
		n := slices.IndexFunc(group, func(r *write) bool { return r.tenant != tenant })
		if n < 0 {
			n = len(group)
		}
		w.fillTenant(b, group[:n])
		group = group[n:]
	}
}

func (w *writes) fillTenant(b *pgx.Batch, group []*write) {
	tenant, now := group[0].tenant, w.driver.clock.param()
	queueTenant(b, tenant)
	if len(group) == 1 {
		queue(b, group[0].lone(now))
		return
	}
	effects, moves := map[uuid.UUID]*write{}, map[moveKey]*write{}
	var effectRows effectRows
	var moveRows moveRows
	for i, r := range group {
		r.won = false // it may have been tried before
		if r.effect != nil {
			effects[r.effect.id] = r
			effectRows.add(r.effect, i)
		} else if key := r.move.place(); moves[key] == nil { // of two for one place the second has lost
			moves[key] = r
			moveRows.add(r.move)
		}
	}
	if len(effects) > 0 {
		queue(b, effectRows.insert(tenant, now, func(id uuid.UUID, seq int64, at time.Time) { effects[id].win(seq, at) }))
	}
	if len(moves) > 0 {
		queue(b, moveRows.insert(tenant, now, func(key moveKey, at time.Time) { moves[key].win(0, at) }))
	}
}

// lone is the statement of a write with no other of its tenant's beside it.
func (r *write) lone(now pgtype.Timestamptz) statement {
	r.won = false // it may have been tried before
	if r.effect != nil {
		return r.effect.insert(r.tenant, now, func(_ uuid.UUID, seq int64, at time.Time) { r.win(seq, at) })
	}
	return r.move.insert(r.tenant, now, func(_ moveKey, at time.Time) { r.win(0, at) })
}

func (r *write) win(seq int64, at time.Time) { r.won, r.seq, r.at = true, seq, at }

// compare is the order in which everybody writes.
func (r *write) compare(s *write) int {
	switch c := cmp.Compare(r.tenant, s.tenant); {
	case c != 0:
		return c
	case r.effect != nil && s.effect != nil:
		return r.effect.compare(s.effect)
	case r.effect != nil:
		return -1
	case s.effect != nil:
		return +1
	}
	return r.move.compare(s.move)
}
