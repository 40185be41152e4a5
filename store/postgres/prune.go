package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// pruneStep is how many effects are looked at in one transaction.
const pruneStep = 1000

// Prune implements store.Driver, tenant by tenant and in many short transactions, in the order of
// recording.
func (d *Driver) Prune(ctx context.Context, before time.Time) (pruned int64, err error) {
	tenants, err := d.Tenants(ctx)
	if err != nil {
		return 0, err
	}
	for _, tenant := range tenants {
		for after := int64(-1); ; {
			p := pruning{tenant: tenant, after: after, before: before}
			err := d.retry(ctx, func(ctx context.Context) error { return p.step(ctx, d.pool) })
			if err != nil {
				return pruned, err
			}
			pruned += p.pruned
			if p.last == 0 {
				break
			}
			after = p.last
		}
	}
	return pruned, nil
}

// pruning is one step of it.
type pruning struct {
	tenant string
	after  int64 // seq
	before time.Time

	last   int64 // seq of the last effect looked at; 0 at the end
	pruned int64
}

// selectPrunable names the states of effect.State.IsOpen: keep them equal.
const selectPrunable = `
	WITH step AS (
	  SELECT id, seq, created_at, state FROM undolog.effect
	  WHERE tenant = $1 AND seq > $2
	  ORDER BY seq
	  LIMIT $3)
	SELECT s.seq, s.id,
	  COALESCE(t.at < $4::timestamptz AND t.state NOT IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval'), false)
	FROM step s
	LEFT JOIN LATERAL (
	  SELECT at, state FROM undolog.transition WHERE effect = s.id ORDER BY ordinal DESC LIMIT 1) t ON true
	WHERE s.created_at < $4
	ORDER BY s.seq`

func (p *pruning) step(ctx context.Context, pool sender) error {
	p.last, p.pruned = 0, 0
	var ids []pgtype.UUID
	err := asTenant(ctx, pool, p.tenant, statement{
		sql: selectPrunable, args: []any{text(p.tenant), p.after, int64(pruneStep), timestamp(p.before)},
		read: func(rows pgx.Rows) error {
			for rows.Next() {
				var id pgtype.UUID
				var settled bool
				if err := rows.Scan(&p.last, &id, &settled); err != nil {
					return err
				}
				if settled {
					ids = append(ids, id)
				}
			}
			return nil
		},
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	return p.empty(ctx, pool, ids)
}

func (p *pruning) empty(ctx context.Context, pool sender, ids []pgtype.UUID) error {
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
	err := asTenant(ctx, pool, p.tenant,
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
	p.pruned = int64(len(lost))
	return err
}
