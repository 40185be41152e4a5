package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/undolog/undolog/store"
)

// SQLSTATE codes (PostgreSQL, appendix A) that are told apart here.
const (
	protocolViolation    = "08P01"
	uniqueViolation      = "23505"
	undefinedTable       = "42P01"
	invalidSchema        = "3F000"
	duplicatePrepared    = "42P05"
	noSuchPrepared       = "26000"
	insufficientRights   = "42501"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	queryCanceled        = "57014"
	idleInTransaction    = "25P03"
	transactionTimeout   = "25P04"
	readOnlyTransaction  = "25006"
)

// code is the SQLSTATE of an error, empty when it is not the database's.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// isPassing reports whether an error tells of the database or the way to it, and not of the statement:
// trying again may help. Whether the statement was done is not known.
func isPassing(err error) bool {
	switch c := code(err); {
	case c == serializationFailure, c == deadlockDetected, c == lockNotAvailable:
		return true
	case c == readOnlyTransaction: // a standby that was the primary
		return true
	case isPreparedElsewhere(err):
		return true
	case c != "":
		switch c[:2] {
		case "08", "53", "57", "58": // connection, resources, shutting down or starting, the system
			return true
		}
		return false
	}
	if _, ok := errors.AsType[pgx.ScanArgError](err); ok {
		return false
	}
	return !errors.Is(err, context.Canceled) && !isRefusal(err)
}

// isUnanswered reports whether a write that ended with the error may have been done: the connection broke, the server
// ended, time was over, or what it answered could not be read. An error that the server gives to a statement undoes it.
func isUnanswered(err error) bool {
	if err == nil || isRefusal(err) || errors.Is(err, store.ErrBusy) {
		return false
	}
	c := code(err)
	if c == "" {
		return true
	}
	switch c[:2] {
	case "08", "57", "58": // connection, shutting down, the system
		return true
	}
	return false
}

// isPreparedElsewhere reports whether a statement was prepared on another connection than the one that is
// to run it: a pooler that shares connections is between us and the database.
func isPreparedElsewhere(err error) bool {
	c := code(err)
	return c == noSuchPrepared || c == duplicatePrepared
}

// isRefusal reports whether an error is an answer of the log and none of the database.
func isRefusal(err error) bool {
	_, conflict := errors.AsType[*store.ConflictError](err)
	return conflict || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrClosed)
}

var errRights = errors.New("the role has not the rights that the log needs (see docs/postgres.md for the GRANTs)")

// errUnsound says that the role may write, and what it wrote is none that the log can hold.
var errUnsound = errors.New("a row is not what the policy of its table asks for (\\d of the table shows it), and was not written; no GRANT " +
	"would help: unless somebody has changed the policies this is a bug of undolog's, please report it with this message")

// isUnsound reports whether a row broke the WITH CHECK of its table's policy. That has the SQLSTATE of missing rights,
// and a message in the server's language; the routine that raised it has one name.
func isUnsound(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == insufficientRights && e.Routine == "ExecWithCheckOptions"
}

// lacksRights reports whether the role may not do what was tried.
func lacksRights(err error) bool { return code(err) == insufficientRights && !isUnsound(err) }

// explain says, once, what a person can do about an error of the database.
func explain(err error) error {
	switch {
	case errors.Is(err, errRights), errors.Is(err, errUnsound):
		return err
	case isUnsound(err):
		return fmt.Errorf("%w: %w", errUnsound, err)
	case lacksRights(err):
		return fmt.Errorf("%w: %w", errRights, err)
	}
	return err
}
