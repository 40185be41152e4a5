package postgres

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// notifyEvery is how soon after one notification the next is sent at the earliest.
	notifyEvery = 20 * time.Millisecond
	// maxNotified bounds the effects of one notification, and maxMoved those that wait for theirs: each takes a
	// lock for a moment. Who waits for one that is left out looks by itself.
	maxNotified = 256
	maxMoved    = 4096
)

// notifier tells those who wait on other replicas that an effect was moved. It does so after the move, in
// transactions of its own, and only of effects of which somebody says by a lock that they are waited for: for
// the others it writes nothing. However many moves there are, it asks no more than fifty times a second.
type notifier struct {
	driver *Driver
	told   atomic.Int64

	mu      sync.Mutex
	moved   map[int32]struct{}
	running bool
	closed  bool
	tasks   sync.WaitGroup
	life    context.Context // ends when the driver closes
	end     context.CancelFunc
}

func (n *notifier) init(d *Driver) {
	n.driver = d
	n.moved = map[int32]struct{}{}
	n.life, n.end = context.WithCancel(context.Background())
}

// tell has those who wait for the effect told that it was moved. It waits for nobody.
func (n *notifier) tell(tenant, id string) {
	number := effectNumber(tenant, id)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || len(n.moved) >= maxMoved {
		return
	}
	n.moved[number] = struct{}{}
	if !n.running {
		n.running = true
		n.tasks.Go(n.run)
	}
}

// close tells what is still to be told.
func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.end()
	n.tasks.Wait()
}

// run ends when nothing was moved for a moment.
func (n *notifier) run() {
	for {
		moved := n.take()
		if len(moved) == 0 {
			return
		}
		if err := n.send(moved); err != nil {
			n.driver.logger.DebugContext(n.life, "waiters not told: they look by themselves", slog.Any("error", err))
		}
		sleep(n.life, notifyEvery)
	}
}

// take returns some of what was moved; with none the goroutine that asks ends.
func (n *notifier) take() []int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	var taken []int32
	for number := range n.moved {
		if len(taken) == maxNotified {
			break
		}
		taken = append(taken, number)
		delete(n.moved, number)
	}
	n.running = len(taken) > 0
	return taken
}

// send notifies in a transaction that takes, for a moment, the locks that nobody has: an effect of which one
// cannot be taken is waited for. Where nobody waits for anything, one lock says so.
func (n *notifier) send(moved []int32) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.life), 2*time.Second)
	defer cancel()
	tag, err := n.driver.pool.Exec(ctx, `
		SELECT pg_notify('`+channel+`', n::text)
		FROM (SELECT pg_try_advisory_xact_lock($2::integer, $3::integer) AS none OFFSET 0) w
		CROSS JOIN LATERAL (SELECT n FROM unnest($1::integer[]) AS n WHERE w.none IS NOT NULL) m
		WHERE NOT w.none AND NOT pg_try_advisory_xact_lock($2, n)`, moved, int32(waiting), int32(forAnything))
	n.told.Add(tag.RowsAffected())
	return err
}
