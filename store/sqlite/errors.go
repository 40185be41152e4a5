package sqlite

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// primary is SQLite's primary result code of an error, 0 when it is not SQLite's.
func primary(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// isBusy reports whether another connection is in the way: waiting helps. A file being recovered or
// switched to WAL by another process says so in its own codes.
func isBusy(err error) bool {
	switch primary(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}

// explain says what a person can do about an error of the file; SQLite's own texts name the cause only.
func explain(err error) error {
	switch primary(err) {
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("the file is not an effect log (not a SQLite database): name another file: %w", err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("the file is damaged: keep it, restore a copy or begin with a new file: %w", err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return fmt.Errorf("the file, or its directory, cannot be written: %w", err)
	case sqlite3.SQLITE_CANTOPEN:
		return fmt.Errorf("the file cannot be opened (SQLite also needs to create files beside it): %w", err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("the disk is full: %w", err)
	}
	return err
}
