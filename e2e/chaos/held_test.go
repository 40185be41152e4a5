package chaos_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/internal/pgtest"
)

// A connection goes silent before the last message of a claim's transaction: the server holds the row of the
// claim, not committed, for as long as it takes the connection for alive. That call cannot be made meanwhile;
// all others can.
func TestConnections_claimHeldByASilentConnection(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := connect(t, db.AdminURL)
	b, claim := newMeasured(t, db)
	const sync = 5 // bytes of the message that commits
	b.proxy.StallAfter(pgtest.ToServer, claim-sync)
	ended := make(chan struct{})
	_, n := b.next(), b.next() // under a key, as the one that was measured
	var held told
	go func() {
		defer close(ended)
		held = b.call(n)
	}()
	eventually(t, time.Minute, "silent connection", func() bool { return b.proxy.Stalls() == 1 })

	l := startLoad(t, 16, newTool(t, briefly), b.replica)
	waited := longestWait(t, admin, 18*time.Second) // the first try ends after ten, or later on a busy machine
	l.end()
	if waited == 0 || waited > 5*time.Second {
		t.Errorf("sessions have waited for the held row for up to %s", waited)
	}
	b.proxy.Drop() // the server knows
	if <-ended; held.outcome != wasCharged {
		t.Errorf("the call was told %s in the end", held.outcome)
	}
	if l.answered() == 0 {
		t.Error("no other call was answered")
	}
	t.Logf("sessions waited up to %s, %d other calls were answered", waited, l.answered())
}

// longestWait is how long a session has waited for a lock at the most, by the server's clock, within some time,
// or within a minute when none has waited before.
func longestWait(t *testing.T, admin *pgx.Conn, within time.Duration) (longest time.Duration) {
	t.Helper()
	begun := time.Now()
	for ; longest == 0 && time.Since(begun) < time.Minute || time.Since(begun) < within; rest(t.Context(), 50*time.Millisecond) {
		var seconds float64
		err := admin.QueryRow(t.Context(), `
			SELECT COALESCE(MAX(EXTRACT(EPOCH FROM clock_timestamp() - query_start)), 0)::float8
			FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&seconds)
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Duration(seconds*float64(time.Second)))
	}
	return longest
}

// newMeasured is a replica behind a proxy, and how many bytes its claims send.
func newMeasured(t *testing.T, db *pgcluster.Database) (b *broken, claim int64) {
	t.Helper()
	proxy := pgtest.NewProxy(t, db.URL)
	var claimed atomic.Int64 // bytes that had passed when the last claim was made
	tl := newTool(t, func(context.Context) {
		sent, _ := proxy.Passed()
		claimed.Store(sent)
	})
	b = &broken{t: t, proxy: proxy, replica: newReplica(t, proxy.URL, nil), load: &load{t: t, tool: tl}}
	b.load.numbers.Store(1_000_020) // from here on calls are of equal length, and none of the load's
	b.wantCharged("the first call")
	var before int64
	b.wantCharged("the call that is measured", func() { before, _ = proxy.Passed() })
	return b, claimed.Load() - before
}
