package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/undolog/undolog/internal/pgcluster"
)

// way is one way of doing the work.
type way struct {
	name string
	open openWorker
}

// openWorker makes what does the work, in a database that is new.
type openWorker func(ctx context.Context, db *pgcluster.Database, callers int) (worker, error)

// worker does the work for one turn, in a database that is new. Its connections are closed with it.
type worker interface {
	work(ctx context.Context, callers int, d time.Duration) (*tally, error)
	close() error
}

// tally is what a turn, or several together, came to.
type tally struct {
	done   int
	took   time.Duration
	cpu    time.Duration // of the clients
	times  map[string][]time.Duration
	warmup int    // done besides, before the time was taken
	used   sample // for all that was done
}

// whole is the name of the times of a whole piece of work.
const whole = ""

func (t *tally) add(turn *tally) {
	t.done += turn.done
	t.took += turn.took
	t.cpu += turn.cpu
	t.warmup += turn.warmup
	t.used.syncs += turn.used.syncs
	t.used.wal += turn.used.wal
	t.used.cpu += turn.used.cpu
	if t.times == nil {
		t.times = map[string][]time.Duration{}
	}
	for name, times := range turn.times {
		t.times[name] = append(t.times[name], times...)
	}
}

func (t *tally) rate() float64 { return float64(t.done) / t.took.Seconds() }

// quantile is the time below which q of all are; 0 when none were taken.
func (t *tally) quantile(name string, q float64) time.Duration {
	times := t.times[name]
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[int(math.Ceil(q*float64(len(times))))-1]
}

// byTurns gives each way its turns, one after another, and returns the tally of each.
func (b *bench) byTurns(ctx context.Context, ways []way, callers int) ([]*tally, error) {
	tallies := make([]*tally, len(ways))
	for round := range b.rounds {
		for i, w := range ways {
			fmt.Fprintf(os.Stderr, "callers %d, round %d: %s\n", callers, round+1, w.name)
			turn, err := b.turn(ctx, w, callers)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			if tallies[i] == nil {
				tallies[i] = &tally{}
			}
			tallies[i].add(turn)
		}
	}
	return tallies, nil
}

// turn gives a way a database, which nobody else has to look after when it is over.
func (b *bench) turn(ctx context.Context, w way, callers int) (t *tally, err error) {
	db, err := pgcluster.CreateDatabase(ctx, b.cluster.URL())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Drop(context.WithoutCancel(ctx), b.cluster.URL())) }()
	return b.measure(ctx, w, db, callers)
}

func (b *bench) measure(ctx context.Context, w way, db *pgcluster.Database, callers int) (*tally, error) {
	worker, err := w.open(ctx, db, callers)
	if err != nil {
		return nil, err
	}
	before, err := b.quiet(ctx)
	if err != nil {
		return nil, errors.Join(err, worker.close())
	}
	t, err := worker.work(ctx, callers, b.duration)
	if err := errors.Join(err, worker.close(), ctx.Err()); err != nil {
		return nil, err
	}
	after, err := b.sample(ctx)
	t.used = after.since(before)
	return t, err
}

// piece is the i-th piece of work; it notes its times.
type piece func(ctx context.Context, i int, times *stopwatch) error

// stopwatch takes one caller's times.
type stopwatch struct{ times map[string][]time.Duration }

func (s *stopwatch) since(name string, begun time.Time) {
	s.times[name] = append(s.times[name], time.Since(begun))
}

// forAWhile does as much as takes about as long as d. The work is prepared beforehand, and a first, smaller
// part of it, by which its extent is estimated and connections are made, is not counted.
func forAWhile(ctx context.Context, callers int, d time.Duration, prepare func(n int) error, do piece) (*tally, error) {
	n, warmup := 8*callers, 0
	for _, part := range []time.Duration{d / 5, d} {
		t, err := prepared(ctx, n, callers, prepare, do)
		if err != nil {
			return nil, err
		}
		warmup += n
		n = max(callers, int(t.rate()*part.Seconds()))
	}
	t, err := prepared(ctx, n, callers, prepare, do)
	if err != nil {
		return nil, err
	}
	t.warmup = warmup
	return t, nil
}

// nothing is to be prepared for some work.
func nothing(int) error { return nil }

func prepared(ctx context.Context, n, callers int, prepare func(n int) error, do piece) (*tally, error) {
	if err := prepare(n); err != nil {
		return nil, err
	}
	return share(ctx, n, callers, do)
}

// share does n pieces of work among callers.
func share(ctx context.Context, n, callers int, do piece) (*tally, error) {
	var next atomic.Int64
	var failed atomic.Bool
	watches := make([]stopwatch, callers)
	errs := make([]error, callers)
	var running sync.WaitGroup
	cpu, begun := ownCPU(), time.Now()
	for c := range callers {
		watches[c].times = map[string][]time.Duration{}
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !failed.Load(); i = int(next.Add(1)) - 1 {
				started := time.Now()
				if errs[c] = do(ctx, i, &watches[c]); errs[c] != nil {
					failed.Store(true)
					return
				}
				watches[c].since(whole, started)
			}
		})
	}
	running.Wait()
	t := &tally{done: n, took: time.Since(begun), cpu: ownCPU() - cpu}
	for _, w := range watches {
		t.add(&tally{times: w.times})
	}
	return t, errors.Join(errs...)
}

// ownCPU is what this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot fail for oneself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
