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
	writeStamped // directly, with the effect and key that the gateway would put into its _meta
	writeThrough
	writeRelayed // through a relay that writes nothing
	writeDurable // through one that makes two durable writes
	bareWrites   // two durable writes and nothing else, one after the other
	lapCount
)

// shares is how many sessions, each with processes and a file of its own, share the turns of a lap. One process of a
// program is some percent faster than another for as long as both live, by where its memory lies, and so is a sync of
// one file, by where that lies: with one session each, a run would compare places.
const shares = 4

// lookUp is as large as a charge, so that reads and writes differ in what the log does and not in what the
// relay has to carry. The tool does not look at the reference.
var lookUp = `{"charge":"ch_1","reference":"` + padding + `"}`

// roundTrips compares calls through the gateway with direct ones. A read passes the whole gateway and is
// logged after its answer; a write is claimed and settled durably. The difference between the two, less
// what the tool itself needs for it, is what the log adds. It is compared with what two durable writes of
// the same rows add to a call through a mere relay: the server, the agent and the writer are woken as
// often there. What the same writes take in a loop that does nothing else is shown beside it.
func (b *bench) roundTrips(ctx context.Context) error {
	laps := [lapCount]lap{}
	sessions, err := b.sessions()
	if err != nil {
		return err
	}
	for i, s := range sessions {
		laps[i].run = func(n int) (time.Duration, error) { return ofTurn(s, n).call("charge", arguments(n)) }
		switch i {
		case writeStamped:
			laps[i].run = func(n int) (time.Duration, error) { return ofTurn(s, n).callStamped("charge", arguments(n)) }
		case readDirect, readThrough:
			laps[i].run = func(n int) (time.Duration, error) { return ofTurn(s, n).call("get_charge", lookUp) }
		}
	}
	writers, err := b.bareWriters(ctx)
	if err != nil {
		return err
	}
	laps[bareWrites].run = func(n int) (time.Duration, error) { return bareEffect(ofTurn(writers, n), n) }
	if err := byTurns(ctx, laps[:], 4*b.duration); err != nil {
		return err
	}
	b.reportRoundTrips(&laps)
	for _, s := range slices.Concat(sessions[:]...) {
		err = errors.Join(err, s.close())
	}
	for _, w := range writers {
		err = errors.Join(err, w.Close())
	}
	return err
}

// ofTurn is who takes the turn in which the n-th call of a lap is made.
func ofTurn[T any](all []T, n int) T { return all[n/turn%len(all)] }

func (b *bench) bareWriters(ctx context.Context) (all []*barewriter.Writer, err error) {
	for i := range shares {
		w, err := barewriter.Open(ctx, filepath.Join(b.dir, fmt.Sprintf("roundtrips-bare-%d.db", i)))
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// sessions are those of all laps but the last.
func (b *bench) sessions() (all [bareWrites][]*session, err error) {
	relayed := func(writes bool) func(string) (*session, error) {
		return func(name string) (*session, error) { return b.relayed(name, writes) }
	}
	for i, open := range [bareWrites]func(string) (*session, error){
		readDirect: b.direct, readThrough: b.through, writeDirect: b.direct, writeStamped: b.direct, writeThrough: b.through,
		writeRelayed: relayed(false), writeDurable: relayed(true),
	} {
		for n := range shares {
			s, err := opened(open, fmt.Sprintf("roundtrips-%d-%d", i, n))
			if err != nil {
				return all, err
			}
			all[i] = append(all[i], s)
		}
	}
	return all, nil
}

// opened is a new session that has seen its server's tools and made a charge, ch_1, to be read.
func opened(open func(string) (*session, error), name string) (*session, error) {
	s, err := open(name)
	if err != nil {
		return nil, err
	}
	if _, err := s.request("tools/list", `{}`); err != nil {
		return nil, err
	}
	_, err = s.call("charge", arguments(1e9))
	return s, err
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

// turn is how many calls are made in a row.
const turn = 40

// byTurns takes laps in turn for a while, some calls each, and sorts their times. The first calls of a turn
// find cold caches, which the bare writer in this process never does; they are not measured.
func byTurns(ctx context.Context, laps []lap, d time.Duration) error {
	const cold = 10
	begun := time.Now()
	for n := 0; n == 0 || time.Since(begun) < d && ctx.Err() == nil; n += turn {
		for i := range laps {
			if err := laps[i].take(n, cold, turn); err != nil {
				return err
			}
		}
	}
	for i := range laps {
		slices.Sort(laps[i].times)
	}
	return nil
}

func (l *lap) take(n, cold, calls int) error {
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
	stamp := of(writeStamped) - of(writeDirect) // the tool's work, in its SDK and its ledger
	durable, bare := of(writeDurable)-of(writeRelayed), of(bareWrites)
	r := ratio(added, durable)
	b.table.add(row{"what the log adds to a call, 1 caller", micros(added), micros(durable) + " two durable writes", r, goal("≤ 1.5 ×", r <= 1.5)})
	b.table.add(row{"the same, less the tool's reading of the stamp", micros(added - stamp), micros(durable) + " two durable writes", ratio(added-stamp, durable), ""})
	b.table.add(row{"the same", micros(added), micros(bare) + " two, nothing else done", ratio(added, bare), ""})
}
