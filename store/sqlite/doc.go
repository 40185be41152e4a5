// Package sqlite keeps the effect log in one SQLite file that any number of processes may share.
//
//	driver, err := sqlite.Open(ctx, "/home/me/.local/state/undolog/undolog.db", nil)
//	if err != nil { … }
//	log, err := store.Open(driver, nil)
//	defer log.Close()
//
// The file is the only truth: nothing that decides is kept in memory, because a gateway per agent and
// the command line write to the same file. Writing is one connection: a goroutine takes what is queued,
// without waiting for more, into one transaction, so that many callers share one sync, and a lone caller
// has its turn at the connection without it. A group in which something fails is run again one by one, so
// that one bad row does not fail its neighbours. Reading is a small pool that holds nobody up.
//
// Every write is durable when it returns (WAL, synchronous=FULL; SQLite is told to use fdatasync, as
// the distributions' builds do). Times are the process's own clock. The package does not know what a
// call is safe to do: effect.Decide says so, inside the transaction.
package sqlite
