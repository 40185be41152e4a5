package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// LearnTool implements store.Driver. The first definition of a tool and every other one is kept; that
// it changed is noted as an event in the same transaction. A known definition writes nothing.
func (d *Driver) LearnTool(ctx context.Context, tool *store.Tool) (changed bool, err error) {
	err = d.writer.do(ctx, func(t *tx) (err error) {
		changed, err = t.learn(tool)
		return err
	})
	return changed, err
}

func (t *tx) learn(tool *store.Tool) (changed bool, err error) {
	known, err := tools(t, selectTool+`
		WHERE tenant = ? AND server = ? AND name = ?
		ORDER BY seq DESC
		LIMIT 1`, tool.Tenant, tool.Server, tool.Name)
	if err != nil || len(known) > 0 && known[0].Digest == tool.Digest {
		return false, err
	}
	seen := tool.SeenAt
	if seen.IsZero() {
		seen = t.now
	}
	_, err = t.exec(`
		INSERT INTO tool (tenant, server, name, digest, definition, seen_at)
		VALUES (?, ?, ?, ?, ?, ?)`,
		tool.Tenant, tool.Server, tool.Name, tool.Digest[:], tool.Definition, micros(seen))
	if err != nil || len(known) == 0 {
		return false, err
	}
	return true, t.insertEvent(&effect.Event{
		At: t.now, Tenant: tool.Tenant, Kind: effect.EventToolChanged, Server: tool.Server, Tool: tool.Name,
		Detail: fmt.Appendf(nil, `{"was":%q,"is":%q}`, known[0].Digest, tool.Digest),
	})
}

// Tools implements store.Driver, in the order of their names.
func (d *Driver) Tools(ctx context.Context, tenant, server string) ([]store.Tool, error) {
	return tools(snapshot{ctx, d.readers}, selectTool+`
		WHERE seq IN (SELECT MAX(seq) FROM tool WHERE tenant = ? AND server = ? GROUP BY name)
		ORDER BY name`, tenant, server)
}

const selectTool = `
	SELECT tenant, server, name, digest, definition, seen_at
	FROM tool`

func tools(q queryer, query string, args ...any) (found []store.Tool, err error) {
	rows, err := q.query(query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var tool store.Tool
		var digest []byte
		var seen int64
		if err := rows.Scan(&tool.Tenant, &tool.Server, &tool.Name, &digest, &tool.Definition, &seen); err != nil {
			return nil, err
		}
		copy(tool.Digest[:], digest)
		tool.SeenAt = fromMicros(seen)
		found = append(found, tool)
	}
	return found, rows.Err()
}
