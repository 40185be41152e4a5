package chaos_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/internal/pgtest"
)

// 200 slow tools run at once on two replicas, one of which has two connections: none is held meanwhile.
func TestPools_noConnectionIsHeldWhileAToolRuns(t *testing.T) {
	t.Parallel()
	const calls = 200
	db := pgtest.New(t)
	var running atomic.Int64
	together := make(chan struct{}) // all tools run before any of them ends
	inVain, giveUp := context.WithTimeout(t.Context(), 2*time.Minute)
	defer giveUp()
	var alone atomic.Int64 // tools that gave up
	tl := newTool(t, func(ctx context.Context) {
		if running.Add(1) == calls {
			close(together)
		}
		select {
		case <-together:
			rest(ctx, scaled(time.Second, 5*time.Second))
		case <-inVain.Done():
			alone.Add(1)
		}
	})
	address := withParameter(t, db.URL, "application_name", "small")
	l := &load{t: t, tool: tl, stop: func() {}, replicas: []*replica{
		newReplica(t, withParameter(t, address, "pool_max_conns", "2"), steady, nil),
		newReplica(t, db.URL, steady, nil),
	}}
	watch := watchSessions(t, db.AdminURL, db.Name)
	for range calls {
		n := l.numbers.Add(1)
		l.callers.Go(func() {
			if got := l.callOn(l.replicas[n%2], int(n)); got.end == "" {
				giveUp() // without its tool they are never all together
			}
		})
	}
	l.callers.Wait()
	watch.end()
	if alone.Load() > 0 {
		t.Fatalf("of %d tools %d ran, and not all of them at once; calls without a tool were told %v", calls, running.Load(), l.unsent())
	}
	if watch.looks == 0 || watch.inTransaction > 0 || watch.small > 2 {
		t.Errorf("%d looks: %d sessions idle in a transaction, at most %d of the pool of two", watch.looks, watch.inTransaction, watch.small)
	}
	tl.work = func(context.Context) {}
	l.reckon()
}

// sessions is what was seen of the log's own sessions.
type sessions struct {
	looks, inTransaction, small int

	stop func()
	done sync.WaitGroup
}

func (s *sessions) end() {
	s.stop()
	s.done.Wait()
}

func watchSessions(t *testing.T, address, role string) *sessions {
	t.Helper()
	conn := connect(t, address)
	ctx, stop := context.WithCancel(t.Context())
	s := &sessions{stop: stop}
	s.done.Go(func() {
		for rest(ctx, 10*time.Millisecond) {
			var waiting, small int
			err := conn.QueryRow(t.Context(), `
				SELECT count(*) FILTER (WHERE state LIKE 'idle in transaction%'), count(*) FILTER (WHERE application_name = 'small')
				FROM pg_stat_activity
				WHERE usename = $1`, role).Scan(&waiting, &small)
			if err != nil {
				t.Error(err)
				return
			}
			s.looks++
			s.inTransaction += waiting
			s.small = max(s.small, small)
		}
	})
	t.Cleanup(s.end)
	return s
}

// connect is a connection of the test's own.
func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}
