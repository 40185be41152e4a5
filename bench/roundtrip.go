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

// roundTrips compares calls through the gateway with direct ones. A read passes the whole gateway and is
// logged after its answer; a write is claimed and settled durably. The difference between the two, less
// what the tool itself needs for it, is what the log adds, and is compared with two durable writes of the
// same rows.
func (b *bench) roundTrips(ctx context.Context) error {
	writer, err := barewriter.Open(ctx, filepath.Join(b.dir, "roundtrips-bare.db"))
	if err != nil {
		return err
	}
	laps := [5]lap{}
	sessions, err := b.sessions()
	if err != nil {
		return err
	}
	for i, s := range sessions {
		laps[i].run = func(n int) (time.Duration, error) { return s.call("charge", arguments(n)) }
		if i < 2 {
			laps[i].run = func(int) (time.Duration, error) { return s.call("get_charge", `{"charge":"ch_1"}`) }
		}
	}
	laps[4].run = func(n int) (time.Duration, error) { return bareEffect(writer, n) }
	if err := byTurns(ctx, laps[:], 3*b.duration); err != nil {
		return err
	}
	b.reportRoundTrips(&laps)
	for _, s := range sessions {
		err = errors.Join(err, s.close())
	}
	return errors.Join(err, writer.Close())
}

// sessions are: a read direct and through the gateway, a write direct and through the gateway.
func (b *bench) sessions() (all [4]*session, err error) {
	for i, open := range []func(string) (*session, error){b.direct, b.through, b.direct, b.through} {
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

func (b *bench) reportRoundTrips(laps *[5]lap) {
	read, readThrough, write, writeThrough, bare := laps[0].median(), laps[1].median(), laps[2].median(), laps[3].median(), laps[4].median()
	b.table.add(row{"tools/call of a read, stdio, median", micros(readThrough), micros(read) + " direct", ratio(readThrough, read), ""})
	b.table.add(row{"tools/call of a write, stdio, median", micros(writeThrough), micros(write) + " direct", ratio(writeThrough, write), ""})
	added := writeThrough - write - (readThrough - read)
	r := ratio(added, bare)
	b.table.add(row{"what the log adds to a call, 1 caller", micros(added), micros(bare) + " for two durable writes", r, goal("≤ 1.5 ×", r <= 1.5)})
}
