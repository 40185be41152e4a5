// Package pgcluster runs PostgreSQL for tests and benchmarks: clusters of their own in temporary
// directories, with the durability that PostgreSQL has by default, and PgBouncer before them.
//
//	cluster, err := pgcluster.New(ctx, nil)
//	…
//	defer cluster.Close()
//	db, err := pgcluster.CreateDatabase(ctx, cluster.URL())
//
// It takes the newest programs that it finds, and installs them where it may. What it starts ends with
// the process that started it, however that ends, and leaves nothing behind. It knows nothing of the
// project's schema.
package pgcluster
