package postgres

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Most calls that are known were claimed once and answered, and nothing has happened to them since. What is read of
// such a one is enough to answer it again, and costs the server a fifth of what reading any effect does: no
// heartbeat, no approval, no earlier answer. Of all others recordColumns are read after it. Each column costs as
// much as a node of the plan has to make ready for it, so that few nodes have many. What is asked besides is scalar:
// of an EXISTS the planner may make a hash of all such events there are.
const (
	settledColumns = `
	  now(), e.state, e.seq, e.id, e.tenant, e.principal, e.session, e.trace, e.server, e.tool, e.tier, e.rule, e.scope,
	  e.signature, e.window_signature, e.generation, e.key, e.run, e.occurrence, e.args_digest, e.complete,
	  e.policy, e.source, e.lookalike_of, e.created_at, e.arguments,
	  (SELECT ROW(ordinal, attempt, state, at, owner, by, reason, continuation, answer_kind, is_error, answer)
	   FROM undolog.transition
	   WHERE effect = e.id
	   ORDER BY ordinal DESC
	   LIMIT 1),
	  (SELECT at FROM undolog.delivery WHERE effect = e.id),
	  (SELECT true FROM undolog.event v WHERE v.effect = e.id::text AND v.kind IN ('again', 'again_used') LIMIT 1)`

	// selectSettled is a whole transaction, which says its tenant as it looks for the signature: a row that was
	// read before it has would be nobody's.
	selectSettled = `
	SELECT ` + settledColumns + `, 1::bigint
	FROM undolog.effect e
	WHERE e.signature = (SELECT CASE WHEN set_config('undolog.tenant', $1, true) IS NOT NULL THEN $2::bytea END)
	ORDER BY e.generation DESC
	LIMIT 1`
)

// selectSettledOfMany leaves out what a group has no room for.
var selectSettledOfMany = `
	SELECT ` + within(settledColumns) + `, n.place
	FROM unnest($1::bytea[]) WITH ORDINALITY AS n(signature, place)
	CROSS JOIN LATERAL (
	  SELECT * FROM undolog.effect
	  WHERE signature = n.signature
	  ORDER BY generation DESC
	  LIMIT 1) e`

// askAlone asks for one call's in a transaction of its own.
func (r *reads) askAlone(ctx context.Context, q *read) error {
	return r.driver.askPrepared(ctx, selectSettled, []any{text(q.tenant), q.signature[:]}, func(row [][]byte) error {
		return readSettled(row, []*read{q})
	})
}

// askUnprepared asks with the text of the question, where what is prepared cannot be relied on, in one round trip
// for all and in binary, which pgx does not do in every mode.
func (r *reads) askUnprepared(ctx context.Context, group []*read) (err error) {
	conn, err := r.driver.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	readEagerly(conn.Conn(), len(group) == 1)
	var b pgconn.Batch
	limit := strconv.AppendInt(nil, int64(maxPayload(len(group))), 10)
	parts := byTenant(group)
	for _, part := range parts {
		b.ExecParams(setTenant, [][]byte{[]byte(text(part[0].tenant))}, []uint32{pgtype.TextOID}, nil, nil)
		b.ExecParams(selectSettledOfMany, [][]byte{signaturesOf(part), limit}, []uint32{pgtype.ByteaArrayOID, pgtype.Int4OID}, nil, allBinary)
	}
	results := conn.Conn().PgConn().ExecBatch(ctx, &b)
	defer func() { err = errors.Join(results.Close(), err) }()
	for of := -1; results.NextResult(); {
		rows := results.ResultReader()
		if len(rows.FieldDescriptions()) == tenantColumns {
			of++
		}
		for isSettled := len(rows.FieldDescriptions()) > tenantColumns; rows.NextRow(); {
			if !isSettled {
				continue
			}
			if err := readSettled(rows.Values(), parts[of]); err != nil {
				return err
			}
		}
	}
	return nil
}

// tenantColumns are those of setTenant. A result without columns ends each statement.
const tenantColumns = 5

// signaturesOf writes an array of bytea as text.
func signaturesOf(group []*read) []byte {
	array := []byte{'{'}
	for i, q := range group {
		if i > 0 {
			array = append(array, ',')
		}
		array = append(array, `"\\x`...)
		array = hex.AppendEncode(array, q.signature[:])
		array = append(array, '"')
	}
	return append(array, '}')
}

// queueSettled queues the question for one tenant's. pgx asks for what is no text in binary.
func queueSettled(b *pgx.Batch, group []*read, limit int32) {
	queueTenant(b, group[0].tenant)
	signatures := make([][]byte, len(group))
	for i, q := range group {
		signatures[i] = q.signature[:]
	}
	queue(b, statement{sql: selectSettledOfMany, args: []any{signatures, limit}, read: func(rows pgx.Rows) (err error) {
		for err == nil && rows.Next() {
			err = readSettled(rows.RawValues(), group)
		}
		return err
	}})
}

// readSettled reads a row of settledColumns for the one in the group to whom it belongs. Payloads that the group has
// no room for are NULL.
func readSettled(row [][]byte, group []*read) error {
	c := &cells{left: row}
	var r effect.Record
	at, first := c.time(), effect.State(c.text())
	r.Seq, r.ID = c.long(), c.id()
	r.Tenant, r.Principal, r.Session, r.Trace, r.Server, r.Tool = c.text(), c.text(), c.text(), c.text(), c.text(), c.text()
	r.Tier, r.Rule, r.Scope = effect.Tier(c.text()), effect.Rule(c.text()), c.text()
	r.Signature, r.Window, r.Generation = c.digest(), c.digest(), c.number()
	r.Key, r.Run, r.Occurrence, r.ArgsDigest, r.Complete = c.text(), c.text(), c.text(), c.digest(), c.digest()
	r.Policy, r.Source, r.LookalikeOf, r.CreatedAt, r.Arguments = c.text(), c.text(), c.text(), c.time(), c.bytes()
	last := c.row()
	moved := readMove(last, &r)
	if last != nil {
		c.err = cmp.Or(c.err, last.err)
	}
	arrived, mayRunAgain, place := c.time(), c.is(), c.long()
	if c.err == nil && (place < 1 || place > int64(len(group))) {
		c.err = fmt.Errorf("it is of call %d of %d", place, len(group))
	}
	if c.err != nil {
		return fmt.Errorf("read settled effect: %w", c.err)
	}
	q := group[place-1]
	if first != effect.StateClaimed || !moved || r.Ordinal != 1 || r.State.IsOpen() || mayRunAgain {
		return nil // there is more to know
	}
	if r.Arguments == nil || r.Answer.Kind != effect.AnswerNone && r.Answer.Body == nil {
		q.more, q.large = false, true
		return nil
	}
	arrive(&r, arrived)
	r.Answer = store.Unpruned(r.Answer, r.ChangedAt)
	q.at, q.more, q.latest = at, false, found{Record: &r}
	return nil
}

// readMove reads the last move of an effect, which may have none.
func readMove(c *cells, r *effect.Record) bool {
	if c == nil {
		return false
	}
	r.Ordinal, r.Attempt, r.State, r.ChangedAt, r.Owner = c.number(), c.number(), effect.State(c.text()), c.time(), c.text()
	r.By, r.Reason, r.Continuation = c.text(), c.text(), c.text()
	r.Answer = effect.Answer{Kind: effect.AnswerKind(c.text()), IsError: c.is(), Body: c.bytes()}
	return c.err == nil
}
