package postgres

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// channel is the one that is listened to.
	channel = "undolog"
	// waiting is the first number of the advisory locks that say of an effect that somebody waits for it; the
	// second is its number. They decide nothing, and end with the connection that holds them.
	waiting = 0x756e646f
	// forAnything is the number by which a listener says that it is one.
	forAnything = 0
	// maxAwaited bounds the effects that a driver listens for: each is a lock in the server's table of locks,
	// which all share. Who waits for more only looks.
	maxAwaited = 256
	// listenCheck is how often a connection that hears nothing is found to be alive, and closed when nobody
	// waits any more.
	listenCheck = 5 * time.Second
)

// effectNumber is what an effect is called where others may hear it. Two of one number only wake each other.
func effectNumber(tenant, id string) int32 { return int32(hash("wait", tenant, id)) }

// listener hears that effects were moved by other processes. It holds one connection of its own, beside the
// pool, for as long as somebody waits: to listen belongs to a session, and so does saying for which effects.
// A pooler that shares connections has none to give, and then waiters only look. What is heard is not believed:
// it wakes who waits, and they look.
type listener struct {
	driver *Driver
	heard  atomic.Int64

	mu        sync.Mutex
	awaited   map[int32]map[*waiter]struct{}
	listening bool // a goroutine does it
	interrupt context.CancelFunc
	closed    bool
	tasks     sync.WaitGroup
	life      context.Context // ends when the driver closes
	end       context.CancelFunc
}

type waiter struct{ wake func() }

func (l *listener) init(d *Driver) {
	l.driver = d
	l.awaited = map[int32]map[*waiter]struct{}{}
	l.life, l.end = context.WithCancel(context.Background())
}

// Await implements store.Waking.
func (d *Driver) Await(tenant, id string, wake func()) (leave func()) {
	if !d.mode.isOwn() {
		return func() {}
	}
	return d.listener.await(effectNumber(tenant, id), &waiter{wake})
}

func (l *listener) await(n int32, w *waiter) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.awaited[n] == nil && len(l.awaited) >= maxAwaited {
		return func() {}
	}
	if l.awaited[n] == nil {
		l.awaited[n] = map[*waiter]struct{}{}
		if l.interrupt != nil {
			l.interrupt()
		}
	}
	l.awaited[n][w] = struct{}{}
	if !l.listening {
		l.listening = true
		l.tasks.Go(l.listen)
	}
	return func() { l.leave(n, w) }
}

func (l *listener) leave(n int32, w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.awaited[n], w)
	if len(l.awaited[n]) == 0 {
		delete(l.awaited, n)
	}
}

func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end()
	l.tasks.Wait()
}

// ends reports whether nobody waits any more; the goroutine that asks then ends.
func (l *listener) ends() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listening = len(l.awaited) > 0 && !l.closed
	return !l.listening
}

// listen goes on, over any number of connections, until nobody waits.
func (l *listener) listen() {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 30*time.Second) {
		begun := time.Now()
		err := l.session()
		if l.ends() {
			return
		}
		if err != nil {
			l.driver.logger.DebugContext(l.life, "not listening for what others do: looking for it instead", slog.Any("error", err))
		}
		if time.Since(begun) > time.Minute {
			pause = 100 * time.Millisecond
		}
		sleep(l.life, pause/2+rand.N(pause))
	}
}

// session listens on one connection until that ends, or nobody waits.
func (l *listener) session() (err error) {
	conn, err := l.connect()
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.life), time.Second)
		defer cancel()
		err = errors.Join(err, conn.Close(ctx))
	}()
	due := true
	for held := map[int32]bool{}; ; {
		ctx, cancel := l.untilChange()
		if err := l.hold(conn, held, due); err != nil {
			cancel()
			return err
		}
		heard, err := conn.WaitForNotification(ctx)
		due = ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			l.hear(heard)
		case !due || l.life.Err() != nil:
			return err
		case l.isIdle():
			return nil
		}
	}
}

func (l *listener) connect() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(l.life, l.driver.patience/3)
	defer cancel()
	config := l.driver.pool.Config().ConnConfig // a copy
	config.RuntimeParams["application_name"] += " listening"
	config.RuntimeParams["lock_timeout"] = tuning["lock_timeout"] // who notifies may have gone silent over its locks
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, `LISTEN `+channel)
	if err == nil {
		_, err = conn.Exec(ctx, `SELECT pg_advisory_lock_shared($1, $2)`, int32(waiting), int32(forAnything))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// untilChange is a context that ends when somebody waits for something more, or it is time to look around.
func (l *listener) untilChange() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(l.life, listenCheck)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.interrupt = cancel
	return ctx, cancel
}

func (l *listener) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.awaited) == 0
}

// hold takes the locks of what is awaited now and gives up the others. Who began to wait is woken then: what
// has happened before, nobody will tell. With nothing to be done it finds out, when that is due, whether the connection
// is alive: not for each of any number of notifications, which everybody may send.
func (l *listener) hold(conn *pgx.Conn, held map[int32]bool, due bool) error {
	l.mu.Lock()
	wanted := slices.Collect(maps.Keys(l.awaited))
	l.mu.Unlock()
	isHeld := func(n int32) bool { return held[n] }
	begun := slices.DeleteFunc(slices.Clone(wanted), isHeld)
	var over []int32
	for n := range held {
		if !slices.Contains(wanted, n) {
			over = append(over, n)
		}
	}
	if len(begun) == 0 && len(over) == 0 && !due {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.life, l.driver.patience/3)
	defer cancel()
	_, err := conn.Exec(ctx, `
		SELECT COUNT(pg_advisory_lock_shared($1, n)::text) FROM unnest($2::integer[]) AS n
		UNION ALL
		SELECT COUNT(pg_advisory_unlock_shared($1, n)) FROM unnest($3::integer[]) AS n`, int32(waiting), begun, over)
	if err != nil {
		return err
	}
	for _, n := range over {
		delete(held, n)
	}
	for _, n := range begun {
		held[n] = true
		l.wake(n)
	}
	return nil
}

func (l *listener) hear(heard *pgconn.Notification) {
	n, err := strconv.ParseInt(heard.Payload, 10, 32)
	if err != nil {
		return // of somebody else's
	}
	l.heard.Add(1)
	l.wake(int32(n))
}

func (l *listener) wake(n int32) {
	l.mu.Lock()
	woken := slices.Collect(maps.Keys(l.awaited[n]))
	l.mu.Unlock()
	for _, w := range woken {
		w.wake()
	}
}
