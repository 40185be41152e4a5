package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
)

// read asks for the newest generation of a call whose signature is known.
type read struct {
	request
	tenant    string
	signature effect.Signature

	latest found
	grant  pgtype.UUID
	at     time.Time
	more   bool // there is more to know of it than selectSettled reads
}

// reads are such questions on their way. Most of one that is asked alone is to have its plan made ready, a dozen
// nodes for a row, which many together do once.
type reads struct {
	driver *Driver
	groups[*read]
}

func (r *reads) init(d *Driver) {
	r.driver = d
	r.groups.send = r.sendGroup
}

func (r *reads) do(ctx context.Context, q *read) error { return r.groups.do(ctx, q, true) }

func (r *reads) sendGroup(ctx context.Context, group []*read) {
	if len(group) > 0 {
		answer(group, r.try(ctx, group))
	}
}

// try asks for a group in one round trip, and in one more for those of whom there is more to know than what they
// are answered by.
func (r *reads) try(ctx context.Context, group []*read) error {
	ctx, cancel := r.driver.groupContext(ctx, len(group))
	defer cancel()
	for _, q := range group {
		q.more = true // until it was read, and is all
	}
	if err := r.trySettled(ctx, group); err != nil {
		return err
	}
	group = slices.DeleteFunc(slices.Clone(group), func(q *read) bool { return !q.more })
	if len(group) == 0 {
		return nil
	}
	return r.ask(ctx, group, queueReads)
}

func (r *reads) trySettled(ctx context.Context, group []*read) error {
	switch {
	case !r.driver.mode.isPrepared():
		return r.askUnprepared(ctx, group)
	case len(group) == 1 && r.driver.mode.isTuned():
		return r.askAlone(ctx, group[0])
	}
	return r.ask(ctx, group, queueSettled)
}

// ask sends the questions of each tenant's.
func (r *reads) ask(ctx context.Context, group []*read, queue func(b *pgx.Batch, group []*read)) error {
	var b pgx.Batch
	for _, ofTenant := range byTenant(group) {
		queue(&b, ofTenant)
	}
	return r.driver.pool.SendBatch(ctx, &b).Close()
}

// byTenant divides a group, which it sorts.
func byTenant(group []*read) (parts [][]*read) {
	slices.SortStableFunc(group, func(q, s *read) int { return cmp.Compare(q.tenant, s.tenant) })
	for rest := group; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(q *read) bool { return q.tenant != rest[0].tenant })
		if n < 0 {
			n = len(rest)
		}
		parts = append(parts, rest[:n])
		rest = rest[n:]
	}
	return parts
}

// queueReads queues the statements of one tenant's.
func queueReads(b *pgx.Batch, group []*read) {
	queueTenant(b, group[0].tenant).QueryRow(func(row pgx.Row) error {
		var at time.Time
		err := row.Scan(nil, nil, nil, nil, &at)
		for _, q := range group {
			q.at = at.UTC()
		}
		return err
	})
	if len(group) == 1 {
		q := group[0]
		queue(b, statement{sql: selectLatest, args: []any{q.signature[:]}, read: readRecord(&q.latest, &q.grant)})
		return
	}
	signatures := make([][]byte, len(group))
	for i, q := range group {
		signatures[i] = q.signature[:]
	}
	queue(b, statement{sql: selectLatestOfMany, args: []any{flat(signatures)}, read: readLatestOfMany(group)})
}

const selectLatestOfMany = `
	SELECT ` + recordColumns + `,` + openGrant + `, n.place
	FROM unnest($1::bytea[]) WITH ORDINALITY AS n(signature, place)
	CROSS JOIN LATERAL (
	  SELECT * FROM undolog.effect
	  WHERE signature = n.signature
	  ORDER BY generation DESC
	  LIMIT 1) e` + recordTables

func readLatestOfMany(group []*read) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var grant pgtype.UUID
			var place int64
			f, err := scanRecord(rows, &grant, &place)
			if err != nil {
				return err
			}
			group[place-1].latest, group[place-1].grant = f, grant
		}
		return nil
	}
}
