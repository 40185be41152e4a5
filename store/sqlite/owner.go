package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Beat implements store.Driver.
func (d *Driver) Beat(ctx context.Context, owner string, ttl time.Duration) error {
	return d.writer.do(ctx, func(t *tx) error { return t.beat(owner, ttl) })
}

// End implements store.Driver.
func (d *Driver) End(ctx context.Context, owner string) error {
	return d.writer.do(ctx, func(t *tx) error {
		_, err := t.exec(`DELETE FROM owner WHERE id = ?`, owner)
		t.learned = append(t.learned, func() { delete(t.writer.known.beats, owner) })
		return err
	})
}

// beatWhenDue keeps the owner of a claim alive for at least two thirds of its TTL: on most claims the
// last beat is young enough and nothing is written. A fixed lease needs no heart.
func (t *tx) beatWhenDue(p *store.Begin, r *effect.Record) error {
	if !r.LeaseUntil.IsZero() {
		return nil
	}
	until, err := t.beatUntil(p.Owner)
	if err != nil {
		return err
	}
	if until.Sub(t.now) < p.TTL*2/3 {
		if err := t.beat(p.Owner, p.TTL); err != nil {
			return err
		}
		until = t.now.Add(p.TTL)
	}
	r.OwnerUntil = until
	return nil
}

func (t *tx) beatUntil(owner string) (time.Time, error) {
	if until, ok := t.writer.known.beats[owner]; ok {
		return until, nil
	}
	until, err := number(t, `SELECT until FROM owner WHERE id = ?`, owner)
	if err != nil {
		return time.Time{}, fmt.Errorf("read heartbeat of %s: %w", owner, err)
	}
	return fromMicros(until), nil
}

// beat also forgets owners that ended long ago without saying so: no row means the same as an old one.
func (t *tx) beat(owner string, ttl time.Duration) error {
	_, err := t.exec(`
		INSERT INTO owner (id, until)
		VALUES (?, ?)
		ON CONFLICT (id) DO UPDATE SET until = excluded.until`, owner, micros(t.now.Add(ttl)))
	if err != nil {
		return fmt.Errorf("beat for %s: %w", owner, err)
	}
	t.rememberBeat(owner, t.now.Add(ttl))
	_, err = t.exec(`DELETE FROM owner WHERE until < ?`, micros(t.now.Add(-24*time.Hour)))
	return err
}
