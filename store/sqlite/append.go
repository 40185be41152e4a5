package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Append implements store.Driver. A transition without a time gets the driver's.
func (d *Driver) Append(ctx context.Context, tenant string, move *effect.Transition) (*effect.Record, error) {
	var record *effect.Record
	err := d.writer.do(ctx, func(t *tx) (err error) {
		record, err = t.append(tenant, move)
		return err
	})
	if err != nil {
		return nil, err
	}
	return record, nil
}

func (t *tx) append(tenant string, move *effect.Transition) (*effect.Record, error) {
	if claim := t.takeClaim(tenant, move); claim != nil {
		if r, err := t.move(claim, move); r != nil || err != nil {
			return r, err
		}
	}
	was, err := record(t, tenant, move.Effect)
	if err != nil {
		return nil, err
	}
	if store.MayMove(was, move, t.now) {
		if r, err := t.move(was, move); r != nil || err != nil {
			return r, err
		}
	}
	return nil, &store.ConflictError{ID: was.ID, Want: move.State, Record: was}
}

// move inserts the transition and returns the moved record, which shares no bytes with the transition;
// nil when the ordinal was taken.
func (t *tx) move(was *effect.Record, move *effect.Transition) (*effect.Record, error) {
	at := move.At
	if at.IsZero() {
		at = t.now
	}
	r := store.Moved(was, move, at)
	inserted, err := t.insertTransition(r, false, move.Answer)
	if err != nil {
		return nil, fmt.Errorf("insert transition of effect %s: %w", r.ID, err)
	}
	if !inserted {
		return nil, nil
	}
	return r, nil
}

// insertTransition writes where r stands now as its next move; false when another move took its place.
// A claim that begins an attempt takes its place in the order of all that was begun.
func (t *tx) insertTransition(r *effect.Record, begins bool, answer effect.Answer) (inserted bool, err error) {
	args := []any{
		r.Seq, r.Ordinal, r.Attempt, string(r.State), micros(r.ChangedAt), r.Owner, nullMicros(r.LeaseUntil), nullMicros(r.TimeoutAt),
		begins, r.By, r.Reason, r.Continuation, string(answer.Kind), answer.IsError, answerBody(answer),
	}
	var result sql.Result
	switch {
	case r.Approval != nil:
		result, err = t.insertDecided(r, args)
	case r.Ordinal == 1 && !r.State.IsOpen(): // nearly all: the end of a first claim, which no account has as open
		result, err = t.execLast(insertTransition, args...)
	default:
		result, err = t.exec(insertTransition, args...)
	}
	if err != nil {
		return false, err
	}
	if n, err := result.RowsAffected(); n == 0 || err != nil {
		return false, err
	}
	return true, t.account(r)
}

const insertTransition = `
	INSERT INTO transition (effect, ordinal, attempt, state, at, owner, lease_until, timeout_at,
	       position, by, reason, continuation, answer_kind, is_error, answer)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?,
	       CASE WHEN ? THEN (SELECT MAX(seq) FROM effect) END, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (effect, ordinal) DO NOTHING`

// insertDecided is for an effect that somebody was asked about.
func (t *tx) insertDecided(r *effect.Record, args []any) (sql.Result, error) {
	a, err := approvalOf(r)
	if err != nil {
		return nil, err
	}
	return t.exec(`
		INSERT INTO transition (effect, ordinal, attempt, state, at, owner, lease_until, timeout_at,
		       position, by, reason, continuation, answer_kind, is_error, answer,
		       approval, edited, decide_until, use_until)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?,
		       CASE WHEN ? THEN (SELECT MAX(seq) FROM effect) END, ?, ?, ?, ?, ?, ?,
		       ?, ?, ?, ?)
		ON CONFLICT (effect, ordinal) DO NOTHING`, append(args, a.document, a.edited, a.decideUntil, a.useUntil)...)
}

// answerBody is NULL without an answer, and never NULL with one.
func answerBody(a effect.Answer) []byte {
	if a.Kind == effect.AnswerNone {
		return nil
	}
	if a.Body == nil {
		return []byte{}
	}
	return a.Body
}

// record returns one effect, store.ErrNotFound when the tenant has none of that id.
func record(q queryer, tenant, id string) (*effect.Record, error) {
	r, err := one(q, selectRecord+`
		WHERE e.tenant = ? AND e.id = ?`, tenant, id)
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return nil, store.ErrNotFound
	}
	return r, nil
}
