package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Beat implements store.Driver. A beat need not be flushed by itself: the claims that rest on it are
// written after it, and flush it with them.
func (d *Driver) Beat(ctx context.Context, owner string, ttl time.Duration) error {
	return d.persist(ctx, func(ctx context.Context) error { return d.beat(ctx, owner, ttl) })
}

func (d *Driver) beat(ctx context.Context, owner string, ttl time.Duration) error {
	var until, database time.Time
	var b pgx.Batch
	b.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
	b.Queue(`
		INSERT INTO undolog.owner (id, until)
		VALUES ($1, COALESCE($2::timestamptz, clock_timestamp()) + $3::bigint * interval '1 microsecond')
		ON CONFLICT (id) DO UPDATE SET until = excluded.until
		RETURNING until, clock_timestamp()`, text(owner), d.clock.param(), ttl.Microseconds()).
		QueryRow(func(row pgx.Row) error { return row.Scan(&until, &database) })
	sent := time.Now()
	if err := d.pool.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	d.clock.observe(sent, time.Now(), database)
	d.known.setBeat(owner, until.UTC())
	return nil
}

// beatWhenDue keeps the owner of a claim alive for at least two thirds of its TTL: on most claims the last
// beat is young enough and nothing is written. It tries once: the claim tries again for as long as it may.
func (d *Driver) beatWhenDue(ctx context.Context, owner string, ttl time.Duration) error {
	if d.isAlive(owner, ttl) {
		return nil
	}
	_, err, _ := d.beating.Do(owner, func() (any, error) {
		if d.isAlive(owner, ttl) {
			return nil, nil
		}
		return nil, d.beat(ctx, owner, ttl)
	})
	return err
}

func (d *Driver) isAlive(owner string, ttl time.Duration) bool {
	return d.known.beatUntil(owner).Sub(d.clock.now()) >= ttl*2/3
}

// End implements store.Driver. It also forgets owners that ended long ago without saying so: no row means
// the same as an old one.
func (d *Driver) End(ctx context.Context, owner string) error {
	d.known.endBeat(owner)
	return d.persist(ctx, func(ctx context.Context) error {
		if _, err := d.pool.Exec(ctx, `DELETE FROM undolog.owner WHERE id = $1`, text(owner)); err != nil {
			return err
		}
		_, err := d.pool.Exec(ctx, `
			DELETE FROM undolog.owner
			WHERE id IN (SELECT id FROM undolog.owner
			             WHERE until < COALESCE($1::timestamptz, now()) - interval '1 day'
			             ORDER BY id
			             LIMIT 1000
			             FOR UPDATE SKIP LOCKED)`, d.clock.param())
		return err
	})
}
