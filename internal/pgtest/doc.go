// Package pgtest gives tests PostgreSQL: a fresh database, a cluster that may be stopped and started,
// PgBouncer before either, and a proxy that cuts connections at a byte.
//
//	db := pgtest.New(t)
//	proxy := pgtest.NewProxy(t, db.URL)
//	proxy.CutAfter(pgtest.ToServer, 100)
//
// Databases are made on the server that UNDOLOG_TEST_POSTGRES names (a URL, as a superuser), else on one
// that the test process starts when it first needs it and that ends with the process. That one does not
// flush what tests write, only what benchmarks do. A test that cannot have its database fails.
package pgtest
