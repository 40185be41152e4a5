// Command pg prints one table of what the effect log costs on PostgreSQL. It starts a cluster of its own with
// PostgreSQL's default durability, and measures by turns, in one run on one machine whose cores the database
// and its clients share: pgbench, the plain sequence of statements that a careful program would use, DBOS
// Transact for Go, and the log, on PostgreSQL directly and through PgBouncer and on SQLite. Machines and disks
// differ and change from minute to minute: read the ratios.
//
//	make bench-pg
//	go run ./bench/pg -callers 64 -duration 5s -rounds 3
//	go run ./bench/pg -only growth -rows 10000000
//
// A goal that was not reached is printed as missed.
package main
