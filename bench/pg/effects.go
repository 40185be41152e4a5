package main

import (
	"context"
	"fmt"
	"slices"
)

// The ways that others are compared with.
const (
	nameInsert = "pgbench: one insert, 100 B"
	nameDBOS   = "DBOS: a workflow of one step"
	nameFloor  = "pgx: two inserts of 1 KiB, prepared"
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
		b.judge(callers, ways, tallies)
	}
	return nil
}

// judge compares with what is to be reached.
func (b *bench) judge(callers int, ways []way, tallies []*tally) {
	of := map[string]*tally{}
	for i, w := range ways {
		of[w.name] = tallies[i]
	}
	insert := of[nameInsert]
	if log := of[nameLog]; log != nil {
		b.judgeEffects(callers, insert, log, of[nameDBOS])
		if f := of[nameFloor]; f != nil {
			b.table.row(fmt.Sprintf("  effects a second to pgx's two inserts: %.2f ×", log.rate()/f.rate()))
		}
	}
	if r := of[nameReplay]; r != nil {
		b.table.judge("replays a second to pgbench's inserts", r.rate()/insert.rate(), 1)
	}
}

func (b *bench) judgeEffects(callers int, insert, log, dbos *tally) {
	switch callers {
	case 1:
		b.table.judgeAtMost("time of an effect to that of pgbench's insert", insert.rate()/log.rate(), 3.5)
	case 64:
		b.table.judge("effects a second to pgbench's inserts", log.rate()/insert.rate(), 0.75)
	case 256:
		b.table.judge("effects a second to pgbench's inserts", log.rate()/insert.rate(), 1)
	}
	if dbos != nil && callers == 64 {
		b.table.judge("effects a second to DBOS's workflows", log.rate()/dbos.rate(), 10)
	}
}

func (b *bench) ways(ctx context.Context) ([]way, error) {
	ways := []way{
		{nameInsert, b.scripted(insertOne, 100)},
		{"pgbench: one insert, 1 KiB", b.scripted(insertOne, 1000)},
		{"pgbench: two inserts, 1 KiB each", b.scripted(insertBoth, 1000)},
		{"pgx: twice BEGIN, SELECT, INSERT, COMMIT", openPlain},
		{nameFloor, openFloor},
		{nameLog, effects(onPostgres)},
		{nameLog + ", through PgBouncer", bounced(effects(onPostgres))},
		{nameLog + ", on SQLite", effects(b.onSQLite)},
		{nameReplay, replay(onPostgres)},
		{nameReplay + ", through PgBouncer", bounced(replay(onPostgres))},
	}
	if b.dbos && b.matching.MatchString(nameDBOS) {
		program, err := b.buildDBOS(ctx)
		if err != nil {
			return nil, err
		}
		ways = append(ways, way{nameDBOS, workflows(program)})
	}
	return slices.DeleteFunc(ways, func(w way) bool { return w.name != nameInsert && !b.matching.MatchString(w.name) }), nil
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
