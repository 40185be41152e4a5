package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/store"
)

// pruneStep is how many effects are looked at in one transaction.
const pruneStep = 1000

// Prune implements store.Driver, tenant by tenant and in many short transactions, in the order of
// recording.
func (d *Driver) Prune(ctx context.Context, p *store.Pruning) (pruned store.Pruned, err error) {
	tenants := []string{p.Tenant}
	if p.Tenant == "" {
		if tenants, err = d.Tenants(ctx); err != nil {
			return pruned, err
		}
	}
	for _, tenant := range tenants {
		for s := (&pruning{of: p, tenant: tenant, after: -1}); !s.ended; {
			if err := d.retry(ctx, func(ctx context.Context) error { return s.step(ctx, d.pool) }); err != nil {
				return pruned, err
			}
			p.Add(&pruned, s.pruned)
		}
	}
	return pruned, nil
}

// pruning goes through the effects of a tenant, step by step.
type pruning struct {
	of     *store.Pruning
	tenant string

	after  int64        // seq of the last effect looked at
	ended  bool         // there are no more
	pruned store.Pruned // by the last step
}

// selectPrunable reads the next effects, and how much of each is to be taken away. It names the states of
// effect.State.IsOpen: keep them equal. Effects that were begun later were settled later still.
const selectPrunable = `
	WITH step AS (
	  SELECT id, seq, created_at, server, octet_length(arguments) AS size FROM undolog.effect
	  WHERE tenant = $1 AND seq > $2
	  ORDER BY seq
	  LIMIT $3)
	SELECT s.seq, s.id,
	  CASE
	  WHEN t.at < $4::timestamptz AND t.state NOT IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval')
	   AND ($5::text = '' OR s.server = $5)
	  THEN s.size
	    + COALESCE((SELECT SUM(octet_length(answer)) FROM undolog.transition WHERE effect = s.id), 0)
	    + COALESCE((SELECT SUM(octet_length(edited)) FROM undolog.approval WHERE effect = s.id), 0)
	  ELSE 0
	  END
	FROM step s
	LEFT JOIN LATERAL (
	  SELECT at, state FROM undolog.transition WHERE effect = s.id ORDER BY ordinal DESC LIMIT 1) t ON true
	WHERE s.created_at < $4
	ORDER BY s.seq`

func (p *pruning) step(ctx context.Context, pool sender) error {
	var found prunable
	err := asTenant(ctx, pool, p.tenant, statement{
		sql:  selectPrunable,
		args: []any{text(p.tenant), p.after, int64(pruneStep), timestamp(p.of.Before), text(p.of.Server)},
		read: found.read,
	})
	if err != nil {
		return err
	}
	effects := int64(len(found.ids))
	if effects > 0 && !p.of.Dry {
		if effects, err = empty(ctx, pool, p.tenant, found.ids); err != nil {
			return err
		}
	}
	p.pruned = store.Pruned{Looked: found.looked, Effects: effects, Bytes: found.bytes}
	p.after, p.ended = found.last, found.looked == 0
	return nil
}

// prunable is what a step has found.
type prunable struct {
	last, looked, bytes int64
	ids                 []pgtype.UUID
}

func (f *prunable) read(rows pgx.Rows) error {
	*f = prunable{} // a statement may be run again
	for rows.Next() {
		var id pgtype.UUID
		var size int64
		if err := rows.Scan(&f.last, &id, &size); err != nil {
			return err
		}
		f.looked++
		if size > 0 {
			f.bytes += size
			f.ids = append(f.ids, id)
		}
	}
	return nil
}

// empty takes the payloads away and returns how many effects have lost any: others may prune too.
func empty(ctx context.Context, pool sender, tenant string, ids []pgtype.UUID) (int64, error) {
	lost := map[pgtype.UUID]bool{}
	read := func(rows pgx.Rows) error {
		for rows.Next() {
			var id pgtype.UUID
			if err := rows.Scan(&id); err != nil {
				return err
			}
			lost[id] = true
		}
		return nil
	}
	err := asTenant(ctx, pool, tenant,
		statement{args: []any{ids}, read: read, sql: `
			UPDATE undolog.effect SET arguments = ''
			WHERE id = ANY ($1::uuid[]) AND octet_length(arguments) > 0
			RETURNING id`},
		statement{args: []any{ids}, read: read, sql: `
			UPDATE undolog.transition SET answer = ''
			WHERE effect = ANY ($1::uuid[]) AND octet_length(answer) > 0
			RETURNING effect`},
		statement{args: []any{ids}, read: read, sql: `
			UPDATE undolog.approval SET edited = ''
			WHERE effect = ANY ($1::uuid[]) AND octet_length(edited) > 0
			RETURNING effect`})
	return int64(len(lost)), err
}
