package store

import (
	"errors"
	"fmt"

	"github.com/undolog/undolog/effect"
)

var (
	// ErrNotFound means that the tenant has no effect of that id.
	ErrNotFound = errors.New("effect not found")
	// ErrClosed means that the log was closed.
	ErrClosed = errors.New("log closed")
	// ErrSchema means that the file or database was written by another version of the program.
	ErrSchema = errors.New("schema version not supported by this program")
	// ErrBusy means that other processes kept the log locked for longer than a write may wait. Nothing
	// was written.
	ErrBusy = errors.New("log is busy")
	// ErrUnreachable means that the database was not there for as long as a write may wait. Whether the write
	// was done is not known: a claim that was is nobody's, and in doubt once its time is over.
	ErrUnreachable = errors.New("log cannot be reached")
	// ErrReplaced means that the log's file was removed or replaced under the program. Nothing was written,
	// and nothing will be until the log is opened anew.
	ErrReplaced = errors.New("log file is not where it was")
)

// ConflictError means that an effect stands elsewhere than its mover thought.
type ConflictError struct {
	ID     string
	Want   effect.State // where it was to be moved
	Record *effect.Record
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("move effect %s to %s: it is %s", e.ID, e.Want, e.Record.State)
}
