// Package postgres keeps the effect log in PostgreSQL, for any number of stateless replicas.
//
//	driver, err := postgres.Open(ctx, "postgres://undolog@db/undolog", nil)
//	if err != nil { … }
//	log, err := store.Open(driver, nil)
//	defer log.Close()
//
// Constraints decide races, never a lock that is held over time: an effect is claimed by inserting
// (signature, generation) and moved by inserting (effect, ordinal), and whoever inserts nothing reads who
// was first. A call that the log does not know is claimed in one round trip, and settled in one more. No
// transaction is open between round trips, except where a person's word is used or asked for. Nothing that
// decides belongs to a session, so that PgBouncer's transaction mode is as good as a connection of one's own,
// and no connection is held while a tool runs. Who waits for another replica looks for its end, and listens for
// it where a connection can be had for that.
//
// Writes of many callers are grouped into one transaction, and so are the questions of calls that are known;
// who is alone waits for nobody. A group of writes in which something fails is sent again one by one. When a
// commit is not answered, the write is tried again under the same identity until the database says whose it
// is: a write that was done is found, never done twice.
//
// Tenants are kept apart by row-level security that holds for the owner of the tables too. Each transaction
// sets its tenant for itself; without one nothing is seen. Open refuses a role that policies do not bind.
//
// The clock is the database's. The package does not know what a call is safe to do: effect.Decide says so,
// on facts of one statement, and what it says is written by compare-and-set.
package postgres
