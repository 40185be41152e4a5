// Package pgtest gives tests PostgreSQL: a fresh database, a cluster that may be stopped and started,
// PgBouncer before either, and a proxy that cuts connections at a byte.
//
//	db := pgtest.New(t)
//	proxy := pgtest.NewProxy(t, db.URL)
//	proxy.CutAfter(pgtest.ToServer, 100)
//
// A test that is not about how a schema is made starts from a copy of a database in which it was:
//
//	var migrated = pgtest.NewTemplate(postgres.Migrate)
//	…
//	db := migrated.New(t)
//
// Databases are made on the server that UNDOLOG_TEST_POSTGRES names, else on one that the test process starts when it
// first needs it and that ends with the process. That one does not flush what tests write, only what benchmarks do. A
// test that cannot have its database fails.
//
// UNDOLOG_TEST_POSTGRES is a URL as a superuser: roles and databases are made, what a template's role owns is given to
// a copy's, and connections of other roles are ended. Any number of processes may use one server: each has templates
// of its own, and removes those of processes that ended without doing so. What they share is the prefix of the names,
// undolog_.
package pgtest
