package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/undolog/undolog/effect"
)

// heart counts this process's open claims. While there are any, a goroutine beats; an idle process
// writes nothing.
type heart struct {
	mu      sync.Mutex
	claims  map[string]int // by effect: a waiting attempt can be claimed again before its first settle is seen
	beating bool
	beaten  bool

	kept   time.Time // this process counts as alive for at least two thirds of a TTL from then on
	lapsed time.Time // when it was last noticed that it had not counted as alive; zero: never
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
	from := time.Now()
	err := l.driver.Beat(ctx, l.owner, l.opts.TTL)
	switch {
	case err == nil:
		l.heart.keep(from, l.opts.TTL)
	case l.life.Err() == nil:
		l.logger.ErrorContext(ctx, "heartbeat not recorded", slog.String("owner", l.owner), slog.Any("error", err))
	}
}

// keep notes that the heart was beaten by a write that began at a time, and that it had stopped before where
// that is so.
func (h *heart) keep(from time.Time, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.Sub(h.kept) >= ttl*2/3 {
		h.lapsed = now
	}
	h.kept = from
}

// claimed notes that a write that began at a time has left the heart beating, as every claim does: for two thirds
// of a TTL at the least.
func (h *heart) claimed(from time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.claims) == 0 {
		h.kept = from // nobody has listened to it meanwhile
	}
}

// isWhole reports whether the heart has beaten without a pause since a time, as far as can be seen from here.
func (h *heart) isWhole(since time.Time, ttl time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.kept) < ttl*2/3 && since.After(h.lapsed)
}

// Holds reports whether a claim is still this process's, so that its call may be sent: since is a time before it
// was made. A process that was stopped for longer than its heart may pause learns by it that others took its
// claim for lost, or have settled it. It costs nothing while the heart beats, and one look at the log else.
func (l *Log) Holds(ctx context.Context, claim effect.Claim, since time.Time) (bool, error) {
	if l.heart.isWhole(since, l.opts.TTL) {
		return true, nil
	}
	now, err := l.driver.Effect(ctx, claim.Tenant, claim.Effect)
	if err != nil {
		return false, fmt.Errorf("look whether claim of effect %s holds: %w", claim.Effect, err)
	}
	mine := now.Ordinal == claim.Ordinal && now.Owner == claim.Owner
	return mine && now.StateAt(l.opts.Now()) == effect.StateClaimed, nil
}
