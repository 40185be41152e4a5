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

// openEffects are all that can be open: those on the account, and those beyond the mark.
const openEffects = `
	SELECT effect AS id
	FROM undolog.open_move
	WHERE tenant = $3
	UNION
	SELECT id
	FROM undolog.effect
	WHERE tenant = $3 AND seq > COALESCE((SELECT seq FROM undolog.mark WHERE tenant = $3), -1)`

// asksOpen reports whether a filter selects nothing but what is open.
func asksOpen(f *store.Filter) bool {
	isSettled := func(s effect.State) bool { return !s.IsOpen() }
	return f.Open || len(f.States) > 0 && !slices.ContainsFunc(f.States, isSettled)
}

// keepAccount moves the mark when many effects lie beyond it. Without it the list is as right, and slower.
func (d *Driver) keepAccount(ctx context.Context, tenant string) {
	for more := true; more; {
		err := d.retry(ctx, func(ctx context.Context) (err error) {
			more, err = d.sweep(ctx, tenant)
			return err
		})
		if err != nil {
			if ctx.Err() == nil {
				d.logger.WarnContext(ctx, "account of open effects not kept", slog.String("tenant", tenant), slog.Any("error", err))
			}
			return
		}
	}
}

// sweep moves the mark by one step and reports whether it did. First claims that nobody has settled go on the
// account; of what was moved since, the rows are obsolete.
func (d *Driver) sweep(ctx context.Context, tenant string) (moved bool, err error) {
	many := false
	err = asTenant(ctx, d.pool, tenant, statement{
		sql: `
			SELECT true
			FROM undolog.effect
			WHERE tenant = $1 AND seq > COALESCE((SELECT seq FROM undolog.mark WHERE tenant = $1), -1) AND seq < ` + settledSeq + `
			ORDER BY seq
			OFFSET $2
			LIMIT 1`,
		args: []any{text(tenant), int64(sweepStep)},
		read: readWhether(&many),
	})
	if err != nil || !many {
		return false, err
	}
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		var free bool
		if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, hash("sweep", tenant)).Scan(&free); err != nil || !free {
			return err
		}
		return asTenant(ctx, tx, tenant, sweepObsolete(tenant), sweepNext(tenant, &moved))
	})
	return moved, err
}

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
func sweepNext(tenant string, moved *bool) statement {
	return statement{
		sql: `
			WITH step AS MATERIALIZED (
			  SELECT id, seq, state
			  FROM undolog.effect
			  WHERE tenant = $1 AND seq > COALESCE((SELECT seq FROM undolog.mark WHERE tenant = $1), -1) AND seq < ` + settledSeq + `
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
		args: []any{text(tenant), int64(sweepStep)},
		read: readWhether(moved),
	}
}
