package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
)

// eventID makes an event one however often it is written; used is the grant that it uses up.
type eventID struct{ id, used pgtype.UUID }

func newEventID() (eventID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return eventID{}, fmt.Errorf("name event: %w", err)
	}
	return eventID{id: pgtype.UUID{Bytes: id, Valid: true}}, nil
}

// eventRows are the columns of many events of one tenant.
type eventRows struct {
	ids, used                                  []pgtype.UUID
	places                                     []int64
	ats                                        []pgtype.Timestamptz
	effects, kinds, principals, servers, tools []string
	details                                    [][]byte
}

func (c *eventRows) add(ev *effect.Event, id eventID, place int) {
	c.ids = append(c.ids, id.id)
	c.used = append(c.used, id.used)
	c.places = append(c.places, int64(place))
	c.ats = append(c.ats, timestamp(ev.At))
	c.effects = append(c.effects, text(ev.Effect))
	c.kinds = append(c.kinds, text(ev.Kind))
	c.principals = append(c.principals, text(ev.Principal))
	c.servers = append(c.servers, text(ev.Server))
	c.tools = append(c.tools, text(ev.Tool))
	c.details = append(c.details, ev.Detail)
}

// Of an event that is written twice the second is left out; a grant that is used twice is an error.
func (c *eventRows) insert(tenant string, now pgtype.Timestamptz) statement {
	return statement{
		sql: `
			INSERT INTO undolog.event (id, seq, at, used, tenant, effect, kind, principal, server, tool, detail)
			SELECT n.id, (pg_current_xact_id()::text::bigint << 16) + n.place, COALESCE(n.at, $2::timestamptz, now()), n.used, $1::text,
			       n.effect, n.kind, n.principal, n.server, n.tool, n.detail
			FROM unnest($3::uuid[], $4::bigint[], $5::timestamptz[], $6::uuid[], $7::text[], $8::text[], $9::text[],
			            $10::text[], $11::text[], $12::bytea[])
			  AS n(id, place, at, used, effect, kind, principal, server, tool, detail)
			ON CONFLICT (id) DO NOTHING`,
		args: []any{
			text(tenant), now, c.ids, c.places, c.ats, c.used, c.effects, c.kinds, c.principals, c.servers, c.tools, c.details,
		},
	}
}

// insertEvent writes one event.
func insertEvent(ev *effect.Event, id eventID, now pgtype.Timestamptz) statement {
	var rows eventRows
	rows.add(ev, id, 0)
	return rows.insert(ev.Tenant, now)
}

const selectEvent = `
	SELECT seq, at, tenant, effect, kind, principal, server, tool, detail
	FROM undolog.event`

// Events implements store.Driver. It reads only what no transaction that is still under way could precede,
// so that who goes on after the last one misses none. Deliveries are not among them: they are in the
// history of their effect.
func (d *Driver) Events(ctx context.Context, tenant string, after int64, limit int) (events []effect.Event, err error) {
	err = d.retry(ctx, func(ctx context.Context) error {
		return asTenant(ctx, d.pool, tenant, statement{
			sql: selectEvent + `
				WHERE tenant = $1 AND seq > $2 AND seq < ` + settledSeq + `
				ORDER BY seq
				LIMIT $3`,
			args: []any{text(tenant), after, cmp.Or(max(limit, 0), 100)},
			read: readEvents(&events),
		})
	})
	return events, err
}

// LastEvents implements store.Driver.
func (d *Driver) LastEvents(ctx context.Context, tenant string, before int64, limit int) (events []effect.Event, err error) {
	err = d.retry(ctx, func(ctx context.Context) error {
		return asTenant(ctx, d.pool, tenant, inOrder, statement{
			sql: selectEvent + `
				WHERE tenant = $1 AND seq < $2
				ORDER BY seq DESC
				LIMIT $3`,
			args: []any{text(tenant), cmp.Or(max(before, 0), math.MaxInt64), cmp.Or(max(limit, 0), 100)},
			read: readEvents(&events),
		})
	})
	return events, err
}

// settledSeq is below what every transaction under way will write.
const settledSeq = `(pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 16)`

func readEvents(into *[]effect.Event) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*into = nil
		for rows.Next() {
			var ev effect.Event
			err := rows.Scan(&ev.Seq, &ev.At, &ev.Tenant, &ev.Effect, &ev.Kind, &ev.Principal, &ev.Server, &ev.Tool, (*[]byte)(&ev.Detail))
			if err != nil {
				return err
			}
			ev.At = ev.At.UTC()
			for _, s := range []*string{&ev.Tenant, &ev.Effect, &ev.Kind, &ev.Principal, &ev.Server, &ev.Tool} {
				*s = untext(*s)
			}
			*into = append(*into, ev)
		}
		return nil
	}
}
