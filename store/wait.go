package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/undolog/undolog/effect"
)

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
// processes do within a quarter of a second.
func (l *Log) Wait(ctx context.Context, tenant, id string) (*effect.Record, error) {
	return l.wait(ctx, tenant, id, func(r *effect.Record) bool { return r.StateAt(l.opts.Now()) == effect.StateClaimed })
}

func (l *Log) wait(ctx context.Context, tenant, id string, waits func(r *effect.Record) bool) (*effect.Record, error) {
	for pause := 25 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		record, err := l.look(ctx, tenant, id, pause, waits)
		if err != nil {
			return nil, fmt.Errorf("wait for effect %s: %w", id, err)
		}
		if record != nil {
			return record, nil
		}
	}
}

// look returns the effect when nothing is waited for, else nil after a pause or a wake.
func (l *Log) look(ctx context.Context, tenant, id string, pause time.Duration, waits func(r *effect.Record) bool) (*effect.Record, error) {
	woken, leave := l.settled.join(tenant, id) // before looking, so that no settle falls between
	defer leave()
	record, err := l.driver.Effect(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	if !waits(record) {
		return record, nil
	}
	return nil, l.pause(ctx, woken, pause)
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
