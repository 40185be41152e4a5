package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// tx is the running transaction. Its time is one for the whole group. One that has not begun begins with
// its first statement, unless that is its last: SQLite makes such a statement a transaction of its own,
// which spares a lone write two more.
type tx struct {
	writer  *writer
	now     time.Time
	open    bool     // BEGIN has been said
	over    bool     // a statement was the transaction
	learned []func() // what is known for certain once the transaction is durable
}

func (w *writer) newTx() *tx {
	return &tx{writer: w, now: w.now().UTC().Truncate(time.Microsecond)}
}

// begun is the transaction that the writer has begun.
func (w *writer) begun() *tx {
	t := w.newTx()
	t.open = true
	return t
}

// exec and query take no caller's context: a write that has begun ends.
func (t *tx) exec(query string, args ...any) (sql.Result, error) {
	s, err := t.statement(query)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(context.Background(), args...)
}

func (t *tx) query(query string, args ...any) (*sql.Rows, error) {
	s, err := t.statement(query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(context.Background(), args...)
}

// execLast is exec for a statement after which, if it changes anything, its request does nothing more.
func (t *tx) execLast(query string, args ...any) (sql.Result, error) {
	if t.open {
		return t.exec(query, args...)
	}
	s, err := t.writer.prepare(query)
	if err != nil {
		return nil, err
	}
	result, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return nil, err
	}
	n, err := result.RowsAffected()
	t.over = n > 0
	return result, err
}

var errOver = errors.New("a statement after the last of its transaction")

func (t *tx) statement(query string) (*sql.Stmt, error) {
	if t.over {
		panic(errOver)
	}
	if !t.open {
		if err := t.writer.exec(`BEGIN IMMEDIATE`); err != nil {
			return nil, err
		}
		t.open = true
	}
	return t.writer.prepare(query)
}

func (t *tx) commit() error {
	if !t.open {
		return nil
	}
	return t.writer.exec(`COMMIT`)
}

// rollback ends the transaction; SQLite may have done so by itself, which is no error.
func (t *tx) rollback() error {
	if !t.open {
		return nil
	}
	if err := t.writer.exec(`ROLLBACK`); err != nil && primary(err) != sqlite3.SQLITE_ERROR {
		return err
	}
	return nil
}
