package postgres

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// recordColumns and recordTables read an effect with its last transition, its owner's heartbeat, its
// delivery, its approval and, when the last move brought no answer, the last one that came. The first transition
// is in the effect's own row. Each is a look into an index for each effect, under every plan: without the limits
// a table whose statistics are young could be read whole.
const (
	recordColumns = `
	  e.seq, e.id, e.tenant, e.principal, e.session, e.trace, e.server, e.tool, e.tier, e.rule, e.scope,
	  e.signature, e.window_signature, e.generation, e.key, e.run, e.occurrence, e.args_digest, e.complete,
	  e.policy, e.source, e.lookalike_of, e.created_at, e.arguments,
	  e.state, e.owner, e.lease_until, e.timeout_at,
	  t.ordinal, t.attempt, t.state, t.at, t.owner, t.lease_until, t.timeout_at,
	  t.by, t.reason, t.continuation, COALESCE(a.answer_kind, t.answer_kind), COALESCE(a.is_error, t.is_error),
	  COALESCE(a.answer, t.answer), o.until, d.at, t.begun, p.document, p.edited`
	recordTables = `
	LEFT JOIN LATERAL (
	  SELECT * FROM undolog.transition WHERE effect = e.id ORDER BY ordinal DESC LIMIT 1) t ON true
	LEFT JOIN LATERAL (
	  SELECT answer_kind, is_error, answer FROM undolog.transition
	  WHERE t.ordinal >= 2 AND t.answer_kind = '' AND effect = e.id AND answer_kind <> ''
	  ORDER BY ordinal DESC
	  LIMIT 1) a ON true
	LEFT JOIN LATERAL (
	  SELECT until FROM undolog.owner WHERE id = COALESCE(t.owner, e.owner) LIMIT 1) o ON true
	LEFT JOIN LATERAL (
	  SELECT at FROM undolog.delivery WHERE effect = e.id LIMIT 1) d ON true
	LEFT JOIN LATERAL (
	  SELECT until, approved, document, edited FROM undolog.approval
	  WHERE effect = e.id AND attempt = COALESCE(t.attempt, 1)
	  ORDER BY ordinal DESC
	  LIMIT 1) p ON true`
	selectRecord = `
	SELECT ` + recordColumns + `
	FROM undolog.effect e` + recordTables
)

// found is a record with the Begin that made its last claim.
type found struct {
	*effect.Record
	begun pgtype.UUID
}

// lastMove is the joined transition; absent while the effect's first claim is its only move.
type lastMove struct {
	ordinal, attempt                     pgtype.Int4
	at, leaseUntil, timeoutAt, delivered pgtype.Timestamptz
	state, owner, by, reason             pgtype.Text
	continuation, answerKind             pgtype.Text
	isError                              pgtype.Bool
	answer                               []byte
}

// scanRecord reads a row of recordColumns, and what more was selected.
func scanRecord(rows pgx.Rows, more ...any) (found, error) {
	var (
		r                     effect.Record
		m                     lastMove
		id, begun             pgtype.UUID
		signature, window     []byte
		args, complete        []byte
		document, edited      []byte
		created               time.Time
		leaseUntil, timeoutAt pgtype.Timestamptz
		ownerUntil            pgtype.Timestamptz
	)
	into := append([]any{
		&r.Seq, &id, &r.Tenant, &r.Principal, &r.Session, &r.Trace, &r.Server, &r.Tool,
		(*string)(&r.Tier), (*string)(&r.Rule), &r.Scope,
		&signature, &window, &r.Generation, &r.Key, &r.Run, &r.Occurrence, &args, &complete,
		&r.Policy, &r.Source, &r.LookalikeOf, &created, (*[]byte)(&r.Arguments),
		(*string)(&r.State), &r.Owner, &leaseUntil, &timeoutAt,
		&m.ordinal, &m.attempt, &m.state, &m.at, &m.owner, &m.leaseUntil, &m.timeoutAt,
		&m.by, &m.reason, &m.continuation, &m.answerKind, &m.isError, &m.answer,
		&ownerUntil, &m.delivered, &begun, &document, &edited,
	}, more...)
	if err := rows.Scan(into...); err != nil {
		return found{}, fmt.Errorf("scan effect: %w", err)
	}
	r.ID = id.String()
	copy(r.Signature[:], signature)
	copy(r.Window[:], window)
	copy(r.ArgsDigest[:], args)
	copy(r.Complete[:], complete)
	r.CreatedAt, r.ChangedAt, r.Attempt = created.UTC(), created.UTC(), 1
	r.LeaseUntil, r.TimeoutAt = fromTimestamp(leaseUntil), fromTimestamp(timeoutAt)
	r.OwnerUntil = fromTimestamp(ownerUntil)
	m.apply(&r)
	var err error
	if r.Approval, err = readApproval(document, edited); err != nil {
		return found{}, fmt.Errorf("read effect %s: %w", r.ID, err)
	}
	r.Answer = store.Unpruned(r.Answer, r.ChangedAt)
	untextRecord(&r)
	if !m.ordinal.Valid {
		begun = id // an effect is named by the Begin that inserted it
	}
	return found{&r, begun}, nil
}

// apply moves the record from its first claim to where its last transition left it.
func (m *lastMove) apply(r *effect.Record) {
	if m.ordinal.Valid {
		r.Ordinal, r.Attempt = int(m.ordinal.Int32), int(m.attempt.Int32)
		r.State, r.Owner = effect.State(m.state.String), m.owner.String
		r.ChangedAt = fromTimestamp(m.at)
		r.LeaseUntil, r.TimeoutAt = fromTimestamp(m.leaseUntil), fromTimestamp(m.timeoutAt)
		r.By, r.Reason, r.Continuation = m.by.String, m.reason.String, m.continuation.String
		r.Answer = effect.Answer{Kind: effect.AnswerKind(m.answerKind.String), Body: m.answer, IsError: m.isError.Bool}
	}
	arrive(r, fromTimestamp(m.delivered))
}

// arrive notes when an answer arrived, if one did. One that did so before the last move was another one.
func arrive(r *effect.Record, at time.Time) {
	if !at.IsZero() && r.State != effect.StateClaimed && !at.Before(r.ChangedAt) {
		r.Delivered, r.ArrivedAt = true, at
	}
}

func untextRecord(r *effect.Record) {
	for _, s := range []*string{
		&r.Tenant, &r.Principal, &r.Session, &r.Trace, &r.Server, &r.Tool, &r.Scope, &r.Key, &r.Run, &r.Occurrence,
		&r.Policy, &r.Source, &r.LookalikeOf, &r.Owner, &r.By, &r.Reason, &r.Continuation,
	} {
		*s = untext(*s)
	}
}

// readRecord scans the only record of a statement; it stays as it is when there is none.
func readRecord(into *found, more ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			f, err := scanRecord(rows, more...)
			if err != nil {
				return err
			}
			*into = f
		}
		return nil
	}
}

func readRecords(into *[]*effect.Record) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*into = nil // a statement may be run again
		for rows.Next() {
			f, err := scanRecord(rows)
			if err != nil {
				return err
			}
			*into = append(*into, f.Record)
		}
		return nil
	}
}
