package pgtest

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/undolog/undolog/internal/pgcluster"
)

// sharedCluster is the server of this process's tests, where no other is named. It is stopped and removed
// when this process has ended, or nothing refers to it any more.
var sharedCluster = sync.OnceValues(func() (*pgcluster.Cluster, error) {
	return pgcluster.New(context.Background(), nil)
})

// sharedServer is the address of the server of this process's tests.
func sharedServer() (string, error) {
	if url := os.Getenv("UNDOLOG_TEST_POSTGRES"); url != "" {
		return url, nil
	}
	cluster, err := sharedCluster()
	if err != nil {
		return "", err
	}
	return cluster.URL(), nil
}

// New makes a fresh, empty database on the server of the process's tests, owned by a role of its own that
// is no superuser. It is dropped when the test has ended.
func New(tb testing.TB) *pgcluster.Database {
	tb.Helper()
	admin, err := sharedServer()
	if err != nil {
		tb.Fatal(err)
	}
	return newDatabase(tb, admin)
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

func newDatabase(tb testing.TB, admin string) *pgcluster.Database {
	tb.Helper()
	db, err := pgcluster.CreateDatabase(tb.Context(), admin)
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
