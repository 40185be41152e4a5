package chaos_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store/postgres"
)

func TestFailover_sessionsAreEnded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := connect(t, db.AdminURL)
	l := startLoad(t, 32, newTool(t, briefly), differentReplicas(t, db, nil)...)
	for end := time.Now().Add(scaled(3*time.Second, 20*time.Second)); time.Now().Before(end); rest(t.Context(), 50*time.Millisecond) {
		endSessions(t, admin, db)
	}
	l.reckon()
}

// A server that was the primary answers and does not write: calls are stopped with the reason, and go on
// when there is one again that does.
func TestFailover_aStandbyAnswers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := connect(t, db.AdminURL)
	tl := newTool(t, briefly)
	l := startLoad(t, 32, tl, differentReplicas(t, db, &postgres.Options{Patience: 3 * time.Second})...)
	for range scaled(1, 5) {
		before := l.answered()
		eventually(t, time.Minute, "answer", func() bool { return l.answered() > before })
		execute(t, admin, `ALTER DATABASE `+db.Name+` SET default_transaction_read_only = on`)
		endSessions(t, admin, db)
		stopped := l.count(wasBlocked)
		eventually(t, time.Minute, "call that was stopped", func() bool { return l.count(wasBlocked) > stopped+32 })
		charged := len(tl.charges(t))
		rest(t.Context(), scaled(time.Second, 3*time.Second))
		if now := len(tl.charges(t)); now != charged {
			t.Errorf("%d calls took effect while nothing could be written", now-charged)
		}
		execute(t, admin, `ALTER DATABASE `+db.Name+` RESET default_transaction_read_only`)
		before = l.answered()
		eventually(t, 10*time.Second, "answer when the log can be written again", func() bool { return l.answered() > before+32 })
	}
	l.reckon()
}

// differentReplicas are three: with a wide pool, with one of two, and through PgBouncer.
func differentReplicas(t *testing.T, db *pgcluster.Database, opts *postgres.Options) []*replica {
	t.Helper()
	return []*replica{
		newReplica(t, db.URL, opts),
		newReplica(t, withParameter(t, db.URL, "pool_max_conns", "2"), opts),
		newReplica(t, pgtest.NewBouncer(t, db, nil).URL, opts),
	}
}

func endSessions(t *testing.T, admin *pgx.Conn, db *pgcluster.Database) {
	t.Helper()
	if _, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1`, db.Name); err != nil {
		t.Fatal(err)
	}
}
