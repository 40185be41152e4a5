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
	walk := p.Walk
	if walk == nil {
		walk = &store.Walk{}
	}
	tenants := []string{p.Tenant}
	if p.Tenant == "" {
		if tenants, err = d.Tenants(ctx); err != nil {
			return pruned, err
		}
	}
	for _, tenant := range tenants {
		for place := walk.Place(tenant); !place.Ended; {
			var s stretch
			if err := d.retry(ctx, func(ctx context.Context) error { return s.prune(ctx, d.pool, p, tenant, place.After) }); err != nil {
				return pruned, err
			}
			if place.Ended = !s.last.Valid; place.Ended {
				break
			}
			place.Pass(s.last.Int64, s.kept.Int64)
			if p.Add(&pruned, s.pruned); p.IsEnough(&pruned) {
				return pruned, nil
			}
		}
	}
	walk.Ended = true
	return pruned, nil
}

// stretch is what became of the effects that were looked at in one transaction.
type stretch struct {
	last   pgtype.Int8 // seq of the last one that is old enough; NULL when there is none
	kept   pgtype.Int8 // of the first one that is open or too young
	pruned store.Pruned
}

// One statement finds what is settled and takes its payloads away: it sees the log as it was at one moment. An effect
// that failed and is begun again at the same time loses what it had before, and never the answer that it gets then. The
// states named are those of effect.State.IsOpen: keep them equal. Effects that were begun later were settled later
// still. Lists of ids are looked up in an index, where a join may become a scan.
const (
	findPrunable = `
	WITH step AS MATERIALIZED (
	  SELECT e.id, e.seq, e.size, e.server, e.created_at < $4::timestamptz AS is_old,
	    COALESCE(t.at < $4 AND t.state NOT IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval'), false) AS is_settled
	  FROM (
	    SELECT id, seq, created_at, server, octet_length(arguments) AS size FROM undolog.effect
	    WHERE tenant = $1 AND seq > $2
	    ORDER BY seq
	    LIMIT $3) e
	  LEFT JOIN LATERAL (
	    SELECT at, state FROM undolog.transition WHERE effect = e.id ORDER BY ordinal DESC LIMIT 1) t ON true),
	due AS MATERIALIZED (
	  SELECT s.id, s.size
	    + COALESCE((SELECT SUM(octet_length(answer)) FROM undolog.transition WHERE effect = s.id), 0)
	    + COALESCE((SELECT SUM(octet_length(edited)) FROM undolog.approval WHERE effect = s.id), 0) AS size
	  FROM step s
	  WHERE s.is_settled AND ($5::text = '' OR s.server = $5))`

	takePayloads = `,
	arguments AS (
	  UPDATE undolog.effect SET arguments = ''
	  WHERE id = ANY (ARRAY(SELECT id FROM due WHERE size > 0)) AND octet_length(arguments) > 0
	  RETURNING id),
	answers AS (
	  UPDATE undolog.transition SET answer = ''
	  WHERE effect = ANY (ARRAY(SELECT id FROM due WHERE size > 0)) AND octet_length(answer) > 0
	  RETURNING effect AS id),
	edits AS (
	  UPDATE undolog.approval SET edited = ''
	  WHERE effect = ANY (ARRAY(SELECT id FROM due WHERE size > 0)) AND octet_length(edited) > 0
	  RETURNING effect AS id),
	lost AS (
	  SELECT id FROM arguments UNION ALL SELECT id FROM answers UNION ALL SELECT id FROM edits)`

	onlyCount = `,
	lost AS (SELECT id FROM due WHERE size > 0)`

	// What is lost of what is due is told apart by the program: a planner that knows nothing of their number would
	// compare each with each.
	countPruned = `
	SELECT MAX(seq) FILTER (WHERE is_old), MIN(seq) FILTER (WHERE NOT is_settled), COUNT(*) FILTER (WHERE is_old),
	  (SELECT array_agg(id) FROM due WHERE size > 0), (SELECT array_agg(size::bigint) FROM due WHERE size > 0),
	  ARRAY(SELECT id FROM lost)
	FROM step`
)

// prune looks at the effects of a tenant after a place.
func (s *stretch) prune(ctx context.Context, pool sender, p *store.Pruning, tenant string, after int64) error {
	take := takePayloads
	if p.Dry {
		take = onlyCount
	}
	return asTenant(ctx, pool, tenant, statement{
		sql:  findPrunable + take + countPruned,
		args: []any{text(tenant), after, int64(pruneStep), timestamp(p.Before), text(p.Server)},
		read: s.read,
	})
}

func (s *stretch) read(rows pgx.Rows) error {
	*s = stretch{} // a statement may be run again
	for rows.Next() {
		var due, lost []pgtype.UUID
		var sizes []int64
		if err := rows.Scan(&s.last, &s.kept, &s.pruned.Looked, &due, &sizes, &lost); err != nil {
			return err
		}
		left := map[pgtype.UUID]int64{}
		for i, id := range due {
			left[id] = sizes[i]
		}
		for _, id := range lost { // once for each of its payloads
			if size, counts := left[id]; counts {
				s.pruned.Effects, s.pruned.Bytes = s.pruned.Effects+1, s.pruned.Bytes+size
				delete(left, id)
			}
		}
	}
	return nil
}
