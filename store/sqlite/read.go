package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Effect implements store.Driver.
func (d *Driver) Effect(ctx context.Context, tenant, id string) (*effect.Record, error) {
	return record(snapshot{ctx, d.readers}, tenant, id)
}

// stateAt is effect.Record.StateAt in SQL, for filters: keep them equal. Its parameter is the time.
const stateAt = `
	CASE
	WHEN COALESCE(t.state, e.state) = 'awaiting_approval' THEN
	  CASE
	  WHEN ?1 >= t.use_until THEN 'void'
	  WHEN t.use_until IS NULL AND ?1 >= COALESCE(t.decide_until, e.decide_until) THEN 'expired'
	  ELSE 'awaiting_approval'
	  END
	WHEN COALESCE(t.state, e.state) <> 'claimed' THEN t.state
	WHEN ?1 < CASE WHEN t.effect IS NULL THEN COALESCE(e.lease_until, o.until, 0) ELSE COALESCE(t.lease_until, o.until, 0) END
	 AND ?1 < CASE WHEN t.effect IS NULL THEN COALESCE(e.timeout_at, ?1 + 1) ELSE COALESCE(t.timeout_at, ?1 + 1) END
	THEN 'claimed'
	ELSE 'in_doubt'
	END`

// Effects implements store.Driver. With f.After it takes the oldest of the newer effects, so that who
// follows the log misses none, and returns them newest first as ever.
func (d *Driver) Effects(ctx context.Context, f *store.Filter) ([]*effect.Record, error) {
	if asksOpen(f) {
		if err := d.sweep(ctx); err != nil && ctx.Err() == nil {
			d.logger.WarnContext(ctx, "account of open effects not kept", slog.Any("error", err))
		}
	}
	where, args := conditions(f, micros(d.now()))
	order := "DESC"
	if f.After > 0 {
		order = "ASC"
	}
	query, read := selectRecord, all
	if f.Brief {
		query, read = selectBrief, allBrief
	}
	records, err := read(snapshot{ctx, d.readers}, query+where+`
		ORDER BY e.seq `+order+`
		LIMIT ?2`, args...)
	if err != nil {
		return nil, err
	}
	if f.After > 0 {
		slices.Reverse(records)
	}
	return records, nil
}

// conditions is the WHERE clause of a filter. Values are in the parameters only; ?1 is the time and ?2
// the limit.
func conditions(f *store.Filter, now int64) (string, []any) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	args := []any{now, limit, f.Tenant}
	// The plus keeps SQLite from reading all of a tenant by an index that has another order: effects are read
	// from the newest on, or as the account of what is open has them.
	where := []string{`+e.tenant = ?3`}
	add := func(condition string, value any) {
		args = append(args, value)
		where = append(where, fmt.Sprintf("%s ?%d", condition, len(args)))
	}
	if f.Run != "" {
		where = []string{`e.tenant = ?3`, `e.run <> ''`} // by the index of runs
		add(`e.run =`, f.Run)
	}
	if f.Server != "" {
		add(`e.server =`, f.Server)
	}
	if f.Tool != "" {
		add(`e.tool GLOB`, strings.ReplaceAll(f.Tool, "[", "[[]")) // classes are no part of our globs
	}
	if f.Writes {
		where = append(where, `e.tier <> 'read'`)
	}
	if !f.Since.IsZero() {
		add(`e.created_at >=`, micros(f.Since))
	}
	if f.Before > 0 {
		add(`e.seq <`, f.Before)
	}
	if f.After > 0 {
		add(`e.seq >`, f.After)
	}
	if len(f.States) > 0 {
		marks := make([]string, len(f.States))
		for i, s := range f.States {
			args = append(args, string(s))
			marks[i] = fmt.Sprintf("?%d", len(args))
		}
		where = append(where, stateAt+` IN (`+strings.Join(marks, ", ")+`)`)
	} else {
		where = append(where, `?1 = ?1`) // the time is always bound
	}
	if f.Open {
		where = append(where, `COALESCE(t.state, e.state) IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval')`)
	}
	if asksOpen(f) {
		where = append(where, `e.seq IN (`+candidates+`)`)
	}
	return "\n\tWHERE " + strings.Join(where, "\n\t  AND "), args
}

// asksOpen reports whether a filter selects nothing but what is open, which is found without reading all that
// is not.
func asksOpen(f *store.Filter) bool {
	isSettled := func(s effect.State) bool { return !s.IsOpen() }
	return f.Open || len(f.States) > 0 && !slices.ContainsFunc(f.States, isSettled)
}

