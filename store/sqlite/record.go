package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// selectRecord reads an effect with its last transition, its owner's heartbeat and its delivery. The
// first transition is in the effect's own row; an index finds the last one.
const selectRecord = `
	SELECT e.seq, e.id, e.tenant, e.principal, e.session, e.trace, e.server, e.tool, e.tier, e.rule, e.scope,
	       e.signature, e.window, e.generation, e.key, e.run, e.occurrence, e.args_digest, e.complete,
	       e.policy, e.source, e.lookalike_of, e.created_at, e.arguments,
	       e.state, e.owner, e.lease_until, e.timeout_at, e.approval,
	       t.ordinal, t.attempt, t.state, t.at, t.owner, t.lease_until, t.timeout_at,
	       t.by, t.reason, t.continuation, t.answer_kind, t.is_error, t.answer, t.approval, t.edited,
	       o.until, d.at
	FROM effect e
	LEFT JOIN transition t ON t.effect = e.seq
	      AND t.ordinal = (SELECT MAX(ordinal) FROM transition WHERE effect = e.seq)
	LEFT JOIN owner o ON o.id = COALESCE(t.owner, e.owner)
	LEFT JOIN delivery d ON d.effect = e.seq`

// selectBrief is selectRecord without the payloads.
var selectBrief = strings.NewReplacer(
	`e.arguments`, fmt.Sprintf(`substr(e.arguments, 1, %d)`, store.BriefBytes),
	`t.answer,`, `NULL,`,
	`t.edited`, `NULL`,
).Replace(selectRecord)

// lastMove is the joined transition; absent while the effect's first claim is its only move.
type lastMove struct {
	ordinal, attempt, at             sql.NullInt64
	state, owner, by, reason         sql.NullString
	continuation, answerKind         sql.NullString
	leaseUntil, timeoutAt, delivered sql.NullInt64
	isError                          sql.NullBool
	answer                           []byte
	approval                         approvalColumns
}

// one returns the only record of a query, nil when there is none.
func one(q queryer, query string, args ...any) (*effect.Record, error) {
	records, err := all(q, query, args...)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	return records[0], nil
}

func all(q queryer, query string, args ...any) ([]*effect.Record, error) {
	records, err := allOf(q, query, `answer`, args)
	for _, r := range records {
		r.Answer = store.Unpruned(r.Answer, r.ChangedAt)
	}
	return records, err
}

// allBrief is all for selectBrief.
func allBrief(q queryer, query string, args ...any) ([]*effect.Record, error) {
	return allOf(q, query, `NULL`, args)
}

// allOf reads records; the answer that came before the last move is read as the column.
func allOf(q queryer, query, answer string, args []any) (records []*effect.Record, err error) {
	rows, err := q.query(query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		r, err := scanRecord(rows)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	// The connection is free again only now: an earlier answer is a query of its own.
	if err := rows.Close(); err != nil {
		return nil, err
	}
	for _, r := range records {
		if err := fillAnswer(q, r, answer); err != nil {
			return nil, err
		}
	}
	return records, nil
}

func scanRecord(rows *sql.Rows) (*effect.Record, error) {
	var (
		r                     effect.Record
		m                     lastMove
		signature, window     []byte
		args, complete        []byte
		created               int64
		leaseUntil, timeoutAt sql.NullInt64
		ownerUntil            sql.NullInt64
		asked                 approvalColumns
	)
	err := rows.Scan(&r.Seq, &r.ID, &r.Tenant, &r.Principal, &r.Session, &r.Trace, &r.Server, &r.Tool,
		(*string)(&r.Tier), (*string)(&r.Rule), &r.Scope,
		&signature, &window, &r.Generation, &r.Key, &r.Run, &r.Occurrence, &args, &complete,
		&r.Policy, &r.Source, &r.LookalikeOf, &created, (*[]byte)(&r.Arguments),
		(*string)(&r.State), &r.Owner, &leaseUntil, &timeoutAt, &asked.document,
		&m.ordinal, &m.attempt, &m.state, &m.at, &m.owner, &m.leaseUntil, &m.timeoutAt,
		&m.by, &m.reason, &m.continuation, &m.answerKind, &m.isError, &m.answer, &m.approval.document, &m.approval.edited,
		&ownerUntil, &m.delivered)
	if err != nil {
		return nil, fmt.Errorf("scan effect: %w", err)
	}
	copy(r.Signature[:], signature)
	copy(r.Window[:], window)
	copy(r.ArgsDigest[:], args)
	copy(r.Complete[:], complete)
	r.CreatedAt = fromMicros(created)
	r.ChangedAt = r.CreatedAt
	r.Attempt = 1
	r.LeaseUntil, r.TimeoutAt = fromNullMicros(leaseUntil), fromNullMicros(timeoutAt)
	r.OwnerUntil = fromNullMicros(ownerUntil)
	m.apply(&r)
	if m.ordinal.Valid {
		asked = m.approval
	}
	if r.Approval, err = asked.approval(); err != nil {
		return nil, fmt.Errorf("scan effect %s: %w", r.ID, err)
	}
	return &r, nil
}

// apply moves the record from its first claim to where its last transition left it.
func (m *lastMove) apply(r *effect.Record) {
	if m.ordinal.Valid {
		r.Ordinal, r.Attempt = int(m.ordinal.Int64), int(m.attempt.Int64)
		r.State, r.Owner = effect.State(m.state.String), m.owner.String
		r.ChangedAt = fromMicros(m.at.Int64)
		r.LeaseUntil, r.TimeoutAt = fromNullMicros(m.leaseUntil), fromNullMicros(m.timeoutAt)
		r.By, r.Reason, r.Continuation = m.by.String, m.reason.String, m.continuation.String
		r.Answer = effect.Answer{Kind: effect.AnswerKind(m.answerKind.String), Body: m.answer, IsError: m.isError.Bool}
	}
	// An answer that arrived before the last move was another one.
	r.Delivered = m.delivered.Valid && r.State != effect.StateClaimed && m.delivered.Int64 >= micros(r.ChangedAt)
	if r.Delivered {
		r.ArrivedAt = fromMicros(m.delivered.Int64)
	}
}

// fillAnswer gives a record whose last move brought no answer the last one that came.
func fillAnswer(q queryer, r *effect.Record, column string) (err error) {
	if r.Ordinal < 2 || r.Answer.Kind != effect.AnswerNone {
		return nil
	}
	rows, err := q.query(`
		SELECT answer_kind, is_error, `+column+`
		FROM transition
		WHERE effect = ? AND answer_kind <> ''
		ORDER BY ordinal DESC
		LIMIT 1`, r.Seq)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if rows.Next() {
		err = rows.Scan((*string)(&r.Answer.Kind), &r.Answer.IsError, (*[]byte)(&r.Answer.Body))
	}
	return errors.Join(err, rows.Err())
}

// exists reports whether a query returns a row.
func exists(q queryer, query string, args ...any) (found bool, err error) {
	rows, err := q.query(query, args...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	found = rows.Next()
	return found, rows.Err()
}

// number returns the only integer of a query, 0 when there is no row or it is NULL.
func number(q queryer, query string, args ...any) (n int64, err error) {
	rows, err := q.query(query, args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var v sql.NullInt64
	if rows.Next() {
		err = rows.Scan(&v)
	}
	return v.Int64, errors.Join(err, rows.Err())
}

// blob is a digest as the file has it; nil, for NULL, when it is zero.
func blob(d [32]byte) []byte {
	if d == [32]byte{} {
		return nil
	}
	return d[:]
}
