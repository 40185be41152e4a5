package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
)

// skewed is a driver in a process whose clock is off: its own times are that much earlier.
type skewed struct {
	*postgres.Driver
	by time.Duration
}

func (s skewed) LogTime(local time.Time) time.Time { return s.Driver.LogTime(local.Add(s.by)) }

// Whatever a process's clock says, what it says of the log is by the database's: LogTime is the only way
// from the one to the other.
func TestClock_IsTheDatabases(t *testing.T) {
	db := migrated.New(t)
	d := open(t, db.URL, nil)
	conn := connect(t, db.URL)
	var now time.Time
	early := d.LogTime(time.Now())
	if err := conn.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
		t.Fatal(err)
	}
	late := d.LogTime(time.Now())
	if now.Before(early.Add(-time.Second)) || now.After(late.Add(time.Second)) {
		t.Errorf("the database's time is %v, and the log says it is between %v and %v", now, early, late)
	}
	at := time.Now()
	if first, again := d.LogTime(at), d.LogTime(at); !first.Equal(again) {
		t.Errorf("one moment is %v and %v", first, again)
	}
}

func TestClock_LeasesAndDeliveriesFollowTheLogs(t *testing.T) {
	db := migrated.New(t)
	const by = 42 * time.Minute
	l, err := store.Open(skewed{open(t, db.URL, nil), by}, &store.Options{FlushEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	wall := time.Now().Add(-by) // what this process's clock shows
	if off := time.Until(l.Now()) - by; off > time.Minute || off < -time.Minute {
		t.Fatalf("the log's time is off by %v", off)
	}
	p := beginParams(t, 0, 1)[0]
	begun, err := l.Begin(t.Context(), p)
	if err != nil || begun.Claim == nil {
		t.Fatalf("Begin = %+v, %v", begun, err)
	}
	r, err := l.Settle(t.Context(), *begun.Claim, irreversible, answer)
	if err != nil {
		t.Fatal(err)
	}
	// The answer arrived a minute after the call was settled, by this process's clock.
	l.Delivered(r.Tenant, r.ID, wall.Add(time.Minute))
	again, err := l.Begin(t.Context(), p)
	if err != nil || again.Verdict.Action != effect.ActInsert {
		t.Errorf("Begin after a delivery = %+v, %v", again.Verdict, err)
	}
}

func TestWait_SeesALeaseEndByTheDatabasesClock(t *testing.T) {
	d := open(t, migrated.New(t).URL, nil)
	l, err := store.Open(d, &store.Options{TTL: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := keyed(t, "default", "k")
	p.TTL = 200 * time.Millisecond
	claim := claimed(t, d, p) // by an owner that beats no more
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := l.Wait(ctx, "default", claim.Effect)
	if err != nil || r.StateAt(l.Now()) != effect.StateInDoubt {
		t.Errorf("Wait = %+v, %v", r, err)
	}
}
