package postgres

import (
	"context"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// sweepStep is how many effects are looked at in one transaction, and how many may lie beyond the mark before
// who lists what is open moves it.
const sweepStep = 2000

// openEffects are all that can be open: those on the account, and those beyond the mark, which is $4. It is no
// subquery: what row-level security takes for leaky is looked up in no index.
const openEffects = `
	SELECT effect AS id
	FROM undolog.open_move
	WHERE tenant = $3
	UNION
	SELECT id
	FROM undolog.effect
	WHERE tenant = $3 AND seq > $4`

// asksOpen reports whether a filter selects nothing but what is open.
func asksOpen(f *store.Filter) bool {
	isSettled := func(s effect.State) bool { return !s.IsOpen() }
	return f.Open || len(f.States) > 0 && !slices.ContainsFunc(f.States, isSettled)
}

// keepAccount moves the mark when many effects lie beyond it, and returns it. Where it cannot be moved the list is
// as right, and slower.
func (d *Driver) keepAccount(ctx context.Context, tenant string) (mark int64, err error) {
	for more := true; more; {
		err = d.retry(ctx, func(ctx context.Context) (err error) {
			mark, more, err = d.sweep(ctx, tenant)
			return err
		})
		if lacksRights(err) {
			d.logger.WarnContext(ctx, "account of open effects not kept", slog.String("tenant", tenant), slog.Any("error", err))
			return mark, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return mark, nil
}

// sweep moves the mark by one step and reports whether it did. First claims that nobody has settled go on the
// account; of what was moved since, the rows are obsolete.
func (d *Driver) sweep(ctx context.Context, tenant string) (mark int64, moved bool, err error) {
	if mark, err = d.readMark(ctx, tenant); err != nil {
		return mark, false, err
	}
	many := false
	err = asTenant(ctx, d.pool, tenant, inOrder, statement{
		sql: `
			SELECT true
			FROM undolog.effect
			WHERE tenant = $1 AND seq > $2 AND seq < ` + settledSeq + `
			ORDER BY seq
			OFFSET $3
			LIMIT 1`,
		args: []any{text(tenant), mark, int64(sweepStep)},
		read: readWhether(&many),
	})
	if err != nil || !many {
		return mark, false, err
	}
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		var free bool
		if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, hash("sweep", tenant)).Scan(&free); err != nil || !free {
			return err // somebody else does it
		}
		return asTenant(ctx, tx, tenant, inOrder, sweepObsolete(tenant), sweepNext(tenant, mark, &moved))
	})
	return mark, moved, err
}

// readMark is below every effect before there is one.
func (d *Driver) readMark(ctx context.Context, tenant string) (mark int64, err error) {
	mark = -1
	err = asTenant(ctx, d.pool, tenant, statement{
		sql:  `SELECT seq FROM undolog.mark WHERE tenant = $1`,
		args: []any{text(tenant)},
		read: func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&mark); err != nil {
					return err
				}
			}
			return nil
		},
	})
	return mark, err
}

// inOrder has what follows read along the order of the log, and no further than it must, whatever the statistics
// of a table that was empty a moment ago make of it.
var inOrder = statement{sql: `SELECT set_config('enable_bitmapscan', 'off', true)`}

func sweepObsolete(tenant string) statement {
	return statement{
		sql: `
			DELETE FROM undolog.open_move o
			WHERE tenant = $1
			  AND EXISTS (SELECT FROM undolog.transition t WHERE t.effect = o.effect AND t.ordinal > o.ordinal)`,
		args: []any{text(tenant)},
	}
}

// sweepNext reads only what no transaction that is still under way could precede. Effects that were moved
// before there was an account are put on it too.
func sweepNext(tenant string, mark int64, moved *bool) statement {
	return statement{
		sql: `
			WITH step AS MATERIALIZED (
			  SELECT id, seq, state
			  FROM undolog.effect
			  WHERE tenant = $1 AND seq > $3 AND seq < ` + settledSeq + `
			  ORDER BY seq
			  LIMIT $2),
			opened AS (
			  INSERT INTO undolog.open_move (tenant, effect, ordinal)
			  SELECT $1, s.id, COALESCE(t.ordinal, 0)
			  FROM step s
			  LEFT JOIN LATERAL (
			    SELECT ordinal, state FROM undolog.transition WHERE effect = s.id ORDER BY ordinal DESC LIMIT 1) t ON true
			  WHERE COALESCE(t.state, s.state) IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval')
			  ON CONFLICT DO NOTHING)
			INSERT INTO undolog.mark (tenant, seq)
			SELECT $1, MAX(seq)
			FROM step
			HAVING COUNT(*) > 0
			ON CONFLICT (tenant) DO UPDATE SET seq = GREATEST(mark.seq, excluded.seq)
			RETURNING true`,
		args: []any{text(tenant), int64(sweepStep), mark},
		read: readWhether(moved),
	}
}
