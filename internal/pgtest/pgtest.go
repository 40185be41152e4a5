package pgtest

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/undolog/undolog/internal/pgcluster"
)

// The servers of this process's tests and of its benchmarks, where no other is named. They are stopped and
// removed when this process has ended, or nothing refers to them any more.
//
// That of the tests flushes nothing, so that no test takes as long as the disk of a busy machine happens to take.
// It loses nothing by that: what a server has written is the operating system's, which outlives a server that is
// stopped or killed, and the server ends with this process. What a flush costs is for benchmarks, and what a stopped
// server keeps for tests that stop one of their own: both have PostgreSQL's durability.
var (
	testServer  = sync.OnceValues(func() (*pgcluster.Cluster, error) { return startShared(map[string]string{"fsync": "off"}) })
	benchServer = sync.OnceValues(func() (*pgcluster.Cluster, error) { return startShared(nil) })
)

func startShared(settings map[string]string) (*pgcluster.Cluster, error) {
	return pgcluster.New(context.Background(), &pgcluster.Options{Settings: settings})
}

// sharedServer is the address of the server of this process's tests, or of its benchmarks.
func sharedServer(tb testing.TB) (string, error) {
	if url := os.Getenv("UNDOLOG_TEST_POSTGRES"); url != "" {
		return url, nil
	}
	start := testServer
	if _, measures := tb.(*testing.B); measures {
		start = benchServer
	}
	cluster, err := start()
	if err != nil {
		return "", err
	}
	return cluster.URL(), nil
}

// New makes a fresh, empty database on the server of the process's tests, owned by a role of its own that
// is no superuser. It is dropped when the test has ended. Only a benchmark's is flushed to the disk.
func New(tb testing.TB) *pgcluster.Database {
	tb.Helper()
	return newDatabase(tb, pgcluster.CreateDatabase)
}

// NewCluster starts a cluster for this test alone, which may stop and start it. It is removed when the
// test has ended.
func NewCluster(tb testing.TB, opts *pgcluster.Options) *pgcluster.Cluster {
	tb.Helper()
	c, err := pgcluster.New(tb.Context(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// NewOn makes a fresh, empty database on a test's own cluster. It goes with the cluster.
func NewOn(tb testing.TB, c *pgcluster.Cluster) *pgcluster.Database {
	tb.Helper()
	db, err := pgcluster.CreateDatabase(tb.Context(), c.URL())
	if err != nil {
		tb.Fatal(err)
	}
	return db
}

// NewBouncer starts PgBouncer in transaction mode before the database, until the test has ended.
func NewBouncer(tb testing.TB, db *pgcluster.Database, opts *pgcluster.BouncerOptions) *pgcluster.Bouncer {
	tb.Helper()
	b, err := pgcluster.NewBouncer(tb.Context(), db, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

func newDatabase(tb testing.TB, create func(ctx context.Context, admin string) (*pgcluster.Database, error)) *pgcluster.Database {
	tb.Helper()
	admin, err := sharedServer(tb)
	if err != nil {
		tb.Fatal(err)
	}
	db, err := create(tb.Context(), admin)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Drop(context.WithoutCancel(tb.Context()), admin); err != nil {
			tb.Error(err)
		}
	})
	return db
}
