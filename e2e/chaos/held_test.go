package chaos_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store/postgres"
)

// A connection goes silent before the last message of a claim's transaction: the server holds the row of the
// claim, not committed, for as long as it takes the connection for alive. That call cannot be made meanwhile;
// all others can.
func TestConnections_claimHeldByASilentConnection(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	ended := h.hold()
	l := startLoad(t, 16, newTool(t, briefly), h.replica)
	waited := h.longestWait()
	h.proxy.Drop() // the server knows, long before the call's patience is over
	if got := <-ended; got.outcome != wasCharged {
		t.Errorf("the call was told %s in the end", got.outcome)
	}
	l.end()
	if waited > 7*time.Second { // they are to give up after two; a try that does not gives up after fifteen
		t.Errorf("sessions have waited for the held row for up to %s", waited)
	}
	if l.answered() == 0 {
		t.Error("no other call was answered")
	}
	t.Logf("sessions waited up to %s, %d other calls were answered", waited, l.answered())
}

// held is a replica behind a proxy that has gone silent over one of its claims.
type held struct {
	*broken
	admin   *pgx.Conn
	claimed atomic.Int64 // bytes that had passed when the last claim was made
}

func newHeld(t *testing.T) *held {
	t.Helper()
	db := pgtest.New(t)
	h := &held{admin: connect(t, db.AdminURL)}
	proxy := pgtest.NewProxy(t, db.URL)
	tl := newTool(t, func(context.Context) {
		sent, _ := proxy.Passed()
		h.claimed.Store(sent)
	})
	h.broken = &broken{t: t, proxy: proxy, replica: newReplica(t, proxy.URL, steady, &postgres.Options{Patience: 45 * time.Second}), load: &load{t: t, tool: tl}}
	h.load.numbers.Store(1_000_020) // from here on calls are of equal length, and none of the load's
	h.wantCharged("the first call")
	return h
}

// hold makes a call whose claim is held, and returns how to await its end. Which statement is stopped is a matter
// of bytes, and others than the claim's may go by when nobody expects them: it makes sure, and else tries again.
func (h *held) hold() <-chan told {
	h.t.Helper()
	const sync = 5 // bytes of the message that commits
	for range 20 {
		claim := h.measure()
		stalls := h.proxy.Stalls()
		h.proxy.StallAfter(pgtest.ToServer, claim-sync)
		n, ended := h.nextKeyed(), make(chan told, 1)
		go func() { ended <- h.call(n) }()
		if h.isHeld(n, stalls, ended) {
			return ended
		}
		h.proxy.Disarm()
		h.proxy.Drop()
		got := <-ended
		h.t.Logf("not the claim of call %d was stopped %d bytes before its end: %d went silent, it was told %s",
			n, sync, h.proxy.Stalls()-stalls, got.outcome)
	}
	h.t.Fatal("no claim was held")
	return nil
}

// measure is how many bytes a claim sends, on connections that have sent one before, and nothing is sent meanwhile.
func (h *held) measure() (claim int64) {
	h.t.Helper()
	eventually(h.t, time.Minute, "two claims of equal length", func() bool {
		last := claim
		before := h.silence()
		if got := h.call(h.nextKeyed()); got.outcome != wasCharged {
			h.t.Fatalf("a call that is measured was told %s", got.outcome)
		}
		claim = h.claimed.Load() - before
		return claim == last
	})
	h.silence()
	return claim
}

// nextKeyed is the next call under a key: all of these are of equal length.
func (h *held) nextKeyed() int {
	n := h.next()
	for n%2 != 0 {
		n = h.next()
	}
	return n
}

// silence waits until what is sent after an answer is, and returns how much has passed then.
func (h *held) silence() (sent int64) {
	h.t.Helper()
	sent, got := h.proxy.Passed()
	since := time.Now()
	eventually(h.t, time.Minute, "silence before a call", func() bool {
		sentNow, gotNow := h.proxy.Passed()
		if sentNow != sent || gotNow != got {
			sent, got, since = sentNow, gotNow, time.Now()
		}
		return time.Since(since) >= 300*time.Millisecond
	})
	return sent
}

// isHeld waits until a session that has written to the effects has been waiting for a second to hear what to do with
// it, while the call has not got to its tool; false when it has, or nothing of the kind happens.
func (h *held) isHeld(n, stalls int, ended chan told) (is bool) {
	h.t.Helper()
	begun := time.Now()
	for len(ended) == 0 && !is && time.Since(begun) < 8*time.Second {
		err := h.admin.QueryRow(h.t.Context(), `
			SELECT EXISTS (SELECT
			               FROM pg_stat_activity a
			               JOIN pg_locks l USING (pid)
			               WHERE a.datname = current_database() AND a.backend_xid IS NOT NULL AND a.wait_event = 'ClientRead'
			                 AND a.xact_start < clock_timestamp() - interval '1 second'
			                 AND l.relation = 'undolog.effect'::regclass AND l.mode = 'RowExclusiveLock')`).Scan(&is)
		if err != nil {
			h.t.Fatal(err)
		}
		is = is && h.proxy.Stalls() > stalls
		rest(h.t.Context(), 20*time.Millisecond)
	}
	return is && len(h.load.tool.endsOf(n)) == 0
}

// longestWait watches who waits for the row, until some time after the first who does, and returns how long one has
// waited at the most. The first waits when the call's first try has ended, which is after a third of its patience.
func (h *held) longestWait() (longest time.Duration) {
	h.t.Helper()
	var first time.Time
	for begun := time.Now(); first.IsZero() || time.Since(first) < 9*time.Second; rest(h.t.Context(), 50*time.Millisecond) {
		var seconds float64
		err := h.admin.QueryRow(h.t.Context(), `
			SELECT COALESCE(MAX(EXTRACT(EPOCH FROM clock_timestamp() - l.waitstart)), 0)::float8
			FROM pg_locks l
			JOIN pg_stat_activity a USING (pid)
			WHERE a.datname = current_database() AND NOT l.granted AND l.locktype IN ('transactionid', 'tuple', 'spectoken')`).Scan(&seconds)
		if err != nil {
			h.t.Fatal(err)
		}
		longest = max(longest, time.Duration(seconds*float64(time.Second)))
		if first.IsZero() && longest > 0 {
			first = time.Now()
		}
		if first.IsZero() && time.Since(begun) > time.Minute {
			h.t.Fatal("nobody has waited for the held row")
		}
	}
	return longest
}
