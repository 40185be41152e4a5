package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Effect implements store.Driver.
func (d *Driver) Effect(ctx context.Context, tenant, id string) (r *effect.Record, err error) {
	err = d.retry(ctx, func(ctx context.Context) error {
		r, err = d.record(ctx, tenant, id)
		return err
	})
	return r, err
}

// record returns one effect, store.ErrNotFound when the tenant has none of that id.
func (d *Driver) record(ctx context.Context, tenant, id string) (*effect.Record, error) {
	key, ok := parseID(id)
	if !ok {
		return nil, store.ErrNotFound
	}
	var f found
	err := asTenant(ctx, d.pool, tenant, statement{sql: selectRecord + ` WHERE e.id = $1`, args: []any{key}, read: readRecord(&f)})
	if err == nil && f.Record == nil {
		err = store.ErrNotFound
	}
	return f.Record, err
}

// stateAt is effect.Record.StateAt in SQL, for filters: keep them equal. Its parameter is the time.
const stateAt = `
	CASE
	WHEN COALESCE(t.state, e.state) = 'awaiting_approval' AND p.until <= COALESCE($1::timestamptz, now())
	THEN CASE WHEN p.approved THEN 'void' ELSE 'expired' END::undolog.state
	WHEN COALESCE(t.state, e.state) <> 'claimed' THEN COALESCE(t.state, e.state)
	WHEN COALESCE($1::timestamptz, now()) < CASE WHEN t.effect IS NULL THEN COALESCE(e.lease_until, o.until) ELSE COALESCE(t.lease_until, o.until) END
	 AND COALESCE(COALESCE($1, now()) < CASE WHEN t.effect IS NULL THEN e.timeout_at ELSE t.timeout_at END, true)
	THEN 'claimed'
	ELSE 'in_doubt'
	END`

// Effects implements store.Driver. With f.After it takes the oldest of the newer effects, so that who
// follows the log misses none, and returns them newest first as ever; see Events for how far it reads.
func (d *Driver) Effects(ctx context.Context, f *store.Filter) (records []*effect.Record, err error) {
	var mark int64
	if asksOpen(f) && !asksAwaiting(f) {
		if mark, err = d.keepAccount(ctx, f.Tenant); err != nil {
			return nil, err
		}
	}
	order := "DESC"
	if f.After > 0 {
		order = "ASC"
	}
	where, args := conditions(f, d.clock.param(), mark)
	err = d.retry(ctx, func(ctx context.Context) error {
		return asTenant(ctx, d.pool, f.Tenant, inOrder, statement{
			sql: `
				SELECT ` + columnsOf(f) + `
				FROM ` + candidates(f) + recordTables + where + `
				ORDER BY e.seq ` + order + `
				LIMIT $2`,
			args: args, read: readRecords(&records),
		})
	})
	if f.After > 0 {
		slices.Reverse(records)
	}
	if f.Brief {
		for _, r := range records {
			r.Answer.Body, r.Answer.Pruned = nil, false // of those it says nothing
		}
	}
	return records, err
}

// columnsOf are recordColumns, without the payloads where the filter wants none: bytes that are kept outside of
// their row are not fetched then.
func columnsOf(f *store.Filter) string {
	if !f.Brief {
		return recordColumns
	}
	return briefColumns
}

var briefColumns = strings.NewReplacer(
	`e.arguments`, fmt.Sprintf(`substring(e.arguments FROM 1 FOR %d)`, store.BriefBytes),
	`COALESCE(a.answer, t.answer)`, `NULL::bytea`,
	`p.edited`, `NULL::bytea`,
).Replace(recordColumns)

// candidates are the effects that a filter has to look at, $1 being the time, $3 the tenant and $4 the mark.
func candidates(f *store.Filter) string {
	of := ""
	switch {
	case asksAwaiting(f):
		of = awaitingEffects
	case asksOpen(f):
		of = openEffects
	default:
		return `undolog.effect e`
	}
	// OFFSET keeps the planner from reading them in the order of the log, of which they may be a small part.
	return `(` + of + `) c CROSS JOIN LATERAL (SELECT * FROM undolog.effect WHERE id = c.id OFFSET 0) e`
}

func asksAwaiting(f *store.Filter) bool {
	return len(f.States) == 1 && f.States[0] == effect.StateAwaitingApproval
}

const awaitingEffects = `
	SELECT DISTINCT effect AS id
	FROM undolog.approval
	WHERE tenant = $3 AND until > COALESCE($1::timestamptz, now())`

