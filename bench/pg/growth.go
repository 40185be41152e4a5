package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/internal/pgcluster"
)

// growth compares a log of many effects with one of none, which take turns. It is filled in steps, and looked
// at after each.
func (b *bench) growth(ctx context.Context) (err error) {
	filled, err := pgcluster.CreateDatabase(ctx, b.cluster.URL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, filled.Drop(context.WithoutCancel(ctx), b.cluster.URL())) }()
	b.table.section(fmt.Sprintf("GROWTH, CALLERS: %d", growthCallers), "A SECOND", "× EMPTY", "P50 ms", "P99 ms", "FSYNCS", "WAL B", "DB CPU µs", "ON DISK")
	had := 0
	for _, rows := range b.sizes() {
		if err := b.fill(ctx, filled, had, rows); err != nil {
			return fmt.Errorf("fill log with %d effects: %w", rows, err)
		}
		if err := b.compare(ctx, filled, rows); err != nil {
			return err
		}
		had = rows
	}
	return nil
}

const growthCallers = 64

// sizes are those at which a growing log is looked at.
func (b *bench) sizes() []int {
	if b.rows < 100_000 {
		return []int{b.rows}
	}
	return []int{b.rows / 100, b.rows / 10, b.rows}
}

// compare measures the filled log and empty ones by turns.
func (b *bench) compare(ctx context.Context, filled *pgcluster.Database, rows int) error {
	for _, w := range []way{{nameLog, effects(onPostgres)}, {nameReplay, replay(onPostgres)}} {
		empty, full := &tally{}, &tally{}
		for round := range b.rounds {
			fmt.Fprintf(os.Stderr, "%d effects, round %d: %s\n", rows, round+1, w.name)
			t, err := b.turn(ctx, w, growthCallers)
			if err != nil {
				return err
			}
			empty.add(t)
			if t, err = b.measure(ctx, w, filled, growthCallers); err != nil {
				return err
			}
			full.add(t)
		}
		size, err := b.size(ctx, filled)
		if err != nil {
			return err
		}
		b.growthRow(w.name+", empty log", empty, empty, "")
		b.growthRow(fmt.Sprintf("%s, %s effects", w.name, humanize.Comma(int64(rows))), full, empty, size)
		if w.name == nameLog && rows == b.rows {
			b.table.judge("effects a second, full log to empty", full.rate()/empty.rate(), 0.9)
		}
	}
	return nil
}

func (b *bench) growthRow(name string, t, empty *tally, size string) {
	b.table.row(name, fmt.Sprintf("%.0f", t.rate()), fmt.Sprintf("%.2f", t.rate()/empty.rate()),
		millis(t.quantile(whole, .5)), millis(t.quantile(whole, .99)), fmt.Sprintf("%.3f", t.each(t.used.syncs)),
		fmt.Sprintf("%.0f", t.each(t.used.wal)), fmt.Sprintf("%.0f", t.each(t.used.cpu.Microseconds())), size)
}

// size says how large the tables and the indexes of calls are.
func (b *bench) size(ctx context.Context, db *pgcluster.Database) (string, error) {
	var tables, indexes uint64
	err := as(ctx, db.AdminURL, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `
			SELECT sum(pg_table_size(t)), sum(pg_indexes_size(t))
			FROM unnest(ARRAY['undolog.effect', 'undolog.transition']::regclass[]) AS t`).Scan(&tables, &indexes)
	})
	if err != nil {
		return "", fmt.Errorf("read size of log: %w", err)
	}
	return humanize.Bytes(tables) + " + " + humanize.Bytes(indexes) + " indexes", nil
}

// fill adds settled effects to a log that has some, until there are so many. What is as random as a signature
// is indexed afterwards, with the room that an index which has grown by itself has left.
func (b *bench) fill(ctx context.Context, db *pgcluster.Database, had, until int) error {
	driver, err := onPostgres(ctx, db) // makes the schema
	if err != nil {
		return err
	}
	if err := driver.Close(); err != nil {
		return err
	}
	return as(ctx, db.AdminURL, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, `SET synchronous_commit = off`); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, `ALTER TABLE undolog.effect DROP CONSTRAINT effect_signature_generation_key`); err != nil {
			return err
		}
		for at := had; at < until; at += batch {
			if err := fillBatch(ctx, conn, min(batch, until-at)); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "\rfilled: %d of %d effects", at, until)
		}
		fmt.Fprintln(os.Stderr)
		if _, err := conn.Exec(ctx, `ALTER TABLE undolog.effect ADD CONSTRAINT effect_signature_generation_key
			UNIQUE (signature, generation) WITH (fillfactor = 70)`); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, `VACUUM (ANALYZE) undolog.effect, undolog.transition`)
		return err
	})
}

// batch is how many effects one transaction fills in; their places in it have 16 bits.
const batch = 50_000

// fillBatch makes effects as the driver does, in one transaction: of 100 callers, a millisecond apart.
func fillBatch(ctx context.Context, conn *pgx.Conn, n int) error {
	_, err := conn.Exec(ctx, `
		WITH call AS MATERIALIZED (
			SELECT n, md5(n::text || random()) AS h, clock_timestamp() - (($1 - n) || ' ms')::interval AS at
			FROM generate_series(1, $1::int) AS n
		), named AS MATERIALIZED (
			SELECT *, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(h, 1, 3) || '8' || substr(h, 4, 15))::uuid AS id
			FROM call
		), effect AS (
			INSERT INTO undolog.effect (id, seq, caller, created_at, timeout_at, generation, signature, window_signature, args_digest,
				complete, tenant, principal, session, trace, server, tool, tier, rule, scope, key, run, occurrence, policy, source,
				lookalike_of, state, owner, arguments)
			SELECT id, (pg_current_xact_id()::text::bigint << 16) + n, hashtextextended('agent:' || n % 100, 0), at, at + interval '10 min', 1,
				sha256(h::bytea), sha256(h::bytea), sha256(h::bytea), sha256(h::bytea), 'default', 'agent:' || n % 100, '', '', 'payments',
				'charge', 'irreversible', 'window', 'agent:' || n % 100, '', '', '', '', 'default', '', 'claimed', h,
				convert_to('{"account":"bench","amount":' || n || ',"reference":"' || repeat('x', 1000) || '"}', 'UTF8')
			FROM named ORDER BY n
		)
		INSERT INTO undolog.transition (effect, ordinal, attempt, at, is_error, tenant, state, owner, by, reason, continuation, answer_kind, answer)
		SELECT id, 1, 1, at, false, 'default', 'committed', h, '', '', '', 'result',
			convert_to('{"content":[{"type":"text","text":"' || repeat('x', 1000) || '"}]}', 'UTF8')
		FROM named ORDER BY n`, n)
	return err
}
