package postgres

import (
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// tolerance is how far the database's clock may seem to be off before it is believed to have moved. What
// depends on the time here is measured in seconds.
const tolerance = 50 * time.Millisecond

// clock is the database's, told from this process's monotonic clock, so that nobody's wall clock matters
// and every time of this process has one time in the log.
type clock struct {
	fixed  func() time.Time // Options.Now, in place of the database's
	anchor atomic.Pointer[anchor]
}

// anchor is one moment on both clocks.
type anchor struct{ local, database time.Time }

// now is the time of records.
func (c *clock) now() time.Time {
	if c.fixed != nil {
		return c.fixed().UTC().Truncate(time.Microsecond)
	}
	return c.at(time.Now())
}

// at is when, by the log's clock, this process's clock showed a time.
func (c *clock) at(local time.Time) time.Time {
	a := c.anchor.Load()
	if c.fixed != nil || a == nil {
		return local
	}
	return a.database.Add(local.Sub(a.local)).Truncate(time.Microsecond)
}

// observe is told what the database's clock showed between two moments of ours.
func (c *clock) observe(sent, received, database time.Time) {
	early, late := c.at(sent).Add(-tolerance), c.at(received).Add(tolerance)
	if c.anchor.Load() != nil && !database.Before(early) && !database.After(late) {
		return
	}
	c.anchor.Store(&anchor{local: sent.Add(received.Sub(sent) / 2), database: database.UTC()})
}

// param is the time as statements take it: NULL where the database's own is meant.
func (c *clock) param() pgtype.Timestamptz {
	if c.fixed == nil {
		return pgtype.Timestamptz{}
	}
	return timestamp(c.now())
}

// timestamp is a time that may be absent.
func timestamp(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

func fromTimestamp(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// micros is how long something lasts; NULL: for ever.
func micros(d time.Duration) pgtype.Int8 {
	return pgtype.Int8{Int64: d.Microseconds(), Valid: d > 0}
}
