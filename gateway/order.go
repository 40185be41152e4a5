package gateway

import (
	"context"
	"sync"
	"time"
)

// order lets governed requests out in the order in which the agent sent them, as a plain pipe would: a
// script that writes and then reads without waiting between gets to see what it wrote from a server that
// takes one request after the other. The order is kept while it is cheap. A request that a chain holds up
// (it waits for another's outcome, or is slow to be recorded) is overtaken after a moment.
type order struct {
	mu   sync.Mutex
	last *turn
}

// turn is the place of one request among those that have not gone out. The nil turn has no place and
// waits for nobody.
type turn struct {
	order      *order
	prev, next *turn
	first      chan struct{} // closed when nobody is before it
	left       bool
}

// holdMost is how long a request waits for those before it.
const holdMost = 250 * time.Millisecond

// take returns the place behind all others.
func (o *order) take() *turn {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := &turn{order: o, prev: o.last, first: make(chan struct{})}
	if t.prev == nil {
		close(t.first)
	} else {
		t.prev.next = t
	}
	o.last = t
	return t
}

// wait returns when all before t have gone out, or have been waited for long enough.
func (t *turn) wait(ctx context.Context) {
	if t == nil {
		return
	}
	select {
	case <-t.first:
		return
	default:
	}
	timer := time.NewTimer(holdMost)
	defer timer.Stop()
	select {
	case <-t.first:
	case <-ctx.Done():
	case <-timer.C:
		t.overtake()
	}
}

// leave gives the place up: the request has gone out, or will not.
func (t *turn) leave() {
	if t == nil {
		return
	}
	t.order.mu.Lock()
	defer t.order.mu.Unlock()
	t.unlink()
}

// overtake takes away the places of all before t, so that nobody waits for them twice. A turn that has
// been overtaken itself meanwhile has no place from which to do so.
func (t *turn) overtake() {
	t.order.mu.Lock()
	defer t.order.mu.Unlock()
	for !t.left && t.prev != nil {
		t.prev.unlink()
	}
}

func (t *turn) unlink() {
	if t.left {
		return
	}
	t.left = true
	closeOnce(t.first)
	if t.prev != nil {
		t.prev.next = t.next
	}
	if t.next == nil {
		t.order.last = t.prev
		return
	}
	t.next.prev = t.prev
	if t.prev == nil {
		closeOnce(t.next.first)
	}
}

// closeOnce closes ch, which its caller alone may close.
func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}
