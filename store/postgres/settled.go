package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Most calls that are known were answered, and nothing has happened to them since. What is read of such a one is
// enough to answer it again, and costs the server a third of what reading any effect does: no heartbeat, no grant,
// no approval, no earlier answer. more says that there is something of the kind, and that recordColumns are to be
// read: while it is under way, when a person may allow or has allowed another run, when it was asked about, or when its
// last move has brought no answer and one before may have.
const (
	settledColumns = `
	  now(), e.seq, e.id, e.tenant, e.principal, e.session, e.trace, e.server, e.tool, e.tier, e.rule, e.scope,
	  e.signature, e.window_signature, e.generation, e.key, e.run, e.occurrence, e.args_digest, e.complete,
	  e.policy, e.source, e.lookalike_of, e.created_at, e.arguments,
	  t.ordinal, t.attempt, t.state, t.at, t.owner, t.by, t.reason, t.continuation, t.answer_kind, t.is_error, t.answer,
	  (SELECT at FROM undolog.delivery WHERE effect = e.id LIMIT 1),
	  t.ordinal IS NULL OR t.state = 'claimed' OR t.lease_until IS NOT NULL OR t.timeout_at IS NOT NULL
	    OR t.ordinal >= 2 AND t.answer_kind = ''
	    OR EXISTS (SELECT FROM undolog.event v WHERE v.effect = e.id::text AND v.kind IN ('again', 'again_used'))
	    OR EXISTS (SELECT FROM undolog.approval WHERE effect = e.id)`
	settledTables = `
	LEFT JOIN LATERAL (
	  SELECT * FROM undolog.transition WHERE effect = e.id ORDER BY ordinal DESC LIMIT 1) t ON true`

	// selectSettled is a whole transaction, which says its tenant as it looks for the signature. A row that were
	// read before it has, would be nobody's.
	selectSettled = `
	SELECT ` + settledColumns + `, 1::bigint
	FROM (
	  SELECT * FROM undolog.effect
	  WHERE signature = (SELECT CASE WHEN set_config('undolog.tenant', $1, true) IS NOT NULL THEN $2::bytea END)
	  ORDER BY generation DESC
	  LIMIT 1) e` + settledTables

	selectSettledOfMany = `
	SELECT ` + settledColumns + `, n.place
	FROM unnest($1::bytea[]) WITH ORDINALITY AS n(signature, place)
	CROSS JOIN LATERAL (
	  SELECT * FROM undolog.effect
	  WHERE signature = n.signature
	  ORDER BY generation DESC
	  LIMIT 1) e` + settledTables
)

// askAlone asks for one call's in a transaction of its own, without what a batch costs.
func (r *reads) askAlone(ctx context.Context, q *read) error {
	conn, err := r.driver.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	prepared, err := conn.Conn().Prepare(ctx, "undolog_settled", selectSettled)
	if err != nil {
		return err
	}
	params := [][]byte{[]byte(text(q.tenant)), q.signature[:]}
	rows := conn.Conn().PgConn().ExecStatement(ctx, prepared, params, textAndBytes, allBinary)
	for err == nil && rows.NextRow() {
		err = readSettled(rows.Values(), []*read{q})
	}
	if _, failed := rows.Close(); failed != nil {
		return failed
	}
	return err
}

var (
	textAndBytes = []int16{pgx.TextFormatCode, pgx.BinaryFormatCode}
	allBinary    = []int16{pgx.BinaryFormatCode}
)

// askSettled queues the question for one tenant's.
func askSettled(b *pgx.Batch, group []*read) {
	queueTenant(b, group[0].tenant)
	signatures := make([][]byte, len(group))
	for i, q := range group {
		signatures[i] = q.signature[:]
	}
	queue(b, statement{sql: selectSettledOfMany, args: []any{flat(signatures)}, read: func(rows pgx.Rows) (err error) {
		for err == nil && rows.Next() {
			err = readSettled(rows.RawValues(), group)
		}
		return err
	}})
}

// readSettled reads a row of settledColumns and to whom in the group it belongs.
func readSettled(row [][]byte, group []*read) error {
	c := &cells{left: row}
	var r effect.Record
	at := c.time()
	r.Seq, r.ID = c.long(), c.id()
	r.Tenant, r.Principal, r.Session, r.Trace, r.Server, r.Tool = c.text(), c.text(), c.text(), c.text(), c.text(), c.text()
	r.Tier, r.Rule, r.Scope = effect.Tier(c.text()), effect.Rule(c.text()), c.text()
	r.Signature, r.Window, r.Generation = c.digest(), c.digest(), c.number()
	r.Key, r.Run, r.Occurrence, r.ArgsDigest, r.Complete = c.text(), c.text(), c.text(), c.digest(), c.digest()
	r.Policy, r.Source, r.LookalikeOf, r.CreatedAt, r.Arguments = c.text(), c.text(), c.text(), c.time(), c.bytes()
	r.Ordinal, r.Attempt, r.State, r.ChangedAt, r.Owner = c.number(), c.number(), effect.State(c.text()), c.time(), c.text()
	r.By, r.Reason, r.Continuation = c.text(), c.text(), c.text()
	r.Answer = effect.Answer{Kind: effect.AnswerKind(c.text()), IsError: c.is(), Body: c.bytes()}
	arrived, more, place := c.time(), c.is(), c.long()
	if c.err != nil {
		return c.err
	}
	q := group[place-1]
	q.at, q.more = at, more
	if !more {
		arrive(&r, arrived)
		r.Answer = store.Unpruned(r.Answer, r.ChangedAt)
		q.latest = found{Record: &r}
	}
	return nil
}
