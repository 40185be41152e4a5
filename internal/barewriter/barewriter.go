// Package barewriter is what the effect log on SQLite is measured against: a writer that writes the same
// two rows for an effect, in the same file layout, with the same durability and the same grouping of
// concurrent writes, and decides nothing. It is for benchmarks only.
package barewriter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

// Writer writes effects. It is safe for concurrent use.
type Writer struct {
	db      *sql.DB
	conn    *sql.Conn
	queue   chan insert
	stopped chan struct{}

	begin, commit, effect, transition *sql.Stmt
}

// insert is one row on its way into the file.
type insert struct {
	stmt *sql.Stmt
	args []any
	done chan inserted
}

type inserted struct {
	seq int64
	err error
}

// Open makes the log's schema in a new file at path.
func Open(ctx context.Context, path string) (*Writer, error) {
	d, err := sqlite.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(FULL)&_pragma=wal_autocheckpoint(1000)")
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	w := &Writer{db: db, queue: make(chan insert, 1024), stopped: make(chan struct{})}
	if err := w.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close())
	}
	go w.loop(context.WithoutCancel(ctx))
	return w, nil
}

func (w *Writer) prepare(ctx context.Context) (err error) {
	if w.conn, err = w.db.Conn(ctx); err != nil {
		return err
	}
	for _, s := range []struct {
		stmt  **sql.Stmt
		query string
	}{
		{&w.begin, `BEGIN IMMEDIATE`},
		{&w.commit, `COMMIT`},
		{&w.effect, `
			INSERT INTO effect (id, tenant, principal, session, trace, server, tool, tier, rule, scope,
			       signature, window, generation, key, run, occurrence, args_digest, complete,
			       policy, source, lookalike_of, created_at, state, owner, lease_until, timeout_at, arguments)
			VALUES (?, 'default', ?, '', '', ?, ?, 'irreversible', 'window', ?,
			       ?, ?, 1, '', '', '', ?, ?,
			       '', '', '', ?, 'claimed', ?, NULL, ?, ?)`},
		{&w.transition, `
			INSERT INTO transition (effect, ordinal, attempt, state, at, owner, lease_until, timeout_at,
			       position, by, reason, continuation, answer_kind, is_error, answer)
			VALUES (?, 1, 1, 'committed', ?, ?, NULL, NULL, NULL, '', '', '', 'result', 0, ?)`},
	} {
		if *s.stmt, err = w.conn.PrepareContext(ctx, s.query); err != nil {
			return err
		}
	}
	return nil
}

// Effect writes the row of a claim, waits until it is durable, and does the same with its outcome.
func (w *Writer) Effect(p *store.BeginParams, answer []byte) error {
	seq, err := w.Claim(p)
	if err != nil {
		return err
	}
	return w.Settle(seq, answer)
}

// Claim writes the row of a claim, waits until it is durable, and returns its number.
func (w *Writer) Claim(p *store.BeginParams) (seq int64, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return 0, fmt.Errorf("name effect: %w", err)
	}
	now := time.Now().UnixMicro()
	claimed := w.insert(w.effect,
		id.String(), p.Call.Principal, p.Call.Server, p.Call.Tool, p.Identity.Scope,
		p.Identity.Signature[:], p.Identity.Window[:], p.Identity.Arguments[:], p.Identity.Complete[:],
		now, "owner", now, []byte(p.Call.Arguments))
	if claimed.err != nil {
		return 0, fmt.Errorf("write effect: %w", claimed.err)
	}
	return claimed.seq, nil
}

// Settle writes the row of an outcome and waits until it is durable.
func (w *Writer) Settle(seq int64, answer []byte) error {
	now := time.Now().UnixMicro()
	if settled := w.insert(w.transition, seq, now, "owner", answer); settled.err != nil {
		return fmt.Errorf("write transition: %w", settled.err)
	}
	return nil
}

func (w *Writer) insert(stmt *sql.Stmt, args ...any) inserted {
	done := make(chan inserted, 1)
	w.queue <- insert{stmt, args, done}
	return <-done
}

// Close waits for what is queued and closes the file. Nothing may be written any more.
func (w *Writer) Close() error {
	close(w.queue)
	<-w.stopped
	return errors.Join(w.conn.Close(), w.db.Close())
}

func (w *Writer) loop(ctx context.Context) {
	defer close(w.stopped)
	for first := range w.queue {
		w.write(ctx, w.group(first))
	}
}

// group takes what is queued; a lone write waits for nobody.
func (w *Writer) group(first insert) []insert {
	group := []insert{first}
	for len(group) < 256 {
		select {
		case next, ok := <-w.queue:
			if !ok {
				return group
			}
			group = append(group, next)
		default:
			return group
		}
	}
	return group
}

func (w *Writer) write(ctx context.Context, group []insert) {
	results := make([]inserted, len(group))
	_, err := w.begin.ExecContext(ctx)
	for i, in := range group {
		r, insertErr := in.stmt.ExecContext(ctx, in.args...)
		if insertErr != nil {
			results[i].err = insertErr
			continue
		}
		results[i].seq, results[i].err = r.LastInsertId()
	}
	if err == nil {
		_, err = w.commit.ExecContext(ctx)
	}
	for i, in := range group {
		if err != nil {
			results[i].err = err
		}
		in.done <- results[i]
	}
}
