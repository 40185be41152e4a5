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

// moveValues are the attributes of undolog.new_move, in their order, which are also parameters from $3 on.
var moveValues = []attribute{
	{"effect", "uuid"}, {"ordinal", "integer"}, {"attempt", "integer"}, {"at", "timestamptz"},
	{"state", "text"}, {"owner", "text"}, {"by", "text"}, {"reason", "text"}, {"continuation", "text"},
	{"answer_kind", "text"}, {"is_error", "boolean"}, {"answer", "bytea"},
}

var (
	insertMoves = intoTransition + `
	SELECT
	  n.effect, n.ordinal, n.attempt, COALESCE(n.at, $2::timestamptz, now()), n.is_error, $1::text,
	  n.state::undolog.state, n.owner, n.by, n.reason, n.continuation, n.answer_kind, n.answer
	FROM unnest($3::undolog.new_move[]) AS n` + ifNext

	// callInsertMoves does the same, of any tenant, with a plan that the server has kept.
	callInsertMoves = `SELECT effect, ordinal, at FROM undolog.insert_moves($1::text, $2::timestamptz, $3::undolog.new_move[])`

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

// insert returns the statement for this move, which is insertOneMove or insertMoveAlone.
func (row *moveRow) insert(sql, tenant string, now pgtype.Timestamptz, won func(key moveKey, at time.Time)) statement {
	return statement{sql: sql, args: append([]any{text(tenant), now}, row.values()...), read: readPlaces(won)}
}

// moveAll returns the statement for many moves of one tenant; won is told of each that was inserted.
func (d *Driver) moveAll(moves *rows, tenant string, now pgtype.Timestamptz, won func(key moveKey, at time.Time)) statement {
	sql := insertMoves
	if !d.mode.isPrepared() {
		sql = callInsertMoves
	}
	return statement{sql: sql, args: []any{text(tenant), now, moves}, read: readPlaces(won)}
}

// values are those of moveValues.
func (row *moveRow) values() []any {
	m := row.move
	return []any{
		pgtype.UUID{Bytes: row.id, Valid: true}, int32(m.Ordinal), int32(m.Attempt), timestamp(m.At),
		string(m.State), text(cmp.Or(m.Owner, row.owner)), text(m.By), text(m.Reason), text(m.Continuation),
		string(m.Answer.Kind), m.Answer.IsError, answerBody(m.Answer),
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
