package postgres

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/undolog/undolog/effect"
)

// orphans are claims that Begins may have made without being told, and that ended with an error or another verdict.
// Their callers dispatch nothing, so that they are released when the database is back, and hold nobody up until their
// time is over.
type orphans struct {
	driver *Driver

	mu      sync.Mutex
	closed  bool
	looking sync.WaitGroup
	life    context.Context // ends when the driver closes
	end     context.CancelFunc
}

func (o *orphans) init(d *Driver) {
	o.driver = d
	o.life, o.end = context.WithCancel(context.Background())
}

// close gives up those that were not found yet: like any claim of a process that is gone they are in doubt.
func (o *orphans) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.end()
	o.looking.Wait()
}

// add has the claim looked for that the Begin has tried last.
func (o *orphans) add(b *begin) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.looking.Go(func() { o.release(b) })
	}
}

// looks is how often a claim is looked for in a database that answers: what was sent to it may be done later.
const looks = 8

func (o *orphans) release(b *begin) {
	pause := 250 * time.Millisecond
	var failed error
	for left := looks; left > 0; pause = min(2*pause, 8*time.Second) {
		if !o.wait(pause) {
			return
		}
		released, err := o.releaseOnce(b)
		switch {
		case released:
			o.driver.logger.InfoContext(o.life, "claim of a call that was given up released", slog.String("effect", b.tried))
			return
		case isRefusal(err): // somebody has moved it
			return
		case err == nil || !isPassing(err):
			failed = err
			left--
		}
	}
	if failed != nil {
		o.driver.logger.WarnContext(o.life, "claim of a call that was given up not released", slog.String("effect", b.tried), slog.Any("error", failed))
	}
}

// wait reports false when the driver closes meanwhile.
func (o *orphans) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-o.life.Done():
		return false
	}
}

func (o *orphans) releaseOnce(b *begin) (released bool, err error) {
	ctx, cancel := context.WithTimeout(o.life, o.driver.patience/3)
	defer cancel()
	id, _ := parseID(b.tried)
	f := &facts{}
	err = asTenant(ctx, o.driver.pool, b.p.Tenant(), statement{sql: selectRecord + ` WHERE e.id = $1`, args: []any{id}, read: readRecord(&f.latest)})
	if f.Latest = f.latest.Record; err != nil || !f.isOwn(b) {
		return false, err
	}
	_, err = o.driver.Append(ctx, b.p.Tenant(), &effect.Transition{
		Effect: b.tried, Ordinal: f.Latest.Ordinal + 1, Attempt: f.Latest.Attempt, State: effect.StateReleased, Owner: b.p.Owner,
		Reason: "the log did not say that the call was claimed: it was not sent",
	})
	return err == nil, err
}
