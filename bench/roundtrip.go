package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/undolog/undolog/internal/barewriter"
)

// lap is one kind of call, measured by turns with the others.
type lap struct {
	run   func(i int) (time.Duration, error)
	times []time.Duration
}

func (l *lap) median() time.Duration { return median(l.times) }

// The laps of round trips.
const (
	readDirect = iota
	readThrough
	writeDirect
	writeThrough
	writeRelayed // through a relay that writes nothing
	writeDurable // through one that makes two durable writes
	bareWrites   // two durable writes and nothing else, one after the other
	lapCount
)

// lookUp is as large as a charge, so that reads and writes differ in what the log does and not in what the
// relay has to carry. The tool does not look at the reference.
var lookUp = `{"charge":"ch_1","reference":"` + padding + `"}`

// roundTrips compares calls through the gateway with direct ones. A read passes the whole gateway and is
// logged after its answer; a write is claimed and settled durably. The difference between the two, less
// what the tool itself needs for it, is what the log adds. It is compared with what two durable writes of
// the same rows add to a call through a mere relay: the server, the agent and the writer are woken as
// often there. What the same writes take in a loop that does nothing else is shown beside it.
func (b *bench) roundTrips(ctx context.Context) error {
	writer, err := barewriter.Open(ctx, filepath.Join(b.dir, "roundtrips-bare.db"))
	if err != nil {
		return err
	}
	laps := [lapCount]lap{}
	sessions, err := b.sessions()
	if err != nil {
		return err
	}
	for i, s := range sessions {
		laps[i].run = func(n int) (time.Duration, error) { return s.call("charge", arguments(n)) }
		if i == readDirect || i == readThrough {
			laps[i].run = func(int) (time.Duration, error) { return s.call("get_charge", lookUp) }
		}
	}
	laps[bareWrites].run = func(n int) (time.Duration, error) { return bareEffect(writer, n) }
	if err := byTurns(ctx, laps[:], 4*b.duration); err != nil {
		return err
	}
	b.reportRoundTrips(&laps)
	for _, s := range sessions {
		err = errors.Join(err, s.close())
	}
	return errors.Join(err, writer.Close())
}

// sessions are those of all laps but the last.
func (b *bench) sessions() (all [bareWrites]*session, err error) {
	relayed := func(writes bool) func(string) (*session, error) {
		return func(name string) (*session, error) { return b.relayed(name, writes) }
	}
	for i, open := range [bareWrites]func(string) (*session, error){
		readDirect: b.direct, readThrough: b.through, writeDirect: b.direct, writeThrough: b.through,
		writeRelayed: relayed(false), writeDurable: relayed(true),
	} {
		if all[i], err = open(fmt.Sprintf("roundtrips-%d", i)); err != nil {
			return all, err
		}
		if _, err := all[i].request("tools/list", `{}`); err != nil {
			return all, err
		}
		if _, err := all[i].call("charge", arguments(1e9)); err != nil { // ch_1, to be read
			return all, err
		}
	}
	return all, nil
}

func bareEffect(w *barewriter.Writer, n int) (time.Duration, error) {
	p, err := beginParams(irreversible(), n)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	err = w.Effect(p, answer)
	return time.Since(begun), err
}

// byTurns takes laps in turn for a while, some calls each, and sorts their times. The first calls of a turn
// find cold caches, which the bare writer in this process never does; they are not measured.
func byTurns(ctx context.Context, laps []lap, d time.Duration) error {
	const cold, turn = 10, 40
	begun := time.Now()
	for n := 0; n == 0 || time.Since(begun) < d && ctx.Err() == nil; n += turn {
		for i := range laps {
			if err := laps[i].turn(n, cold, turn); err != nil {
				return err
			}
		}
	}
	for i := range laps {
		slices.Sort(laps[i].times)
	}
	return nil
}

func (l *lap) turn(n, cold, calls int) error {
	for i := range calls {
		took, err := l.run(n + i)
		if err != nil {
			return err
		}
		if i >= cold {
			l.times = append(l.times, took)
		}
	}
	return nil
}

func (b *bench) reportRoundTrips(laps *[lapCount]lap) {
	of := func(lap int) time.Duration { return laps[lap].median() }
	through := func(what string, figure, baseline int, than string) {
		b.table.add(row{what, micros(of(figure)), micros(of(baseline)) + than, ratio(of(figure), of(baseline)), ""})
	}
	through("tools/call of a read, stdio, median", readThrough, readDirect, " direct")
	through("tools/call of a write, stdio, median", writeThrough, writeDirect, " direct")
	through("two durable writes around a call, median", writeDurable, writeRelayed, " relayed without")
	added := of(writeThrough) - of(writeDirect) - (of(readThrough) - of(readDirect))
	durable, bare := of(writeDurable)-of(writeRelayed), of(bareWrites)
	r := ratio(added, durable)
	b.table.add(row{"what the log adds to a call, 1 caller", micros(added), micros(durable) + " two durable writes", r, goal("≤ 1.5 ×", r <= 1.5)})
	b.table.add(row{"the same", micros(added), micros(bare) + " two, nothing else done", ratio(added, bare), ""})
}
