package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/undolog/undolog/effect"
)

// Waking is a driver that hears what other processes do.
type Waking interface {
	// Await has wake called when the effect may have been moved, until leave is called: soon after another
	// process has moved it where that can be heard, once after it has begun to listen, and at any other time. It
	// MUST NOT wait for anything. Who awaits looks by itself too.
	Await(tenant, id string, wake func()) (leave func())
}

// wakeups tells waiters of this process that an effect was settled here. Other processes settle too, so
// that a waiter also looks by itself.
type wakeups struct {
	mu      sync.Mutex
	waiters map[wakeup]*waiters
}

// waiters share one channel and leave with the last of them.
type waiters struct {
	woken chan struct{}
	count int
}

type wakeup struct{ tenant, id string }

// join returns what the next wake of the effect closes, and how to leave.
func (w *wakeups) join(tenant, id string) (woken <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters == nil {
		w.waiters = map[wakeup]*waiters{}
	}
	key := wakeup{tenant, id}
	of := w.waiters[key]
	if of == nil {
		of = &waiters{woken: make(chan struct{})}
		w.waiters[key] = of
	}
	of.count++
	return of.woken, func() { w.leave(key, of) }
}

func (w *wakeups) leave(key wakeup, of *waiters) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of.count--; of.count == 0 && w.waiters[key] == of {
		delete(w.waiters, key)
	}
}

func (w *wakeups) wake(tenant, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := wakeup{tenant, id}
	if of := w.waiters[key]; of != nil {
		close(of.woken)
		delete(w.waiters, key)
	}
}

// Wait returns the effect when nobody holds a live claim on it any more: settled, waiting, or in doubt
// because its owner is gone or its time is over (see effect.Record.StateAt). It sees what other
// processes do within Options.LookEvery, and at once where the driver hears of it.
func (l *Log) Wait(ctx context.Context, tenant, id string) (*effect.Record, error) {
	return l.wait(ctx, tenant, id, func(r *effect.Record) bool { return r.StateAt(l.opts.Now()) == effect.StateClaimed })
}

func (l *Log) wait(ctx context.Context, tenant, id string, waits func(r *effect.Record) bool) (*effect.Record, error) {
	var leave func() // nil until there is something to wait for
	defer func() {
		if leave != nil {
			leave()
		}
	}()
	for pause := l.opts.LookEvery / 10; ; pause = min(2*pause, l.opts.LookEvery) {
		record, err := l.look(ctx, tenant, id, waits, func(woken <-chan struct{}) error {
			if leave == nil {
				leave = l.await(tenant, id)
			}
			return l.pause(ctx, woken, pause)
		})
		if err != nil {
			return nil, fmt.Errorf("wait for effect %s: %w", id, err)
		}
		if record != nil {
			return record, nil
		}
	}
}

// await has waiters for the effect woken by what the driver hears.
func (l *Log) await(tenant, id string) (leave func()) {
	driver, ok := l.driver.(Waking)
	if !ok {
		return func() {}
	}
	return driver.Await(tenant, id, func() { l.settled.wake(tenant, id) })
}

// look returns the effect when nothing is waited for, else nil after a pause, which a wake ends.
func (l *Log) look(ctx context.Context, tenant, id string, waits func(*effect.Record) bool, pause func(woken <-chan struct{}) error) (*effect.Record, error) {
	woken, leave := l.settled.join(tenant, id) // before looking, so that no settle falls between
	defer leave()
	record, err := l.driver.Effect(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	if !waits(record) {
		return record, nil
	}
	return nil, pause(woken)
}

func (l *Log) pause(ctx context.Context, woken <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-woken:
	case <-timer.C:
	case <-l.life.Done():
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
