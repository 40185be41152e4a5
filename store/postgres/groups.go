package postgres

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/store"
)

const (
	// maxGroup bounds how many requests share one transaction, and maxGroupBytes what they carry together: a server
	// takes no message of a gigabyte, and small ones must not wait for many large ones.
	maxGroup      = 256
	maxGroupBytes = 16 << 20
	// maxSenders is how many groups are under way at once: while one is flushed the next is made.
	maxSenders = 2
	// enough are as many as make a group that waits for no larger one: the machine would wait with it.
	enough = 24
	// soon is how long a group is waited for at most by those who are fewer than it.
	soon = 20 * time.Millisecond
	// crowd is how many in a group mean that more callers are about to come.
	crowd = 4
)

// request is what a caller asks of the database, on its way with what others ask. It is answered by done.
type request struct {
	bytes int // that it carries, about
	err   error
	done  chan struct{}
	state atomic.Int32
}

const (
	requestQueued int32 = iota
	requestTaken        // it is sent
	requestLeft         // its caller has gone before it was sent: it never is
)

func (r *request) common() *request { return r }

func (r *request) answer(err error) {
	r.err = err
	close(r.done)
}

// groups sends the requests of concurrent callers together. Who comes while nothing is under way sends its own
// at once. Who comes later is sent with all the others who wait: when they are as many as are under way, or enough,
// or when what is under way ends, or soon. A transaction costs as much as five of its effects, so that few large groups
// are faster for everybody than many small ones.
type groups[R interface{ common() *request }] struct {
	send func(ctx context.Context, group []R) // answers each

	mu       sync.Mutex
	queue    []R
	senders  int
	underWay int       // requests that are sent and not answered
	last     int       // how many of them were sent last
	taken    time.Time // and when
	relief   bool      // somebody comes soon for those who wait
	closed   bool
	running  sync.WaitGroup
}

// do sends the request and waits for the answer. A caller whose context ends is let go while its request was
// not sent, and always when it may leave.
func (g *groups[R]) do(ctx context.Context, request R, mayLeave bool) error {
	r := request.common()
	r.done = make(chan struct{})
	sends, crowded, err := g.enqueue(ctx, request)
	switch {
	case err != nil:
		return err
	case sends && crowded:
		go g.sendAll()
	case sends:
		g.sendOwn(ctx)
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		if r.state.CompareAndSwap(requestQueued, requestLeft) || mayLeave {
			return ctx.Err()
		}
	}
	<-r.done // within the time that a group has
	return r.err
}

// enqueue reports whether the caller is to see to the sending, and whether others are likely to come with it.
func (g *groups[R]) enqueue(ctx context.Context, request R) (sends, crowded bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false, false, store.ErrClosed
	}
	g.queue = append(g.queue, request)
	return g.addSender(), g.last >= crowd, nil
}

// addSender reports whether there is to be one more sender; the caller then is it, or starts it.
func (g *groups[R]) addSender() bool {
	if len(g.queue) == 0 || g.senders == maxSenders {
		return false
	}
	if g.areFew() {
		g.relieveSoon()
		return false
	}
	g.senders++
	g.running.Add(1)
	return true
}

// areFew reports whether those who wait are fewer than enough and than are under way, and these back soon.
func (g *groups[R]) areFew() bool {
	return len(g.queue) < min(g.underWay, enough) && time.Since(g.taken) < soon
}

// relieveSoon has those who wait sent after a while, whatever becomes of those they wait for.
func (g *groups[R]) relieveSoon() {
	if g.relief {
		return
	}
	g.relief = true
	time.AfterFunc(soon, func() {
		g.mu.Lock()
		g.relief = false
		sends := g.addSender()
		g.mu.Unlock()
		if sends {
			g.sendAll()
		}
	})
}

// sendOwn sends one group, of the caller's request and nearly always no other, and leaves the rest to a
// goroutine.
func (g *groups[R]) sendOwn(ctx context.Context) {
	if ends := g.sendNext(ctx); !ends {
		go g.sendAll()
	}
}

func (g *groups[R]) sendAll() {
	for ends := false; !ends; {
		// The callers just answered are about to come again: letting them run makes a group larger.
		runtime.Gosched()
		ends = g.sendNext(context.Background())
	}
}

// sendNext sends a group and reports whether the sender ends with it.
func (g *groups[R]) sendNext(ctx context.Context) (ends bool) {
	group := g.take()
	g.send(ctx, group)
	return g.retire(len(group))
}

// retire ends a sender when nobody waits, or so few that another one takes them along.
func (g *groups[R]) retire(sent int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.underWay -= sent
	if len(g.queue) > 0 && !g.areFew() {
		return false
	}
	if len(g.queue) > 0 {
		g.relieveSoon()
	}
	g.senders--
	g.running.Done()
	return true
}

// take returns the next group, without those whose callers have gone.
func (g *groups[R]) take() []R {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.fits()
	group := make([]R, 0, n)
	for _, r := range g.queue[:n] {
		if r.common().state.CompareAndSwap(requestQueued, requestTaken) {
			group = append(group, r)
		}
	}
	g.queue = slices.Delete(g.queue, 0, n)
	g.underWay += len(group)
	g.last, g.taken = len(group), time.Now()
	return group
}

// fits is how many of those who wait the next group takes: at least one.
func (g *groups[R]) fits() int {
	n, bytes := 0, 0
	for _, r := range g.queue[:min(len(g.queue), maxGroup)] {
		if bytes += r.common().bytes; n > 0 && bytes > maxGroupBytes {
			break
		}
		n++
	}
	return n
}

// wait refuses new requests and returns when those begun have ended.
func (g *groups[R]) wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.running.Wait()
}

// answer gives everybody the same answer.
func answer[R interface{ common() *request }](group []R, err error) {
	for _, r := range group {
		r.common().answer(err)
	}
}

// groupContext is that of one attempt at a group. It does not end with one caller's, and has that one's time
// only when it is alone.
func (d *Driver) groupContext(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	timeout := d.patience / 3
	if deadline, ok := ctx.Deadline(); ok && size == 1 {
		timeout = min(timeout, time.Until(deadline))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}
