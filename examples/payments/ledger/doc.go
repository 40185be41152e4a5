// Package ledger is the file in which the payments example records what it did: one JSON line for each
// effect, appended by one write and synced before the tool answers. A test counts effects here, at the
// tool, and never in the log of whatever stands in front of it.
//
//	entries, err := ledger.Read(path)
//	charges := ledger.Of(entries, "charge")
//
// Several processes may append to one file.
package ledger
