package main

import (
	"context"
	"fmt"
)

// The ways that others are compared with.
const (
	nameInsert = "pgbench: one insert, 100 B"
	nameDBOS   = "DBOS: a workflow of one step"
	nameLog    = "UndoLog: effect"
	nameReplay = "UndoLog: replay"
)

// effects compares the ways of recording a piece of work before and after it is done.
func (b *bench) effects(ctx context.Context) error {
	ways, err := b.ways(ctx)
	if err != nil {
		return err
	}
	for _, callers := range b.callers {
		tallies, err := b.byTurns(ctx, ways, callers)
		if err != nil {
			return err
		}
		b.report(callers, ways, tallies)
	}
	return nil
}

func (b *bench) ways(ctx context.Context) ([]way, error) {
	ways := []way{
		{nameInsert, b.scripted(insertOne, 100)},
		{"pgbench: one insert, 1 KiB", b.scripted(insertOne, 1000)},
		{"pgbench: two inserts, 1 KiB each", b.scripted(insertBoth, 1000)},
		{"pgx: twice BEGIN, SELECT, INSERT, COMMIT", openPlain},
		{"UndoLog on SQLite: effect", effects(b.onSQLite)},
	}
	if b.dbos {
		program, err := b.buildDBOS(ctx)
		if err != nil {
			return nil, err
		}
		ways = append(ways, way{nameDBOS, workflows(program)})
	}
	return ways, nil
}

// report prints a table for so many callers: each way beside the first.
func (b *bench) report(callers int, ways []way, tallies []*tally) {
	b.table.section(fmt.Sprintf("CALLERS: %d", callers), "A SECOND", "× PGBENCH", "P50 ms", "P99 ms", "FSYNCS", "WAL B", "DB CPU µs", "CLIENT CPU µs")
	for i, t := range tallies {
		b.table.row(ways[i].name, fmt.Sprintf("%.0f", t.rate()), fmt.Sprintf("%.2f", t.rate()/tallies[0].rate()),
			millis(t.quantile(whole, .5)), millis(t.quantile(whole, .99)),
			fmt.Sprintf("%.3f", t.each(t.used.syncs)), fmt.Sprintf("%.0f", t.each(t.used.wal)),
			fmt.Sprintf("%.0f", t.each(t.used.cpu.Microseconds())), fmt.Sprintf("%.0f", float64(t.cpu.Microseconds())/float64(t.done)))
		for _, part := range []string{beginning, settling} {
			if len(t.times[part]) > 0 {
				b.table.row("  "+part, "", "", millis(t.quantile(part, .5)), millis(t.quantile(part, .99)))
			}
		}
	}
}

// each is what all that was done has used, for one piece.
func (t *tally) each(used int64) float64 { return float64(used) / float64(t.done+t.warmup) }
