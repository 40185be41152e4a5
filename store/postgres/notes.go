package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Write implements store.Driver, in one transaction where a server takes that much. Everything in a transaction has an id
// of its own or comes to the same when it is written twice, so that a commit that was not answered is simply tried again.
func (d *Driver) Write(ctx context.Context, n *store.Notes) error {
	for _, part := range divide(n) {
		if err := d.write(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// divide makes parts of no more than a group carries. Events come last: of what is left, those of a part that was
// written would be written twice by who tries again.
func divide(n *store.Notes) (parts []*store.Notes) {
	part, carried := &store.Notes{}, 0
	add := func(size int) *store.Notes {
		if carried > 0 && carried+size > maxGroupBytes {
			parts = append(parts, part)
			part, carried = &store.Notes{}, 0
		}
		carried += size
		return part
	}
	for _, r := range n.Reads {
		to := add(len(r.Arguments) + len(r.Answer.Body))
		to.Reads = append(to.Reads, r)
	}
	part.Deliveries = n.Deliveries
	for _, ev := range n.Events {
		to := add(len(ev.Detail))
		to.Events = append(to.Events, ev)
	}
	return append(parts, part)
}

func (d *Driver) write(ctx context.Context, n *store.Notes) error {
	byTenant := map[string]*notes{}
	if err := sortNotes(n, byTenant); err != nil {
		return err
	}
	tenants := slices.Sorted(maps.Keys(byTenant))
	for _, tenant := range tenants {
		if err := d.meet(ctx, tenant); err != nil {
			return fmt.Errorf("insert tenant %s: %w", tenant, err)
		}
	}
	return d.persist(ctx, func(ctx context.Context) error {
		var statements []statement
		place := 0
		for _, tenant := range tenants {
			statements = append(statements, d.setTenant(tenant))
			statements = append(statements, byTenant[tenant].statements(d, tenant, &place)...)
		}
		return d.exchange(ctx, false, statements...)
	})
}

// notes are one tenant's.
type notes struct {
	reads      []*effectRow
	deliveries []store.Delivery
	events     []effect.Event
	ids        []eventID // of events
}

func sortNotes(n *store.Notes, byTenant map[string]*notes) error {
	of := func(tenant string) *notes {
		if byTenant[tenant] == nil {
			byTenant[tenant] = &notes{}
		}
		return byTenant[tenant]
	}
	for _, r := range n.Reads {
		row, err := readRow(r)
		if err != nil {
			return err
		}
		of(r.Tenant).reads = append(of(r.Tenant).reads, row)
	}
	for _, d := range n.Deliveries {
		of(d.Tenant).deliveries = append(of(d.Tenant).deliveries, d)
	}
	for _, ev := range n.Events {
		id, err := newEventID()
		if err != nil {
			return err
		}
		of(ev.Tenant).events = append(of(ev.Tenant).events, ev)
		of(ev.Tenant).ids = append(of(ev.Tenant).ids, id)
	}
	return nil
}

// readRow is a finished call that matches nothing: no signature, and no claim while it ran. Its caller's
// record is not written to.
func readRow(read *effect.Record) (*effectRow, error) {
	id, ok := parseID(read.ID)
	if !ok {
		return nil, fmt.Errorf("%q is no UUID", read.ID)
	}
	r := *read
	r.Signature, r.Generation, r.Attempt, r.Ordinal = effect.Signature{}, 1, 1, 1
	r.Arguments = store.OrEmptyObject(r.Arguments)
	return &effectRow{id: id.Bytes, record: &r, at: r.CreatedAt, sure: true}, nil
}

// statements are those of one tenant. Places are of the transaction: everything in it has one order.
func (n *notes) statements(d *Driver, tenant string, place *int) (all []statement) {
	now := d.clock.param()
	if len(n.reads) > 0 {
		effects, moves := newRows(newEffect), newRows(newMove)
		for _, r := range n.reads {
			effects.add(r.values(*place))
			moves.add((&moveRow{id: r.id, move: finished(r.record)}).values())
			*place++
		}
		all = append(all, d.insertAll(effects, tenant, now, func(uuid.UUID, int64, time.Time) {}),
			d.moveAll(moves, tenant, now, func(moveKey, time.Time) {}))
	}
	all = append(all, deliver(n.deliveries)...)
	var events eventRows
	for i := range n.events {
		events.add(&n.events[i], n.ids[i], *place)
		*place++
	}
	if len(n.events) > 0 {
		all = append(all, events.insert(tenant, now))
	}
	return all
}

// finished is the move that ends a read.
func finished(r *effect.Record) *effect.Transition {
	return &effect.Transition{
		Ordinal: r.Ordinal, Attempt: r.Attempt, State: r.State, At: r.ChangedAt, Owner: r.Owner,
		By: r.By, Reason: r.Reason, Answer: r.Answer, Continuation: r.Continuation,
	}
}

// deliver notes answers that arrived, once for each answer: a replay that is delivered as well writes
// nothing. Withdrawals stand between; effects that the tenant does not have are left out.
func deliver(all []store.Delivery) (statements []statement) {
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(d store.Delivery) bool { return d.Withdrawn != all[0].Withdrawn })
		if n < 0 {
			n = len(all)
		}
		sql := insertDeliveries
		if all[0].Withdrawn {
			sql = deleteDeliveries
		}
		if ids, ats := deliveryColumns(all[:n]); len(ids) > 0 {
			statements = append(statements, statement{sql: sql, args: []any{ids, ats}})
		}
		all = all[n:]
	}
	return statements
}

func deliveryColumns(all []store.Delivery) (ids []pgtype.UUID, ats []pgtype.Timestamptz) {
	for _, d := range all {
		if id, ok := parseID(d.Effect); ok {
			ids = append(ids, id)
			ats = append(ats, timestamp(d.At))
		}
	}
	return ids, ats
}

const (
	// Of the times told of one effect the first that is not before its last move counts, else the latest.
	insertDeliveries = `
	INSERT INTO undolog.delivery (effect, tenant, at)
	SELECT e.id, e.tenant, COALESCE((array_agg(n.at ORDER BY n.place) FILTER (WHERE n.at >= m.at))[1], MAX(n.at))
	FROM unnest($1::uuid[], $2::timestamptz[]) WITH ORDINALITY AS n(effect, at, place)
	JOIN undolog.effect e ON e.id = n.effect
	CROSS JOIN LATERAL (
	  SELECT COALESCE(MAX(t.at), '-infinity') AS at FROM undolog.transition t WHERE t.effect = e.id) m
	LEFT JOIN undolog.delivery d ON d.effect = e.id
	WHERE d.at IS NULL OR d.at < m.at
	GROUP BY e.id, e.tenant
	ORDER BY e.id
	ON CONFLICT (effect) DO UPDATE SET at = excluded.at WHERE excluded.at > delivery.at`
	deleteDeliveries = `
	DELETE FROM undolog.delivery d
	USING unnest($1::uuid[], $2::timestamptz[]) AS n(effect, at)
	WHERE d.effect = n.effect AND d.at = n.at`
)

// Again implements store.Driver. Only a settled effect can be allowed to run once more: what is open is
// settled by its owner or a person first, and what failed runs again by itself.
func (d *Driver) Again(ctx context.Context, ev *effect.Event) error {
	id, err := newEventID()
	if err != nil {
		return err
	}
	return d.persist(ctx, func(ctx context.Context) error {
		r, err := d.record(ctx, ev.Tenant, ev.Effect)
		if err != nil {
			return err
		}
		if r.State.IsOpen() || r.Tier == effect.TierRead {
			return &store.ConflictError{ID: r.ID, Want: effect.StateClaimed, Record: r}
		}
		granted := *ev
		granted.Effect, granted.Kind, granted.Server, granted.Tool = r.ID, effect.EventAgain, r.Server, r.Tool
		return asTenant(ctx, d.pool, ev.Tenant, insertEvent(&granted, id, d.clock.param()))
	})
}
