package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
)

// facts is what one round trip finds out about a call.
type facts struct {
	effect.Facts
	latest    found
	lookalike found
	grant     pgtype.UUID // the granted run of Latest that is open
	likeGrant pgtype.UUID // of Lookalike
}

// openGrant is the granted run of an effect that is not used up. An effect may have any number of events:
// the index event_again holds these two kinds alone.
const openGrant = `
	  (SELECT CASE WHEN v.kind = 'again' THEN v.id END
	   FROM undolog.event v
	   WHERE v.effect = e.id::text AND v.kind IN ('again', 'again_used')
	   ORDER BY v.seq DESC
	   LIMIT 1)`

const (
	// The newest generation of a call.
	selectLatest = `
	SELECT ` + recordColumns + `,` + openGrant + `
	FROM (
	  SELECT * FROM undolog.effect
	  WHERE signature = $1
	  ORDER BY generation DESC
	  LIMIT 1) e` + recordTables

	// The effect that an earlier try may have inserted: all that a call of nobody can be known by.
	selectOwn = `
	SELECT ` + recordColumns + `,` + openGrant + `
	FROM undolog.effect e` + recordTables + `
	WHERE e.id = $1`
)

func (b *begin) askLatest(f *facts) statement {
	read := readRecord(&f.latest, &f.grant)
	if b.p.Identity.Signature.IsZero() {
		return statement{sql: selectOwn, args: []any{b.id}, read: read}
	}
	return statement{sql: selectLatest, args: []any{b.p.Identity.Signature[:]}, read: read}
}

const (
	selectAsked = `
	SELECT EXISTS (SELECT FROM undolog.transition WHERE effect = $1 AND continuation = $2)`

	// A first claim has its place by seq, a later attempt, and one that was asked about, by position. What only
	// awaits approval has none.
	selectOtherWrites = `
	SELECT EXISTS (
	    SELECT FROM undolog.effect w
	    WHERE w.caller = $2 AND w.seq > b.seq AND w.window_signature IS DISTINCT FROM e.window_signature
	      AND w.principal = e.principal AND w.server = e.server)
	  OR EXISTS (
	    SELECT FROM undolog.transition m
	    JOIN undolog.effect w ON w.id = m.effect
	    WHERE m.caller = $2 AND m.position > b.seq AND m.effect <> e.id
	      AND w.window_signature IS DISTINCT FROM e.window_signature AND w.principal = e.principal AND w.server = e.server)
	FROM undolog.effect e
	CROSS JOIN LATERAL (
	  SELECT GREATEST(e.seq, (SELECT MAX(position) FROM undolog.transition WHERE effect = e.id)) AS seq) b
	WHERE e.id = $1`
)

// askMore finds out what only some calls depend on: whether a waiting one was ever asked to go on with the
// round that comes, and whether the caller of a delivered one has begun another write on its server since.
func (b *begin) askMore(ctx context.Context, s sender, f *facts) error {
	r := f.Latest
	id, _ := parseID(r.ID)
	switch {
	case r.State == effect.StateWaiting && b.p.Continuation != "" && r.Continuation != b.p.Continuation:
		asked := false
		err := asTenant(ctx, s, r.Tenant, statement{sql: selectAsked, args: []any{id, text(b.p.Continuation)}, read: readBool(&asked)})
		f.UnknownRound = !asked
		return err
	case b.p.Identity.Rule == effect.RuleWindow && r.Delivered && !r.State.IsOpen() && !f.Again:
		return asTenant(ctx, s, r.Tenant, statement{sql: selectOtherWrites, args: []any{id, caller(r)}, read: readBool(&f.OtherWrites)})
	}
	return nil
}

func readBool(into *bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(into); err != nil {
				return err
			}
		}
		return nil
	}
}

