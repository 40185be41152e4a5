package sqlite

import (
	"context"
	"fmt"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Write implements store.Driver.
func (d *Driver) Write(ctx context.Context, n *store.Notes) error {
	return d.writer.do(ctx, func(t *tx) error { return t.write(n) })
}

func (t *tx) write(n *store.Notes) error {
	for _, r := range n.Reads {
		if err := t.insertRead(r); err != nil {
			return err
		}
	}
	if err := t.deliver(n.Deliveries); err != nil {
		return err
	}
	for i := range n.Events {
		if err := t.insertEvent(&n.Events[i]); err != nil {
			return err
		}
	}
	return nil
}

// insertRead records a finished call that matches nothing: no signature, and no claim while it ran. Its
// caller's record is not written to.
func (t *tx) insertRead(read *effect.Record) error {
	r := *read
	r.Signature, r.Generation, r.Attempt, r.Ordinal = effect.Signature{}, 1, 1, 1
	r.Arguments = store.OrEmptyObject(r.Arguments)
	if err := t.insertEffect(&r); err != nil {
		return err
	}
	if _, err := t.insertTransition(&r, false, r.Answer); err != nil {
		return fmt.Errorf("insert transition of read %s: %w", r.ID, err)
	}
	return nil
}

// withdraw removes a delivery that was none; another of the same effect stays.
func (t *tx) withdraw(d *store.Delivery) error {
	_, err := t.exec(`
		DELETE FROM delivery
		WHERE effect = (SELECT seq FROM effect WHERE tenant = ? AND id = ?)
		  AND at = ?`,
		d.Tenant, d.Effect, micros(d.At))
	if err != nil {
		return fmt.Errorf("delete delivery of effect %s: %w", d.Effect, err)
	}
	return nil
}

// deliver notes answers that arrived, once for each answer: a replay that is delivered as well writes
// nothing. Effects that the tenant does not have are left out.
func (t *tx) deliver(deliveries []store.Delivery) error {
	for _, d := range deliveries {
		if d.Withdrawn {
			if err := t.withdraw(&d); err != nil {
				return err
			}
			continue
		}
		_, err := t.exec(`
			INSERT INTO delivery (effect, at)
			SELECT e.seq, ?1
			FROM effect e
			LEFT JOIN delivery d ON d.effect = e.seq
			WHERE e.tenant = ?2 AND e.id = ?3
			  AND COALESCE(d.at < (SELECT MAX(at) FROM transition WHERE effect = e.seq), d.at IS NULL)
			ON CONFLICT (effect) DO UPDATE SET at = excluded.at WHERE excluded.at > at`,
			micros(d.At), d.Tenant, d.Effect)
		if err != nil {
			return fmt.Errorf("insert delivery of effect %s: %w", d.Effect, err)
		}
	}
	return nil
}

func (t *tx) insertEvent(ev *effect.Event) error {
	at := ev.At
	if at.IsZero() {
		at = t.now
	}
	_, err := t.exec(`
		INSERT INTO event (at, tenant, effect, kind, principal, server, tool, detail)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		micros(at), ev.Tenant, ev.Effect, ev.Kind, ev.Principal, ev.Server, ev.Tool, []byte(ev.Detail))
	if err != nil {
		return fmt.Errorf("insert event %s: %w", ev.Kind, err)
	}
	return nil
}

// Again implements store.Driver. Only a settled effect can be allowed to run once more: what is open is
// settled by its owner or a person first, and what failed runs again by itself.
func (d *Driver) Again(ctx context.Context, ev *effect.Event) error {
	return d.writer.do(ctx, func(t *tx) error {
		r, err := record(t, ev.Tenant, ev.Effect)
		if err != nil {
			return err
		}
		if r.State.IsOpen() || r.Tier == effect.TierRead {
			return &store.ConflictError{ID: r.ID, Want: effect.StateClaimed, Record: r}
		}
		granted := *ev
		granted.Kind, granted.Server, granted.Tool = effect.EventAgain, r.Server, r.Tool
		return t.insertEvent(&granted)
	})
}
