package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// sender is a pool, or a transaction.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// statement is one statement with what reads its rows, if anything does.
type statement struct {
	sql  string
	args []any
	read func(pgx.Rows) error
}

// asTenant runs statements as one tenant, in one round trip. On a pool they are one transaction, committed
// when it returns no error.
func asTenant(ctx context.Context, s sender, tenant string, statements ...statement) error {
	var b pgx.Batch
	queueTenant(&b, tenant)
	for _, st := range statements {
		queue(&b, st)
	}
	return s.SendBatch(ctx, &b).Close()
}

// asTenantAt is asTenant, and says when it was.
func asTenantAt(ctx context.Context, s sender, tenant string, at *time.Time, statements ...statement) error {
	var b pgx.Batch
	queueTenant(&b, tenant).QueryRow(func(row pgx.Row) error { return row.Scan(nil, nil, nil, nil, at) })
	for _, st := range statements {
		queue(&b, st)
	}
	return s.SendBatch(ctx, &b).Close()
}

// queueTenant says whose rows the statements that follow see and write, and how they are planned: once, and
// with indexes, row by row, whatever the statistics of a table that was empty a moment ago make of it: a plan that
// gathers rows in a bitmap and sorts them costs twice as much where there is one. A row that another
// transaction holds is not waited for long: a server may take a connection for alive whose client is gone.
// All of it holds until the transaction ends.
func queueTenant(b *pgx.Batch, tenant string) *pgx.QueuedQuery {
	return b.Queue(setTenant, text(tenant))
}

// setTenant is what queueTenant queues, or as much of it as connections are not tuned for already.
func (d *Driver) setTenant(tenant string) statement {
	if d.mode.isTuned() {
		return statement{sql: `SELECT ` + setOwnTenant, args: []any{text(tenant)}}
	}
	return statement{sql: setTenant, args: []any{text(tenant)}}
}

const setTenant = `
	SELECT set_config('undolog.tenant', $1, true), set_config('plan_cache_mode', 'force_generic_plan', true),
	       set_config('enable_seqscan', set_config('enable_bitmapscan', 'off', true), true), set_config('lock_timeout', '2s', true),
	       now()`

// setOwnTenant has a statement that is a transaction of its own set the tenant by the first value that it computes.
// How it is planned, and how long it waits for others, the connection must say.
const setOwnTenant = `set_config('undolog.tenant', $1, true)`

// inOwnName is the table o of such a statement: its row is there, and the tenant set, before anything is asked
// afterwards.
const inOwnName = `
	FROM (SELECT ` + setOwnTenant + ` AS tenant OFFSET 0) o`

// afterwards is a condition that the server cannot take for one that depends on no row, to be asked first.
func afterwards(condition string) string {
	return `CASE WHEN o.tenant IS NOT NULL THEN ` + condition + ` END`
}

func queue(b *pgx.Batch, st statement) {
	q := b.Queue(st.sql, st.args...)
	if st.read != nil {
		q.Query(st.read)
	}
}

// meet makes the tenant known before its first row is written.
func (d *Driver) meet(ctx context.Context, tenant string) error {
	if d.known.hasTenant(tenant) {
		return nil
	}
	return d.persist(ctx, func(ctx context.Context) error { return d.meetNow(ctx, tenant) })
}

// meetNow is meet within what is tried again as a whole.
func (d *Driver) meetNow(ctx context.Context, tenant string) error {
	if d.known.hasTenant(tenant) {
		return nil
	}
	_, err := d.pool.Exec(ctx, `INSERT INTO undolog.tenant (id) VALUES ($1) ON CONFLICT DO NOTHING`, text(tenant))
	if err == nil {
		d.known.addTenant(tenant)
	}
	return err
}

// Tenants returns every tenant that has anything in the log.
func (d *Driver) Tenants(ctx context.Context) (tenants []string, err error) {
	err = d.retry(ctx, func(ctx context.Context) error {
		rows, err := d.pool.Query(ctx, `SELECT id FROM undolog.tenant ORDER BY id`)
		if err != nil {
			return err
		}
		tenants, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	for i := range tenants {
		tenants[i] = untext(tenants[i])
	}
	return tenants, err
}
