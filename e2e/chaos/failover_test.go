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
	l := startLoad(t, 32, newTool(t, briefly), differentReplicas(t, db, brief, nil)...)
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
	l := startLoad(t, 32, tl, differentReplicas(t, db, brief, &postgres.Options{Patience: 6 * time.Second})...)
	for range scaled(1, 5) {
		before := l.answered()
		eventually(t, time.Minute, "answer", func() bool { return l.answered() > before })
		execute(t, admin, `ALTER DATABASE `+db.Name+` SET default_transaction_read_only = on`)
		stopped, since := l.count(wasBlocked), now(t, admin)
		eventually(t, time.Minute, "call that was stopped", func() bool {
			endSessionsBefore(t, admin, db, since, everybody)
			return l.count(wasBlocked) > stopped+32
		})
		charged := len(tl.charges(t))
		rest(t.Context(), scaled(time.Second, 3*time.Second))
		if more := len(tl.charges(t)) - charged; more != 0 {
			t.Errorf("%d calls took effect while nothing could be written", more)
		}
		execute(t, admin, `ALTER DATABASE `+db.Name+` RESET default_transaction_read_only`)
		before, since = l.answered(), now(t, admin)
		eventually(t, time.Minute, "answer when the log can be written again", func() bool {
			endSessionsBefore(t, admin, db, since, poolers) // replicas leave theirs by themselves
			return l.answered() > before+32
		})
	}
	l.reckon()
}

// differentReplicas are three: with a wide pool, with one of two, and through PgBouncer.
func differentReplicas(t *testing.T, db *pgcluster.Database, ttl time.Duration, opts *postgres.Options) []*replica {
	t.Helper()
	return []*replica{
		newReplica(t, db.URL, ttl, opts),
		newReplica(t, withParameter(t, db.URL, "pool_max_conns", "2"), ttl, opts),
		newReplica(t, withParameter(t, pgtest.NewBouncer(t, db, nil).URL, "application_name", "pooled"), ttl, opts),
	}
}

func endSessions(t *testing.T, admin *pgx.Conn, db *pgcluster.Database) {
	t.Helper()
	endSessionsBefore(t, admin, db, now(t, admin), everybody)
}

// Whose sessions are ended, by pattern of the name that they do not have.
const (
	everybody = ""
	poolers   = "undolog%"
)

// endSessionsBefore ends those that began before a time. One that is about to begin is not seen yet, and may have
// read the settings of before: whoever wants none of these asks again.
func endSessionsBefore(t *testing.T, admin *pgx.Conn, db *pgcluster.Database, before time.Time, whose string) {
	t.Helper()
	_, err := admin.Exec(t.Context(), `
		SELECT pg_terminate_backend(pid)
		FROM pg_stat_activity
		WHERE usename = $1 AND backend_start <= $2 AND ($3 = '' OR application_name NOT LIKE $3)`, db.Name, before, whose)
	if err != nil {
		t.Fatal(err)
	}
}

// now is the time by the server's clock.
func now(t *testing.T, conn *pgx.Conn) (at time.Time) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}
