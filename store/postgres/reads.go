package postgres

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync/atomic"
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
	large  bool // it carries more than a group can: it is read alone
}

// reads are such questions on their way. Most of one that is asked alone is to have its plan made ready, a dozen
// nodes for a row, which many together do once.
type reads struct {
	driver *Driver
	groups[*read]

	sent, asked atomic.Int64 // groups, and reads in them
}

func (r *reads) init(d *Driver) {
	r.driver = d
	r.groups.send = r.sendGroup
}

// do asks with others, and once more alone for what is large: how large an answer is turns out when it is read, and
// small ones must not wait for many large ones, nor all of them together have no more time than one.
func (r *reads) do(ctx context.Context, q *read) error {
	err := r.groups.do(ctx, q, true)
	if err != nil || !q.large {
		return err
	}
	return r.try(ctx, []*read{q})
}

// unlimited is the limit of who asks alone.
const unlimited = math.MaxInt32

// maxPayload is how long each payload may be that a group of so many reads.
func maxPayload(group int) int32 {
	if group == 1 {
		return unlimited
	}
	return int32(maxGroupBytes / 2 / group) // of a call its arguments and its answer
}

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
	r.sent.Add(1)
	r.asked.Add(int64(len(group)))
	if !isLargeAndMore(group) {
		for _, q := range group {
			q.more, q.large = true, false // until it was read, and is all
		}
		if err := r.trySettled(ctx, group); err != nil {
			return err
		}
	}
	group = slices.DeleteFunc(slices.Clone(group), func(q *read) bool { return !q.more })
	if len(group) == 0 {
		return nil
	}
	return r.ask(ctx, group, queueReads)
}

// isLargeAndMore reports whether it was found out before that there is more to know, and that it is large.
func isLargeAndMore(group []*read) bool { return len(group) == 1 && group[0].large && group[0].more }

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
func (r *reads) ask(ctx context.Context, group []*read, queue func(b *pgx.Batch, group []*read, limit int32)) error {
	var b pgx.Batch
	for _, ofTenant := range byTenant(group) {
		queue(&b, ofTenant, maxPayload(len(group)))
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

// queueReads queues the statements of one tenant's. Payloads longer than the limit are left out.
func queueReads(b *pgx.Batch, group []*read, limit int32) {
	queueTenant(b, group[0].tenant).QueryRow(func(row pgx.Row) error {
		var at time.Time
		err := row.Scan(nil, nil, nil, nil, &at)
		for _, q := range group {
			q.at = at.UTC()
		}
		return err
	})
	if limit == unlimited {
		q := group[0]
		queue(b, statement{sql: selectLatest, args: []any{q.signature[:]}, read: readRecord(&q.latest, &q.grant)})
		return
	}
	signatures := make([][]byte, len(group))
	for i, q := range group {
		signatures[i] = q.signature[:]
	}
	queue(b, statement{sql: selectLatestOfMany, args: []any{signatures, limit}, read: readLatestOfMany(group)})
}

// within leaves payloads out that are longer than $2.
var within = strings.NewReplacer(
	`e.arguments`, `CASE WHEN octet_length(e.arguments) <= $2::integer THEN e.arguments END`,
	`COALESCE(a.answer, t.answer)`, `CASE WHEN octet_length(COALESCE(a.answer, t.answer)) <= $2 THEN COALESCE(a.answer, t.answer) END`,
	`p.edited`, `CASE WHEN octet_length(p.edited) <= $2 THEN p.edited END`,
	`is_error, answer)`, `is_error, CASE WHEN octet_length(answer) <= $2 THEN answer END)`,
).Replace

var selectLatestOfMany = `
	SELECT ` + within(recordColumns) + `,` + openGrant + `, n.place,
	  GREATEST(octet_length(e.arguments), octet_length(COALESCE(a.answer, t.answer)), octet_length(p.edited)) > $2
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
			var large bool
			f, err := scanRecord(rows, &grant, &place, &large)
			if err != nil {
				return err
			}
			q := group[place-1]
			if q.large = large; !large {
				q.latest, q.grant = f, grant
			}
		}
		return nil
	}
}
