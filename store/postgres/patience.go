package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/undolog/undolog/store"
)

// persist runs a write until the database says what became of it, however long its caller waits: after
// the first try it can have been done without our knowing, and the next ones find out. So a write MUST be
// one that finds its own when it is run again. It gives up with store.ErrUnreachable.
func (d *Driver) persist(ctx context.Context, write func(context.Context) error) error {
	return d.persistFor(ctx, d.patience, write)
}

// persistFor is persist with what is left of patience.
func (d *Driver) persistFor(ctx context.Context, patience time.Duration, write func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err // nothing was sent
	}
	return d.retryFor(context.WithoutCancel(ctx), patience, write)
}

// retry runs what can be run again until the database answers, the caller's context ends, or patience does.
func (d *Driver) retry(caller context.Context, run func(context.Context) error) error {
	return d.retryFor(caller, d.patience, run)
}

func (d *Driver) retryFor(caller context.Context, patience time.Duration, run func(context.Context) error) error {
	deadline := time.Now().Add(patience)
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		if d.closed.Load() {
			return store.ErrClosed
		}
		err := d.try(caller, deadline, run)
		switch {
		case err == nil:
			return nil
		case caller.Err() != nil:
			return caller.Err()
		case !isPassing(err):
			return explain(err)
		}
		d.known.endBeats() // a server that has ended may have lost those that it had not flushed
		d.learnMode(err)
		sleep(caller, min(pause/2+rand.N(pause), time.Until(deadline)))
		if caller.Err() != nil || !time.Now().Before(deadline) {
			return cmp.Or(caller.Err(), fmt.Errorf("%w: %w", store.ErrUnreachable, err))
		}
	}
}

// try bounds one attempt, so that a database that has gone silent leaves time for others.
func (d *Driver) try(ctx context.Context, deadline time.Time, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, min(d.patience/3, time.Until(deadline)))
	defer cancel()
	return run(ctx)
}

// sleep ends early when the context does.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