// conditions is the WHERE clause of a filter. Values are in the parameters only; $1 is the time, $2 the limit,
// $3 the tenant and, where only what is open is asked for, $4 the mark.
func conditions(f *store.Filter, now pgtype.Timestamptz, mark int64) (string, []any) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	args := []any{now, int64(limit), text(f.Tenant)}
	where := []string{`e.tenant = $3`, `COALESCE($1::timestamptz, now()) IS NOT NULL`} // the time is always bound
	add := func(condition string, value any) {
		args = append(args, value)
		where = append(where, fmt.Sprintf(condition, len(args)))
	}
	if asksOpen(f) {
		add(`$%d::bigint IS NOT NULL`, mark) // always bound
	}
	if f.Run != "" {
		add(`e.run_hash = $%d`, hash(f.Run))
		add(`e.run = $%d`, text(f.Run))
	}
	if f.Server != "" {
		add(`e.server = $%d`, text(f.Server))
	}
	if f.Tool != "" {
		add(`e.tool LIKE $%d`, likeGlob(text(f.Tool)))
	}
	if f.Writes {
		where = append(where, `e.tier <> 'read'`)
	}
	if !f.Since.IsZero() {
		add(`e.created_at >= $%d`, timestamp(f.Since))
	}
	if f.Before > 0 {
		add(`e.seq < $%d`, f.Before)
	}
	if f.After > 0 {
		add(`e.seq > $%d`, f.After)
	}
	if f.After > 0 || f.Ordered {
		where = append(where, `e.seq < `+settledSeq)
	}
	if len(f.States) > 0 {
		states := make([]string, len(f.States))
		for i, s := range f.States {
			states[i] = string(s)
		}
		add(stateAt+` = ANY ($%d::text[]::undolog.state[])`, states)
	}
	if f.Open {
		where = append(where, `COALESCE(t.state, e.state) IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval')`)
	}
	return "\n\tWHERE " + strings.Join(where, "\n\t  AND "), args
}

// Equals implements store.Driver.
func (d *Driver) Equals(ctx context.Context, tenant string, window effect.Signature, limit int) (records []*effect.Record, err error) {
	err = d.retry(ctx, func(ctx context.Context) error {
		return asTenant(ctx, d.pool, tenant, statement{
			sql: `
				SELECT ` + recordColumns + `
				FROM (
				  (SELECT id FROM undolog.effect
				   WHERE signature = $1
				   ORDER BY generation DESC
				   LIMIT $2)
				  UNION ALL
				  (SELECT id FROM undolog.effect
				   WHERE window_signature = $1 AND rule IN ('key', 'run')
				   ORDER BY seq DESC
				   LIMIT $2)) c
				JOIN undolog.effect e ON e.id = c.id` + recordTables + `
				ORDER BY e.seq DESC
				LIMIT $2`,
			args: []any{window[:], int64(limit)}, read: readRecords(&records),
		})
	})
	return records, err
}

// likeGlob is a pattern of LIKE: * and ? are the only wildcards of a glob of ours.
var likeGlob = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`, `*`, `%`, `?`, `_`).Replace

// History implements store.Driver. The first move, kept in the effect's row, comes as ordinal 0. The last approval
// of an attempt is that of its later moves too. A delivery is kept apart, one for each answer, and told as the event that it is.
func (d *Driver) History(ctx context.Context, tenant, id string) (moves []effect.Transition, events []effect.Event, err error) {
	key, ok := parseID(id)
	if !ok {
		return nil, nil, store.ErrNotFound
	}
	err = d.retry(ctx, func(ctx context.Context) error {
		return asTenant(ctx, d.pool, tenant,
			statement{args: []any{key}, read: readMoves(id, &moves), sql: `
				SELECT m.*, p.document, p.edited
				FROM (
				  SELECT 0 AS ordinal, 1, state, created_at, owner, lease_until, timeout_at, '', '', '', '', false, NULL::bytea
				  FROM undolog.effect
				  WHERE id = $1
				  UNION ALL
				  SELECT ordinal, attempt, state, at, owner, lease_until, timeout_at, by, reason, continuation, answer_kind, is_error, answer
				  FROM undolog.transition
				  WHERE effect = $1) m
				LEFT JOIN undolog.approval p ON p.effect = $1 AND p.ordinal = m.ordinal
				ORDER BY m.ordinal`},
			statement{args: []any{key}, read: readEvents(&events), sql: selectEvent + `
				WHERE effect = $1::uuid::text AND effect <> ''
				UNION ALL
				SELECT 0, d.at, e.tenant, e.id::text, 'delivered', e.principal, e.server, e.tool, NULL
				FROM undolog.delivery d
				JOIN undolog.effect e ON e.id = d.effect
				WHERE e.id = $1
				ORDER BY at, seq`})
	})
	if err == nil && len(moves) == 0 {
		err = store.ErrNotFound
	}
	return moves, events, err
}

func readMoves(id string, into *[]effect.Transition) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*into = nil
		var asked *effect.Approval
		attempt := 0 // that it was asked about
		for rows.Next() {
			m := effect.Transition{Effect: id}
			var lease, timeout pgtype.Timestamptz
			var document, edited []byte
			err := rows.Scan(&m.Ordinal, &m.Attempt, (*string)(&m.State), &m.At, &m.Owner, &lease, &timeout,
				&m.By, &m.Reason, &m.Continuation, (*string)(&m.Answer.Kind), &m.Answer.IsError, (*[]byte)(&m.Answer.Body),
				&document, &edited)
			if err != nil {
				return err
			}
			if m.Approval, err = readApproval(document, edited); err != nil {
				return fmt.Errorf("read move %d of effect %s: %w", m.Ordinal, id, err)
			}
			if m.Approval != nil {
				asked, attempt = m.Approval, m.Attempt
			} else if m.Attempt == attempt {
				m.Approval = asked
			}
			m.Answer = store.Unpruned(m.Answer, m.At)
			m.At, m.LeaseUntil, m.TimeoutAt = m.At.UTC(), fromTimestamp(lease), fromTimestamp(timeout)
			for _, s := range []*string{&m.Owner, &m.By, &m.Reason, &m.Continuation} {
				*s = untext(*s)
			}
			*into = append(*into, m)
		}
		return nil
	}
}