// Equals implements store.Driver.
func (d *Driver) Equals(ctx context.Context, tenant string, window effect.Signature, limit int) ([]*effect.Record, error) {
	return all(snapshot{ctx, d.readers}, selectRecord+`
		WHERE e.seq IN (SELECT seq FROM effect WHERE tenant = ?1 AND signature = ?2
		                UNION ALL
		                SELECT seq FROM effect WHERE tenant = ?1 AND window = ?2 AND rule IN ('key', 'run') AND tier <> 'read')
		ORDER BY e.seq DESC
		LIMIT ?3`, tenant, window[:], limit)
}

// History implements store.Driver. The first claim, kept in the effect's row, comes as ordinal 0.
func (d *Driver) History(ctx context.Context, tenant, id string) ([]effect.Transition, []effect.Event, error) {
	q := snapshot{ctx, d.readers}
	moves, err := transitions(q, tenant, id)
	if err != nil {
		return nil, nil, err
	}
	if len(moves) == 0 {
		return nil, nil, store.ErrNotFound
	}
	// A delivery is kept apart, one for each answer, and told as the event that it is.
	events, err := events(q, `
		SELECT seq, at, tenant, effect, kind, principal, server, tool, detail
		FROM event
		WHERE tenant = ?1 AND effect = ?2 AND effect <> ''
		UNION ALL
		SELECT 0, d.at, e.tenant, e.id, 'delivered', e.principal, e.server, e.tool, NULL
		FROM delivery d
		JOIN effect e ON e.seq = d.effect
		WHERE e.tenant = ?1 AND e.id = ?2
		ORDER BY at, seq`, tenant, id)
	return moves, events, err
}

func transitions(q queryer, tenant, id string) (moves []effect.Transition, err error) {
	rows, err := q.query(`
		SELECT 0 AS ordinal, 1, state, created_at, owner, lease_until, timeout_at, '', '', '', '', 0, NULL, approval, NULL
		FROM effect
		WHERE tenant = ?1 AND id = ?2
		UNION ALL
		SELECT t.ordinal, t.attempt, t.state, t.at, t.owner, t.lease_until, t.timeout_at,
		       t.by, t.reason, t.continuation, t.answer_kind, t.is_error, t.answer, t.approval, t.edited
		FROM transition t
		JOIN effect e ON e.seq = t.effect
		WHERE e.tenant = ?1 AND e.id = ?2
		ORDER BY ordinal`, tenant, id)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		m := effect.Transition{Effect: id}
		var at int64
		var lease, timeout sql.NullInt64
		var asked approvalColumns
		err := rows.Scan(&m.Ordinal, &m.Attempt, (*string)(&m.State), &at, &m.Owner, &lease, &timeout,
			&m.By, &m.Reason, &m.Continuation, (*string)(&m.Answer.Kind), &m.Answer.IsError, (*[]byte)(&m.Answer.Body),
			&asked.document, &asked.edited)
		if err != nil {
			return nil, err
		}
		if m.Approval, err = asked.approval(); err != nil {
			return nil, err
		}
		m.Answer = store.Unpruned(m.Answer, fromMicros(at))
		m.At, m.LeaseUntil, m.TimeoutAt = fromMicros(at), fromNullMicros(lease), fromNullMicros(timeout)
		moves = append(moves, m)
	}
	return moves, rows.Err()
}

// Events implements store.Driver. Deliveries are not among them: they are in the history of their effect.
func (d *Driver) Events(ctx context.Context, tenant string, after int64, limit int) ([]effect.Event, error) {
	if limit <= 0 {
		limit = 100
	}
	return events(snapshot{ctx, d.readers}, `
		SELECT seq, at, tenant, effect, kind, principal, server, tool, detail
		FROM event
		WHERE tenant = ? AND seq > ?
		ORDER BY seq
		LIMIT ?`, tenant, after, limit)
}

// LastEvents implements store.Driver.
func (d *Driver) LastEvents(ctx context.Context, tenant string, before int64, limit int) ([]effect.Event, error) {
	return events(snapshot{ctx, d.readers}, `
		SELECT seq, at, tenant, effect, kind, principal, server, tool, detail
		FROM event
		WHERE tenant = ? AND seq < ?
		ORDER BY seq DESC
		LIMIT ?`, tenant, cmp.Or(max(before, 0), math.MaxInt64), cmp.Or(max(limit, 0), 100))
}

func events(q queryer, query string, args ...any) (found []effect.Event, err error) {
	rows, err := q.query(query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var ev effect.Event
		var at int64
		err := rows.Scan(&ev.Seq, &at, &ev.Tenant, &ev.Effect, &ev.Kind, &ev.Principal, &ev.Server, &ev.Tool, (*[]byte)(&ev.Detail))
		if err != nil {
			return nil, err
		}
		ev.At = fromMicros(at)
		found = append(found, ev)
	}
	return found, rows.Err()
}