// selectLookalike reads an equal call under another key or run, or none, whose effect may stand; of however
// many made under other keys only the newest 64 are looked at.
const selectLookalike = `
	SELECT ` + recordColumns + `,` + openGrant + `
	FROM (
	  (SELECT id, 0 AS kind FROM undolog.effect
	   WHERE window_signature = $1 AND rule IN ('key', 'run') AND signature <> $2
	   ORDER BY seq DESC
	   LIMIT 64)
	  UNION ALL
	  (SELECT id, 1 FROM undolog.effect
	   WHERE signature = $1 AND $3::text <> 'window'
	   ORDER BY generation DESC
	   LIMIT 64)) c
	JOIN undolog.effect e ON e.id = c.id` + recordTables + `
	WHERE COALESCE(t.state, e.state) IN ('claimed', 'waiting', 'in_doubt')
	   OR COALESCE(t.state, e.state) = 'awaiting_approval' AND p.until > COALESCE($4::timestamptz, now())
	   OR t.state IN ('committed', 'compensating', 'compensation_failed')
	      AND t.at > COALESCE($4, now()) - $5::bigint * interval '1 microsecond'
	ORDER BY c.kind, e.seq DESC
	LIMIT 1`

// facts gathers what effect.Decide wants to know, and no more than this call needs.
func (b *begin) facts(ctx context.Context, s sender) (*facts, error) {
	f := &facts{}
	if err := b.gather(ctx, s, f); err != nil {
		return nil, err
	}
	f.Now = f.Now.UTC()
	if now := b.driver.clock.param(); now.Valid {
		f.Now = now.Time
	}
	f.Latest, f.Again = f.latest.Record, f.grant.Valid
	if f.Latest != nil {
		b.know(f.Latest)
		return f, b.askMore(ctx, s, f)
	}
	if f.Lookalike, f.LookalikeAgain = f.lookalike.Record, f.likeGrant.Valid; f.Lookalike != nil {
		b.p.Know(f.Lookalike)
	}
	return f, nil
}

// gather reads the facts in one round trip, with others who want nothing but the newest generation of their calls.
// A call that could not be inserted as new is nearly always known by its signature, and seldom by a look-alike.
func (b *begin) gather(ctx context.Context, s sender, f *facts) error {
	if s == sender(b.driver.pool) && b.wantsLatestOnly() {
		q := &read{tenant: b.p.Tenant(), signature: b.p.Identity.Signature}
		if err := b.driver.reads.do(ctx, q); err != nil {
			return err
		}
		if b.known || q.latest.Record != nil {
			f.latest, f.grant, f.Now = q.latest, q.grant, q.at
			return nil
		}
	}
	return asTenantAt(ctx, s, b.p.Tenant(), &f.Now, b.questions(f)...)
}

func (b *begin) wantsLatestOnly() bool {
	return (b.known || b.tried != "") && !b.p.Identity.Signature.IsZero() && !b.p.Contract.AsksGrants() && len(b.p.Spends) == 0
}

// questions are the statements that find out about the call.
func (b *begin) questions(f *facts) []statement {
	now := b.driver.clock.param()
	statements := []statement{b.askLatest(f)}
	if b.p.Contract.AsksGrants() {
		statements = append(statements, b.askGrants(f))
	}
	if len(b.p.Spends) > 0 {
		statements = append(statements, b.askSpent(f))
	}
	if !b.p.Identity.Window.IsZero() && !b.p.Identity.Signature.IsZero() && !b.known {
		statements = append(statements, statement{
			sql:  selectLookalike,
			args: []any{b.p.Identity.Window[:], b.p.Identity.Signature[:], string(b.p.Identity.Rule), now, b.p.Contract.Window.Microseconds()},
			read: readRecord(&f.lookalike, &f.likeGrant),
		})
	}
	return statements
}

// know also remembers that the signature is there to stay.
func (b *begin) know(latest *effect.Record) {
	b.p.Know(latest)
	b.known = true
	b.driver.known.addSignature(latest.Signature)
}

func readTime(into *time.Time) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(into); err != nil {
				return err
			}
		}
		return nil
	}
}

// isOwnRequest reports whether the latest request for approval is the one that an earlier try of this Begin
// made, and nobody has decided on it.
func (f *facts) isOwnRequest(b *begin) bool {
	r := f.Latest
	return r != nil && r.State == effect.StateAwaitingApproval && r.Approval != nil && r.Approval.ID == b.p.Request.ID &&
		!r.Approval.IsApproved()
}

// isOwn reports whether the latest claim is the one that an earlier try of this Begin made.
func (f *facts) isOwn(b *begin) bool {
	return f.Latest != nil && f.Latest.State == effect.StateClaimed && f.latest.begun == b.id && f.Latest.Owner == b.p.Owner
}
