package postgres

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Append implements store.Driver. A transition without a time gets the database's. A claim that this driver
// made is settled in a group; anything else is moved where it stands. Both are one round trip.
func (d *Driver) Append(ctx context.Context, tenant string, move *effect.Transition) (*effect.Record, error) {
	id, ok := parseID(move.Effect)
	if !ok {
		return nil, store.ErrNotFound
	}
	a := &appending{driver: d, tenant: tenant, id: id, move: move}
	if err := a.prepare(); err != nil {
		return nil, err
	}
	if claim := d.known.takeClaim(tenant, move.Effect); claim != nil && a.follows(claim) {
		a.claim = claim
	}
	var record *effect.Record
	// The outcome of a try that was not answered is found by the next one, or by the caller's.
	err := d.retry(ctx, func(ctx context.Context) (err error) {
		record, err = a.try(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	d.notifier.tell(tenant, move.Effect)
	return record, nil
}

// appending is one move on its way.
type appending struct {
	driver *Driver
	tenant string
	id     pgtype.UUID
	move   *effect.Transition
	claim  *effect.Record // what the move settles, when it is remembered
	tried  bool           // and perhaps done

	approval *approvalRow // that the move leaves; nil: it is of an effect that was never asked about, or decides nothing
}

// prepare gives the approval that the move leaves, if it leaves one, a mark of this Append.
func (a *appending) prepare() error {
	if a.move.Approval == nil {
		return nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("name move: %w", err)
	}
	a.approval, err = newApprovalRow(a.move.Approval, a.move.State)
	if err == nil {
		a.approval.append = pgtype.UUID{Bytes: id, Valid: true}
	}
	return err
}

// follows reports whether the move settles the claim by its owner.
func (a *appending) follows(claim *effect.Record) bool {
	m := a.move
	return m.Owner != "" && m.LeaseUntil.IsZero() && m.TimeoutAt.IsZero() && store.MayMove(claim, m, a.driver.clock.now())
}

func (a *appending) try(ctx context.Context) (*effect.Record, error) {
	if a.claim != nil && !a.tried {
		if r, err := a.settle(ctx); r != nil || err != nil {
			return r, err
		}
	}
	return a.moveOn(ctx)
}

// settle moves the remembered claim; nil when it was moved before.
func (a *appending) settle(ctx context.Context) (*effect.Record, error) {
	w := &write{tenant: a.tenant, move: &moveRow{id: a.id.Bytes, move: a.move}}
	if err := a.driver.writes.do(ctx, w); err != nil {
		a.tried = true
		return nil, err
	}
	if !w.won {
		return nil, nil
	}
	return store.Moved(a.claim, a.move, w.at), nil
}

// legal are the states from which a state is reached.
func legal(to effect.State) (from []string) {
	for _, m := range effect.Moves() {
		if m.To == to {
			from = append(from, string(m.From))
		}
	}
	return from
}

// insertMove is the fence of store.MayMove in SQL: keep them equal. It moves the effect from where it
// stands in the statement's snapshot; whoever moves it meanwhile takes the ordinal.
const insertMove = `
	INSERT INTO undolog.transition (
	  effect, ordinal, attempt, at, lease_until, timeout_at, is_error, tenant, state, owner,
	  by, reason, continuation, answer_kind, answer)
	SELECT
	  $2::uuid, $3::integer, $4::integer, COALESCE($5::timestamptz, $1::timestamptz, now()), $6::timestamptz, $7::timestamptz,
	  $8::boolean, e.tenant, $9::text::undolog.state, CASE WHEN $10::text <> '' THEN $10 ELSE l.owner END,
	  $11::text, $12::text, $13::text, $14::text, $15::bytea
	FROM undolog.effect e
	LEFT JOIN LATERAL (
	  SELECT * FROM undolog.transition WHERE effect = e.id ORDER BY ordinal DESC LIMIT 1) t ON true
	CROSS JOIN LATERAL (
	  SELECT COALESCE(t.ordinal, 0) AS ordinal, COALESCE(t.attempt, 1) AS attempt, COALESCE(t.state, e.state) AS state,
	         COALESCE(t.owner, e.owner) AS owner,
	         CASE WHEN t.effect IS NULL THEN e.lease_until ELSE t.lease_until END AS lease_until,
	         CASE WHEN t.effect IS NULL THEN e.timeout_at ELSE t.timeout_at END AS timeout_at) l
	LEFT JOIN undolog.owner o ON o.id = l.owner
	WHERE e.id = $2 AND l.ordinal = $3 - 1 AND l.state = ANY ($16::text[]::undolog.state[])
	  AND ($9 = 'claimed' OR l.attempt = $4)
	  AND CASE
	      WHEN $10 <> '' THEN l.owner = $10
	      WHEN l.state <> 'claimed' THEN true
	      ELSE COALESCE(COALESCE(l.lease_until, o.until) <= COALESCE($1, now()), true)
	        OR COALESCE(l.timeout_at <= COALESCE($1, now()), false)
	      END
	ON CONFLICT (effect, ordinal) DO NOTHING`

// moveOn moves the effect if that is legal from where it stands, and reads where it then is.
func (a *appending) moveOn(ctx context.Context) (*effect.Record, error) {
	var won, ours bool
	var now found
	statements := []statement{
		a.insert(&won),
		{sql: selectRecord + ` WHERE e.id = $1`, args: []any{a.id}, read: readRecord(&now)},
	}
	if a.tried && a.approval != nil {
		statements = append(statements, a.findOwn(&ours))
	}
	err := asTenant(ctx, a.driver.pool, a.tenant, statements...)
	switch {
	case err != nil:
		a.tried = true
		return nil, err
	case now.Record == nil:
		return nil, store.ErrNotFound
	case won, ours, a.tried && a.isOurs(now.Record):
		now.Delivered, now.ArrivedAt = false, time.Time{} // what has just been recorded has reached nobody
		return now.Record, nil
	}
	return nil, &store.ConflictError{ID: now.ID, Want: a.move.State, Record: now.Record}
}

// insert returns the statement that makes the move, with the approval that it leaves.
func (a *appending) insert(won *bool) statement {
	m := a.move
	st := statement{
		sql: insertMove + ` RETURNING at`,
		args: []any{
			a.driver.clock.param(), a.id, int32(m.Ordinal), int32(m.Attempt), timestamp(m.At), timestamp(m.LeaseUntil), timestamp(m.TimeoutAt),
			m.Answer.IsError, string(m.State), text(m.Owner), text(m.By), text(m.Reason), text(m.Continuation),
			string(m.Answer.Kind), answerBody(m.Answer), legal(m.State),
		},
		read: readWhether(won),
	}
	if a.approval != nil {
		st.sql = `WITH made AS (` + insertMove + ` RETURNING effect, ordinal, attempt, tenant)` + insertApproval(17) + ` RETURNING true`
		st.args = append(st.args, a.approval.args()...)
	}
	return st
}

// findOwn looks for the decision that an earlier try made, though others may have followed it.
func (a *appending) findOwn(found *bool) statement {
	return statement{
		sql: `
			SELECT true
			FROM undolog.approval
			WHERE effect = $1 AND ordinal = $2 AND append = $3`,
		args: []any{a.id, int32(a.move.Ordinal), a.approval.append},
		read: readWhether(found),
	}
}

// readWhether reports whether there was a row.
func readWhether(into *bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*into = rows.Next()
		return nil
	}
}

// isOurs reports whether an earlier try was done although nobody said so. A move that was followed by
// another one is not looked for: its caller learns where the effect is. Two people may decide in the same
// words, so that a decision is known by its mark alone.
func (a *appending) isOurs(now *effect.Record) bool {
	m := a.move
	return a.approval == nil &&
		now.Ordinal == m.Ordinal && now.Attempt == m.Attempt && now.State == m.State && now.By == m.By &&
		(m.Owner == "" || now.Owner == m.Owner) && now.Reason == m.Reason &&
		(m.Answer.Kind == effect.AnswerNone || now.Answer.Kind == m.Answer.Kind && bytes.Equal(now.Answer.Body, m.Answer.Body))
}
