package chaos_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store/postgres"
)

// PostgreSQL is stopped at random moments under 64 callers, and started again.
func TestStops_outcomesAgreeWithTheLedger(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, nil)
	db := pgtest.NewOn(t, cluster)
	bouncer := pgtest.NewBouncer(t, db, nil)
	tl := newTool(t, briefly)
	l := startLoad(t, 64, tl,
		newReplica(t, db.URL, brief, nil),
		newReplica(t, withParameter(t, db.URL, "pool_max_conns", "2"), brief, nil),
		newReplica(t, bouncer.URL, brief, nil),
		newReplica(t, db.URL, brief, &postgres.Options{Patience: 6 * time.Second}), // gives up in long stops
	)
	n := howOften(6, 500)
	began := time.Now()
	for i := range n {
		before := l.answered()
		rest(t.Context(), upTo(700*time.Millisecond))
		stopFor(t, cluster, upTo(200*time.Millisecond))
		eventually(t, time.Minute, "answer after a stop", func() bool { return l.answered() > before })
		if i%50 == 49 {
			t.Logf("%d stops in %s, %d answers", i+1, time.Since(began).Round(time.Second), l.answered())
		}
	}
	l.reckon()
	t.Logf("%d stops in %s", n, time.Since(began).Round(time.Second))
}

// howOften is how many stops a test makes.
func howOften(short, long int) int {
	if *stops > 0 {
		return *stops
	}
	return scaled(short, long)
}

func stopFor(t *testing.T, cluster *pgcluster.Cluster, d time.Duration) {
	t.Helper()
	mode := []pgcluster.Mode{pgcluster.Fast, pgcluster.Immediate}[rand.N(2)]
	if err := cluster.Stop(mode); err != nil {
		t.Fatalf("stop %s: %v", mode, err)
	}
	rest(t.Context(), d)
	if err := cluster.Start(t.Context()); err != nil {
		t.Fatalf("start after a stop %s: %v", mode, err)
	}
}
