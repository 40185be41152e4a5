package store

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// heart counts this process's open claims. While there are any, a goroutine beats; an idle process
// writes nothing.
type heart struct {
	mu      sync.Mutex
	claims  map[string]int // by effect: a waiting attempt can be claimed again before its first settle is seen
	beating bool
	beaten  bool
}

func (h *heart) hasBeaten() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.beaten
}

// Hold has this process count as alive for as long as it has something to do for an effect that it holds no
// claim of, as it follows a task. Release, or the effect's next Settle, ends it.
func (l *Log) Hold(effect string) { l.hold(effect) }

// Release ends a Hold. More than there were are ignored.
func (l *Log) Release(effect string) { l.release(effect) }

// hold counts a claim and sees to it that the heart beats.
func (l *Log) hold(effect string) {
	h := &l.heart
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claims == nil {
		h.claims = map[string]int{}
	}
	h.claims[effect]++
	h.beaten = true
	if !h.beating {
		h.beating = l.spawn(l.beatWhileHolding)
	}
}

// release forgets a claim; the heart stops by itself when it was the last.
func (l *Log) release(effect string) {
	h := &l.heart
	h.mu.Lock()
	defer h.mu.Unlock()
	switch n := h.claims[effect]; {
	case n > 1:
		h.claims[effect] = n - 1
	case n == 1: // 0: a claim that lives by a lease, or was made by a process before us
		delete(h.claims, effect)
	}
}

func (l *Log) beatWhileHolding() {
	tick := time.NewTicker(l.opts.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-l.life.Done():
			return
		case <-tick.C:
		}
		if !l.stillHolding() {
			return
		}
		l.beat()
	}
}

// stillHolding also notes that the goroutine is about to end, under the lock that starts the next one.
func (l *Log) stillHolding() bool {
	h := &l.heart
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beating = len(h.claims) > 0
	return h.beating
}

func (l *Log) beat() {
	ctx, cancel := context.WithTimeout(l.life, l.opts.TTL)
	defer cancel()
	if err := l.driver.Beat(ctx, l.owner, l.opts.TTL); err != nil && l.life.Err() == nil {
		l.logger.ErrorContext(ctx, "heartbeat not recorded", slog.String("owner", l.owner), slog.Any("error", err))
	}
}
