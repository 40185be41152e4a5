package postgres

import (
	"bytes"
	"cmp"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
)

// moveRow is a move of an effect whose last one is known: nobody has moved it since exactly when the next
// ordinal can be inserted.
type moveRow struct {
	id   uuid.UUID
	move *effect.Transition
	// owner of the attempt, when the move names none
	owner string
}

func (m *moveRow) compare(n *moveRow) int {
	if c := bytes.Compare(m.id[:], n.id[:]); c != 0 {
		return c
	}
	return cmp.Compare(m.move.Ordinal, n.move.Ordinal)
}

// place is where the move is inserted.
func (m *moveRow) place() moveKey { return moveKey{m.id, m.move.Ordinal} }

type moveKey struct {
	id      uuid.UUID
	ordinal int
}

// moveRows are the columns of many moves of one tenant.
type moveRows struct {
	ids                                                      []pgtype.UUID
	ordinals, attempts                                       []int32
	ats                                                      []pgtype.Timestamptz
	states, owners, bys, reasons, continuations, answerKinds []string
	isErrors                                                 []bool
	answers                                                  [][]byte
}

func (c *moveRows) add(row *moveRow) {
	m := row.move
	c.ids = append(c.ids, pgtype.UUID{Bytes: row.id, Valid: true})
	c.ordinals = append(c.ordinals, int32(m.Ordinal))
	c.attempts = append(c.attempts, int32(m.Attempt))
	c.ats = append(c.ats, timestamp(m.At))
	c.states = append(c.states, string(m.State))
	c.owners = append(c.owners, text(cmp.Or(m.Owner, row.owner)))
	c.bys = append(c.bys, text(m.By))
	c.reasons = append(c.reasons, text(m.Reason))
	c.continuations = append(c.continuations, text(m.Continuation))
	c.answerKinds = append(c.answerKinds, string(m.Answer.Kind))
	c.isErrors = append(c.isErrors, m.Answer.IsError)
	c.answers = append(c.answers, answerBody(m.Answer))
}

var (
	insertMoves = intoTransition + `
	SELECT
	  n.effect, n.ordinal, n.attempt, COALESCE(n.at, $2::timestamptz, now()), n.is_error, $1::text,
	  n.state::undolog.state, n.owner, n.by, n.reason, n.continuation, n.answer_kind, n.answer
	FROM unnest(
	  $3::uuid[], $4::integer[], $5::integer[], $6::timestamptz[],
	  $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::boolean[], $14::bytea[])
	  AS n(effect, ordinal, attempt, at, state, owner, by, reason, continuation, answer_kind, is_error, answer)` + ifNext

	// insertOneMove is the same for one row, and insertMoveAlone a whole transaction, which says in the tenant's own
	// column what queueTenant says before others.
	insertOneMove   = intoTransition + oneMove(`$1::text`) + ifNext
	insertMoveAlone = intoTransition + oneMove(setOwnTenant) + ifNext
)

const (
	intoTransition = `
	INSERT INTO undolog.transition (
	  effect, ordinal, attempt, at, is_error, tenant, state, owner, by, reason, continuation, answer_kind, answer)`
	ifNext = `
	ON CONFLICT (effect, ordinal) DO NOTHING
	RETURNING effect, ordinal, at`
)

func oneMove(tenant string) string {
	return `
	VALUES (
	  $3::uuid, $4::integer, $5::integer, COALESCE($6::timestamptz, $2::timestamptz, now()), $13::boolean, ` + tenant + `,
	  $7::text::undolog.state, $8::text, $9::text, $10::text, $11::text, $12::text, $14::bytea)`
}

// insert returns the statement for one tenant's moves; won is told of each that was inserted.
func (c *moveRows) insert(tenant string, now pgtype.Timestamptz, won func(key moveKey, at time.Time)) statement {
	return statement{
		sql: insertMoves,
		args: []any{
			text(tenant), now, flat(c.ids), c.ordinals, c.attempts, flat(c.ats),
			c.states, c.owners, c.bys, c.reasons, c.continuations, c.answerKinds, c.isErrors, flat(c.answers),
		},
		read: readPlaces(won),
	}
}

// insert returns the statement for this move, which is insertOneMove or insertMoveAlone.
func (row *moveRow) insert(sql, tenant string, now pgtype.Timestamptz, won func(key moveKey, at time.Time)) statement {
	m := row.move
	return statement{
		sql: sql,
		args: []any{
			text(tenant), now, pgtype.UUID{Bytes: row.id, Valid: true}, int32(m.Ordinal), int32(m.Attempt), timestamp(m.At),
			string(m.State), text(cmp.Or(m.Owner, row.owner)), text(m.By), text(m.Reason), text(m.Continuation),
			string(m.Answer.Kind), m.Answer.IsError, answerBody(m.Answer),
		},
		read: readPlaces(won),
	}
}

func readPlaces(won func(key moveKey, at time.Time)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id pgtype.UUID
		var ordinal int
		var at time.Time
		for rows.Next() {
			if err := rows.Scan(&id, &ordinal, &at); err != nil {
				return err
			}
			won(moveKey{id.Bytes, ordinal}, at.UTC())
		}
		return nil
	}
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
