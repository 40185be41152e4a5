package webhook

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/undolog/undolog/store"
)

// maxPause is the longest pause between two tries.
const maxPause = 5 * time.Minute

// desk tells of one tenant's effects: in the order in which they change, and nothing before what comes first is
// told.
type desk struct {
	t       *Teller
	tenant  string
	watch   *store.Watcher
	ledger  *ledger
	queue   []store.Change
	failed  int       // tries in a row
	notNow  time.Time // until when the endpoint is left alone
	started bool
}

func (t *Teller) newDesk(tenant string) *desk {
	return &desk{t: t, tenant: tenant, watch: t.log.Watch(tenant), ledger: newLedger(t.log, tenant)}
}

// run looks and tells until ctx ends. It errs only when the endpoint is gone for good.
func (d *desk) run(ctx context.Context) error {
	tick := time.NewTicker(d.t.opts.LookEvery)
	defer tick.Stop()
	for {
		if err := d.round(ctx); errors.Is(err, errGone) {
			return err
		} else if err != nil && ctx.Err() == nil {
			d.t.opts.Logger.WarnContext(ctx, "webhook could not read the log", slog.String("tenant", d.tenant), slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (d *desk) round(ctx context.Context) error {
	if err := d.ledger.read(ctx); err != nil {
		return err
	}
	changes, err := d.watch.Look(ctx)
	if err != nil {
		return err
	}
	if !d.started {
		left, err := d.leftBehind(ctx, changes)
		if err != nil {
			return err
		}
		changes, d.started = append(left, changes...), true
	}
	d.queue = append(d.queue, slices.DeleteFunc(changes, func(c store.Change) bool { return !isTold(c.Kind) })...)
	defer d.owe()
	if time.Now().Before(d.notNow) {
		return nil
	}
	return d.tell(ctx)
}

// owe notes what could not be told yet, so that it is told although this process may end first.
func (d *desk) owe() {
	for i := range d.queue {
		if c := &d.queue[i]; c.Kind != store.ChangeEnded && !d.ledger.knows(c) {
			d.ledger.note(c, false)
		}
	}
}

// isTold says which changes are messages; an end is none, but closes the account of its effect.
func isTold(kind store.ChangeKind) bool {
	switch kind {
	case store.ChangeRequested, store.ChangeReminder, store.ChangeDecided, store.ChangeExpired, store.ChangeInDoubt, store.ChangeEnded:
		return true
	}
	return false
}

// leftBehind finds what has become of effects of which others have told, or wanted to, and that wait no more.
func (d *desk) leftBehind(ctx context.Context, first []store.Change) ([]store.Change, error) {
	waiting := map[string]bool{}
	for _, c := range first {
		waiting[c.Record.ID] = true
	}
	var left []store.Change
	for _, id := range d.ledger.open() {
		if waiting[id] {
			continue
		}
		shown, err := d.t.log.Show(ctx, d.tenant, id)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		now := d.t.log.Now()
		left = append(left, store.Changes(shown.Record, now)...)
		left = append(left, store.Ended(shown.Record, now))
	}
	return left, nil
}

// tell sends what is in the queue until a message is not taken.
func (d *desk) tell(ctx context.Context) error {
	for len(d.queue) > 0 && ctx.Err() == nil {
		c := &d.queue[0]
		if c.Kind == store.ChangeEnded {
			d.ledger.close(c)
		} else if !d.ledger.has(c) {
			if err := d.sendOne(ctx, c); err != nil {
				return err
			}
			if d.failed > 0 {
				return nil
			}
		}
		d.queue = d.queue[1:]
	}
	return nil
}

// sendOne sends a message, or says when it is to be tried again.
func (d *desk) sendOne(ctx context.Context, c *store.Change) error {
	err := d.t.send(ctx, c)
	switch {
	case err == nil:
		d.failed = 0
		d.ledger.note(c, true)
		return nil
	case errors.Is(err, errGone):
		return err
	case ctx.Err() != nil: // perhaps it was taken: it is told again
		d.failed++
		return nil
	}
	pause := d.pause(err)
	d.failed++
	d.notNow = time.Now().Add(pause)
	d.t.opts.Logger.WarnContext(ctx, "webhook message not taken", slog.String("type", string(c.Kind)), slog.String("effect", c.Record.ID),
		slog.Duration("again_in", pause), slog.Any("error", err))
	return nil
}

// pause is how long the endpoint is left alone after a failure: twice as long each time, and not for all who
// tell the same.
func (d *desk) pause(err error) time.Duration {
	pause := min(d.t.opts.RetryAfter<<min(d.failed, 20), maxPause)
	pause += time.Duration(rand.Int64N(int64(pause)/4 + 1))
	var refused *refusedError
	if errors.As(err, &refused) {
		pause = max(pause, refused.after)
	}
	return pause
}
