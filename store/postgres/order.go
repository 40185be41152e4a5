package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// errOrder says that rows have numbers that the server has yet to give.
var errOrder = errors.New("the log comes from another cluster: its rows are numbered by transactions that this server has yet to begin, " +
	"so that they would be hidden from who follows, and calls decided on in a wrong order; with no other program on the log, as the owner of its tables run: undolog migrate renumber")

// selectNumbers reads the highest number of a row, of all tenants, and that of the next transaction. The tenant is set
// row by row, before its rows are looked up.
const selectNumbers = `
	SELECT COALESCE(MAX(GREATEST(e.seq, v.seq, g.seq)) >> 16, 0), pg_snapshot_xmax(pg_current_snapshot())::text::bigint
	FROM undolog.tenant t
	CROSS JOIN LATERAL (SELECT set_config('undolog.tenant', t.id, true) AS tenant OFFSET 0) o
	LEFT JOIN LATERAL (SELECT seq FROM undolog.effect WHERE tenant = o.tenant ORDER BY seq DESC LIMIT 1) e ON true
	LEFT JOIN LATERAL (SELECT seq FROM undolog.event WHERE tenant = o.tenant ORDER BY seq DESC LIMIT 1) v ON true
	LEFT JOIN LATERAL (SELECT seq FROM undolog.standing_grant WHERE tenant = o.tenant ORDER BY seq DESC LIMIT 1) g ON true`

// checkOrder refuses a log whose rows are numbered as if they were yet to come: a dump of an older cluster.
func (d *Driver) checkOrder(ctx context.Context) error {
	var highest, next int64
	err := d.retry(ctx, func(ctx context.Context) error {
		return d.pool.QueryRow(ctx, selectNumbers).Scan(&highest, &next)
	})
	if err != nil {
		return err
	}
	return numbersOf(highest, next)
}

func numbersOf(highest, next int64) error {
	if highest < next {
		return nil
	}
	return fmt.Errorf("%w (a row has the number %d, the next transaction %d)", errOrder, highest, next)
}

// Renumber gives the rows of a log that was restored from a dump of another cluster numbers that this one has
// given already, in the order that they have, and reports whether that was needed. No other program may be at work
// on the log; positions that somebody has kept of it, such as where a stream is to go on, say nothing any more. The
// role must own the tables.
func Renumber(ctx context.Context, url string) (needed bool, err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return false, fmt.Errorf("renumber log: %w", err)
	}
	delete(config.RuntimeParams, "pool_max_conns")
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, fmt.Errorf("renumber log: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		needed, err = renumber(ctx, tx)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("renumber log: %w", explain(err))
	}
	return needed, nil
}

// finalTables are those whose rows nobody else may change.
var finalTables = []string{"effect", "transition", "standing_grant"}

func renumber(ctx context.Context, tx pgx.Tx) (needed bool, err error) {
	if _, err := tx.Exec(ctx, `
		LOCK TABLE undolog.tenant, undolog.effect, undolog.transition, undolog.event, undolog.standing_grant, undolog.mark
		IN ACCESS EXCLUSIVE MODE`); err != nil {
		return false, err
	}
	var highest, next int64
	if err := tx.QueryRow(ctx, selectNumbers).Scan(&highest, &next); err != nil {
		return false, err
	}
	if numbersOf(highest, next) == nil {
		return false, nil
	}
	if err := alterTriggers(ctx, tx, "DISABLE"); err != nil {
		return false, err
	}
	rows, err := tx.Query(ctx, `SELECT id FROM undolog.tenant ORDER BY id`)
	if err != nil {
		return false, err
	}
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, err
	}
	for _, tenant := range tenants {
		if err := renumberTenant(ctx, tx, tenant, next); err != nil {
			return false, fmt.Errorf("tenant %s: %w", untext(tenant), err)
		}
	}
	return true, alterTriggers(ctx, tx, "ENABLE")
}

func alterTriggers(ctx context.Context, tx pgx.Tx, how string) error {
	for _, table := range finalTables {
		if _, err := tx.Exec(ctx, `ALTER TABLE undolog.`+table+` `+how+` TRIGGER USER`); err != nil {
			return err
		}
	}
	return nil
}

// renumberTenant counts a tenant's rows in their order. They are compared with no other tenant's.
func renumberTenant(ctx context.Context, tx pgx.Tx, tenant string, next int64) error {
	var last int64
	if err := tx.QueryRow(ctx, `SELECT set_config('undolog.tenant', $1, true) IS NULL`, tenant).Scan(nil); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		CREATE TEMPORARY TABLE renumbered ON COMMIT DROP AS
		SELECT seq, row_number() OVER (ORDER BY seq) AS place
		FROM (
		  SELECT seq FROM undolog.effect
		  UNION
		  SELECT position FROM undolog.transition WHERE position IS NOT NULL
		  UNION
		  SELECT seq FROM undolog.event
		  UNION
		  SELECT seq FROM undolog.standing_grant) n`); err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, `SELECT COALESCE(MAX(place), 0) FROM renumbered`).Scan(&last); err != nil {
		return err
	}
	if last>>16 >= next {
		return fmt.Errorf("it has %d rows, and the server has begun %d transactions: begin some more, such as SELECT pg_current_xact_id()", last, next)
	}
	for _, sql := range []string{
		`UPDATE undolog.effect t SET seq = n.place FROM renumbered n WHERE n.seq = t.seq`,
		`UPDATE undolog.transition t SET position = n.place FROM renumbered n WHERE n.seq = t.position`,
		`UPDATE undolog.event t SET seq = n.place FROM renumbered n WHERE n.seq = t.seq`,
		`UPDATE undolog.standing_grant t SET seq = n.place FROM renumbered n WHERE n.seq = t.seq`,
		`UPDATE undolog.mark t SET seq = COALESCE((SELECT MAX(place) FROM renumbered n WHERE n.seq <= t.seq), 0)`,
		`DROP TABLE renumbered`,
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
