package hosts

import (
	"fmt"
	"sync"
	"time"
)

// BreakerState says whether a host is asked.
type BreakerState string

const (
	BreakerClosed   BreakerState = "closed"    // it is asked
	BreakerOpen     BreakerState = "open"      // it did not answer, and is left alone
	BreakerHalfOpen BreakerState = "half-open" // one request tries whether it answers again
)

// BreakerError says that a host is left alone because it did not answer.
type BreakerError struct {
	Host  string
	After time.Duration // until it is tried again
}

func (e *BreakerError) Error() string {
	return fmt.Sprintf("host %s: it does not answer and is not asked for %s", e.Host, e.After.Round(100*time.Millisecond))
}

// breaker keeps callers from waiting for a host that hangs.
type breaker struct {
	after    int
	duration time.Duration

	mu    sync.Mutex
	row   int       // time-outs since the last sign of life
	until time.Time // zero: closed
	trial bool      // a request tries
}

// enter asks whether a request may go on.
func (b *breaker) enter(host string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := time.Until(b.until)
	switch {
	case b.until.IsZero():
		return nil
	case left > 0 || b.trial:
		return &BreakerError{host, max(0, left)}
	}
	b.trial = true
	return nil
}

// leave notes what a request said of the host. It returns the state when that has changed, else nothing.
func (b *breaker) leave(o outcome) BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	wasOpen, tried := !b.until.IsZero(), b.trial
	switch o {
	case undecided:
		b.trial = false
	case alive, broken: // one that is gone does not hang: its reconnecting has pauses of its own
		b.row, b.until, b.trial = 0, time.Time{}, false
		if wasOpen {
			return BreakerClosed
		}
	case timedOut:
		b.row++
		b.trial = false
		if tried || !wasOpen && b.row >= b.after {
			b.until = time.Now().Add(b.duration)
			return BreakerOpen
		}
	}
	return ""
}

func (b *breaker) state() (s BreakerState, row int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.until.IsZero():
		return BreakerClosed, b.row
	case time.Now().Before(b.until):
		return BreakerOpen, b.row
	}
	return BreakerHalfOpen, b.row
}
