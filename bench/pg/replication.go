package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/internal/pgcluster"
)

// The publications that a subscriber elsewhere could follow. Without payloads it learns what became of what,
// and asks for the rest.
var publications = []struct{ name, tables string }{
	{"all", "undolog.effect, undolog.transition, undolog.event"},
	{"moves", "undolog.effect (id, seq, created_at, tenant, principal, server, tool, tier, rule), " +
		"undolog.transition (effect, ordinal, attempt, at, tenant, state, by, reason, answer_kind, is_error), undolog.event"},
}

// replication measures how fast what is logged can be decoded for a subscriber, and how much that is.
func (b *bench) replication(ctx context.Context) (err error) {
	db, err := pgcluster.CreateDatabase(ctx, b.cluster.URL())
	if err != nil {
		return err
	}
	if err := b.publish(ctx, db); err != nil {
		return fmt.Errorf("publish log: %w", err)
	}
	logged, err := b.measure(ctx, way{nameLog, effects(onPostgres)}, db, growthCallers)
	if err != nil {
		return err
	}
	b.table.section(fmt.Sprintf("LOGICAL REPLICATION, CALLERS: %d", growthCallers), "A SECOND", "× LOGGED", "WAL B", "DB CPU µs", "SENT B")
	b.table.row(nameLog+", wal_level logical", fmt.Sprintf("%.0f", logged.rate()), "1.00", fmt.Sprintf("%.0f", logged.each(logged.used.wal)),
		fmt.Sprintf("%.0f", logged.each(logged.used.cpu.Microseconds())))
	for _, p := range publications {
		t, size, err := b.decode(ctx, db, p.name)
		if err != nil {
			return fmt.Errorf("decode publication %s: %w", p.name, err)
		}
		t.done = logged.done + logged.warmup
		b.table.row("decoding publication "+p.name, fmt.Sprintf("%.0f", t.rate()), fmt.Sprintf("%.2f", t.rate()/logged.rate()), "",
			fmt.Sprintf("%.0f", t.each(t.used.cpu.Microseconds())), fmt.Sprintf("%.0f", t.each(size)))
	}
	return nil // the database goes with the cluster, and with it the slots
}

// publish makes the schema, and for each publication a slot that holds what is logged from now on.
func (b *bench) publish(ctx context.Context, db *pgcluster.Database) error {
	driver, err := onPostgres(ctx, db)
	if err != nil {
		return err
	}
	if err := driver.Close(); err != nil {
		return err
	}
	return as(ctx, db.AdminURL, func(conn *pgx.Conn) error {
		for _, p := range publications {
			if _, err := conn.Exec(ctx, "CREATE PUBLICATION "+pgx.Identifier{p.name}.Sanitize()+" FOR TABLE "+p.tables); err != nil {
				return err
			}
			if _, err := conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", p.name); err != nil {
				return err
			}
		}
		return nil
	})
}

// decode reads a publication to its end into a file, and says how large that is.
func (b *bench) decode(ctx context.Context, db *pgcluster.Database, publication string) (t *tally, size int64, err error) {
	program, err := pgcluster.Program("pg_recvlogical")
	if err != nil {
		return nil, 0, err
	}
	var end string
	err = as(ctx, db.AdminURL, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&end)
	})
	if err != nil {
		return nil, 0, err
	}
	before, err := b.quiet(ctx) // which writes to the log, so that the end comes
	if err != nil {
		return nil, 0, err
	}
	file := filepath.Join(b.dir, publication)
	begun := time.Now()
	out, err := exec.CommandContext(ctx, program, "-d", db.AdminURL, "--slot", publication, "--start", "--no-loop", "--endpos", end,
		"-o", "proto_version=1", "-o", "binary=true", "-o", "publication_names="+publication, "-f", file).CombinedOutput()
	if err != nil {
		return nil, 0, fmt.Errorf("run pg_recvlogical: %w\n%s", err, out)
	}
	t = &tally{took: time.Since(begun)}
	after, err := b.sample(ctx)
	t.used = after.since(before)
	info, statErr := os.Stat(file)
	if err := errors.Join(err, statErr); err != nil {
		return nil, 0, err
	}
	return t, info.Size(), nil
}
