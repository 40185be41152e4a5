package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// LearnTool implements store.Driver. The first definition of a tool and every other one is kept; that it
// changed is noted as an event in the same transaction. A known definition writes nothing.
func (d *Driver) LearnTool(ctx context.Context, tool *store.Tool) (changed bool, err error) {
	if err := d.meet(ctx, tool.Tenant); err != nil {
		return false, fmt.Errorf("insert tenant %s: %w", tool.Tenant, err)
	}
	err = d.persist(ctx, func(ctx context.Context) error {
		for {
			done, c, err := d.learn(ctx, tool)
			if done || err != nil {
				changed = changed || c
				return err
			}
		}
	})
	return changed, err
}

// learn reports done when the definition is the newest, and not when another one was learned meanwhile.
func (d *Driver) learn(ctx context.Context, tool *store.Tool) (done, changed bool, err error) {
	name := toolHash(tool.Server, tool.Name)
	var version int32
	var was []byte
	err = asTenant(ctx, d.pool, tool.Tenant, statement{
		sql: `
			SELECT version, digest
			FROM undolog.tool
			WHERE tenant = $1 AND name_hash = $2
			ORDER BY version DESC
			LIMIT 1`,
		args: []any{text(tool.Tenant), name[:]},
		read: func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&version, &was); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if err != nil || version > 0 && effect.Digest(was) == tool.Digest {
		return true, false, err
	}
	done, err = d.insertTool(ctx, tool, version+1, was)
	return done, done && version > 0, err
}

// insertTool writes a version and what it changes; false when another one took its place.
func (d *Driver) insertTool(ctx context.Context, tool *store.Tool, version int32, was []byte) (inserted bool, err error) {
	id, err := newEventID()
	if err != nil {
		return false, err
	}
	name := toolHash(tool.Server, tool.Name)
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		inserted = false
		err := asTenant(ctx, tx, tool.Tenant, statement{
			sql: `
				INSERT INTO undolog.tool (tenant, name_hash, version, server, name, digest, definition, seen_at)
				VALUES ($1, $2, $3, $4, $5, $6, $7, COALESCE($8::timestamptz, $9::timestamptz, now()))
				ON CONFLICT DO NOTHING
				RETURNING true`,
			args: []any{
				text(tool.Tenant), name[:], version, text(tool.Server), text(tool.Name), tool.Digest[:], tool.Definition,
				timestamp(tool.SeenAt), d.clock.param(),
			},
			read: func(rows pgx.Rows) error {
				inserted = rows.Next()
				return nil
			},
		})
		if err != nil || !inserted || version == 1 {
			return err
		}
		return asTenant(ctx, tx, tool.Tenant, insertEvent(&effect.Event{
			Tenant: tool.Tenant, Kind: effect.EventToolChanged, Server: tool.Server, Tool: tool.Name,
			Detail: fmt.Appendf(nil, `{"was":%q,"is":%q}`, effect.Digest(was), tool.Digest),
		}, id, d.clock.param()))
	})
	return inserted, err
}

// toolHash names a tool by a key of fixed length.
func toolHash(server, name string) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(server), server, name))
}

// Tools implements store.Driver, in the order of their names.
func (d *Driver) Tools(ctx context.Context, tenant, server string) (tools []store.Tool, err error) {
	err = d.retry(ctx, func(ctx context.Context) error {
		return asTenant(ctx, d.pool, tenant, statement{
			sql: `
				SELECT DISTINCT ON (name COLLATE "C") name, digest, definition, seen_at
				FROM undolog.tool
				WHERE tenant = $1 AND server = $2
				ORDER BY name COLLATE "C", version DESC`,
			args: []any{text(tenant), text(server)},
			read: func(rows pgx.Rows) (err error) {
				tools, err = readTools(rows, tenant, server)
				return err
			},
		})
	})
	return tools, err
}

func readTools(rows pgx.Rows, tenant, server string) (tools []store.Tool, err error) {
	for rows.Next() {
		t := store.Tool{Tenant: tenant, Server: server}
		var digest []byte
		var seen time.Time
		if err := rows.Scan(&t.Name, &digest, &t.Definition, &seen); err != nil {
			return nil, err
		}
		t.Name, t.SeenAt = untext(t.Name), seen.UTC()
		copy(t.Digest[:], digest)
		tools = append(tools, t)
	}
	return tools, nil
}
