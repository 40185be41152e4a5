package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// maxRounds bounds how often a Begin reads again because others were first. Who loses finds a claim to
// join, so that more than a few in a row means that something else is wrong.
const maxRounds = 64

// errLost says that another write took the place of ours: what was read is out of date.
var errLost = errors.New("another write was first")

// Begin implements store.Driver.
func (d *Driver) Begin(ctx context.Context, p *store.Begin) (*store.Begun, error) {
	id, ok := parseID(p.ID)
	if !ok {
		return nil, fmt.Errorf("%q is no UUID", p.ID)
	}
	b := &begin{driver: d, p: p, id: id, known: d.known.hasSignature(p.Identity.Signature)}
	var begun *store.Begun
	err := d.persistFor(ctx, d.patience-p.Waited, func(ctx context.Context) (err error) {
		begun, err = b.try(ctx)
		b.unsure = b.unsure || b.tried != "" && isUnanswered(err)
		return err
	})
	if b.unsure && (err != nil || begun.Claim == nil) {
		d.orphans.add(b)
	}
	if err != nil {
		return nil, err
	}
	if begun.Claim != nil {
		d.known.addSignature(begun.Record.Signature)
		d.known.addClaim(begun.Record)
	}
	return begun, nil
}

// begin is one call that is decided on.
type begin struct {
	driver *Driver
	p      *store.Begin
	id     pgtype.UUID
	known  bool           // its signature is there
	sent   effect.Verdict // of the last claim or request that was tried, and perhaps made
	tried  string         // effect of the last claim that was tried
	unsure bool           // the database did not say what became of a try: what was tried may be there
	alone  bool           // an insert has waited for a lock in vain

	uncounted int64 // effects whose spends count for ever, and are not noted to
}

// try claims a call that seems to be new, and else decides on what the log has of it, until what it decides
// on still stands when it is written.
func (b *begin) try(ctx context.Context) (*store.Begun, error) {
	if begun, err := b.beginNew(ctx); begun != nil || err != nil {
		return begun, err
	}
	for range maxRounds {
		f, err := b.facts(ctx, b.driver.pool)
		if err != nil {
			return nil, fmt.Errorf("gather facts: %w", err)
		}
		begun, err := b.decide(ctx, f)
		if !errors.Is(err, errLost) {
			return begun, err
		}
	}
	return nil, fmt.Errorf("%w: %d others were first", store.ErrBusy, maxRounds)
}

// beginNew claims a call of which the log knows nothing, in one round trip; nil when it knows something, or
// when even such a call is not to run, or other things of the log decide on it too.
func (b *begin) beginNew(ctx context.Context) (*store.Begun, error) {
	if b.p.Contract.AsksGrants() || len(b.p.Spends) > 0 {
		return nil, nil
	}
	v := effect.Decide(b.p.Call, b.p.Identity, b.p.Contract, &effect.Facts{Now: b.driver.clock.now()}, b.p.Continuation)
	if b.known || v.Action != effect.ActInsert || b.asksAboutLookalikes() {
		return nil, nil
	}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	begun, err := b.insert(ctx, v, false)
	if errors.Is(err, errLost) {
		return nil, nil
	}
	return begun, err
}

// asksAboutLookalikes reports whether two equal calls under different keys must not both be new: no
// constraint says so, and they take turns.
func (b *begin) asksAboutLookalikes() bool {
	return b.p.Contract.Lookalike == effect.RepeatAsk && !b.p.Identity.Window.IsZero()
}

// decide does what the verdict on the facts says; errLost when they are out of date.
func (b *begin) decide(ctx context.Context, f *facts) (*store.Begun, error) {
	if f.isOwn(b) {
		return b.claimed(b.sent, f.Latest), nil
	}
	if f.isOwnRequest(b) {
		return &store.Begun{Verdict: b.sent, Record: f.Latest}, nil
	}
	v := effect.Decide(b.p.Call, b.p.Identity, b.p.Contract, &f.Facts, b.p.Continuation)
	if !claims(v.Action) && v.Action != effect.ActRequest {
		return &store.Begun{Verdict: v, Record: b.p.Shown(&f.Facts, &v)}, nil
	}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	switch {
	case b.takesTurns(&v, f):
		return b.inTurn(ctx)
	case v.Action == effect.ActInsert:
		return b.insert(ctx, v, true)
	}
	return b.act(ctx, b.driver.pool, v, f)
}

// claims reports whether an action gives the right to dispatch.
func claims(a effect.Action) bool {
	switch a {
	case effect.ActInsert, effect.ActReclaim, effect.ActContinue, effect.ActApproved:
		return true
	}
	return false
}

// prepare sees to what a claim rests on: its tenant is known and its owner alive.
func (b *begin) prepare(ctx context.Context) error {
	if err := b.driver.meetNow(ctx, b.p.Tenant()); err != nil {
		return fmt.Errorf("insert tenant %s: %w", b.p.Tenant(), err)
	}
	if b.p.Lease() > 0 {
		return nil
	}
	if err := b.driver.beatWhenDue(ctx, b.p.Owner, b.p.TTL); err != nil {
		return fmt.Errorf("beat for %s: %w", b.p.Owner, err)
	}
	return nil
}

// row is a new generation on its way, and the record that it will be but for its times and its place.
func (b *begin) row(v *effect.Verdict, sure bool) (*effectRow, *effect.Record) {
	r := b.p.NewRecord(v, time.Time{})
	return &effectRow{id: b.id.Bytes, record: r, lease: b.p.Lease(), timeout: b.p.Contract.Timeout, sure: sure}, r
}

// insert claims a new generation; the unique signature makes it the only one.
func (b *begin) insert(ctx context.Context, v effect.Verdict, sure bool) (*store.Begun, error) {
	b.sent, b.tried = v, b.p.ID
	row, _ := b.row(&v, sure)
	w := &write{tenant: b.p.Tenant(), effect: row}
	if err := b.write(ctx, w); err != nil {
		return nil, fmt.Errorf("insert effect %s: %w", b.p.ID, err)
	}
	if !w.won {
		return nil, errLost
	}
	r := b.p.NewRecord(&v, w.at)
	r.Seq = w.seq
	return b.claimed(v, r), nil
}

// write sends the row with those of other callers, and by itself once that has waited for a lock in vain: it
// may be this row that is held, and the others must not wait with it again.
func (b *begin) write(ctx context.Context, w *write) error {
	if b.alone {
		return b.driver.writes.try(ctx, []*write{w})
	}
	err := b.driver.writes.do(ctx, w)
	b.alone = code(err) == lockNotAvailable
	return err
}

func (b *begin) claimed(v effect.Verdict, r *effect.Record) *store.Begun {
	if r.LeaseUntil.IsZero() {
		r.OwnerUntil = b.driver.known.beatUntil(b.p.Owner)
	}
	return store.Claimed(v, r)
}

const insertClaim = `
	INSERT INTO undolog.transition (
	  effect, ordinal, attempt, at, lease_until, timeout_at, position, caller, begun, is_error, tenant, state, owner,
	  by, reason, continuation, answer_kind)
	VALUES (
	  $2::uuid, $3::integer, $4::integer, COALESCE($1::timestamptz, now()),
	  COALESCE($1, now()) + $5::bigint * interval '1 microsecond', COALESCE($1, now()) + $6::bigint * interval '1 microsecond',
	  CASE WHEN $7::bigint IS NOT NULL THEN pg_current_xact_id()::text::bigint << 16 END, $7, $8::uuid, false, $9::text, 'claimed',
	  $10::text, '', '', $11::text, '')
	ON CONFLICT (effect, ordinal) DO NOTHING
	RETURNING at`

// reclaim claims the next attempt of an effect, the approved one, or the waiting one again. An attempt that begins
// takes its place among all that was begun.
func (b *begin) reclaim(ctx context.Context, s sender, v effect.Verdict, latest *effect.Record) (*store.Begun, error) {
	b.sent, b.tried = v, latest.ID
	effectID, _ := parseID(latest.ID)
	r := b.p.Reclaimed(&v, latest, time.Time{})
	begins := v.Action != effect.ActContinue
	var from pgtype.Int8
	if begins {
		from = caller(r)
	}
	var at time.Time
	statements := []statement{{
		sql: insertClaim,
		args: []any{
			b.driver.clock.param(), effectID, int32(r.Ordinal), int32(r.Attempt), micros(b.p.Lease()), micros(b.p.Contract.Timeout),
			from, b.id, text(r.Tenant), text(r.Owner), text(r.Continuation),
		},
		read: readTime(&at),
	}}
	if begins && len(b.p.Spends) > 0 {
		statements = append(statements, b.spend(effectID)...) // undone with the transaction when the claim is lost
	}
	err := asTenant(ctx, s, r.Tenant, statements...)
	switch {
	case err != nil:
		return nil, fmt.Errorf("claim effect %s again: %w", r.ID, err)
	case at.IsZero():
		return nil, errLost
	}
	return b.claimed(v, b.p.Reclaimed(&v, latest, at.UTC())), nil
}

// insertIn is insert in a transaction, with what else the claim uses up.
func (b *begin) insertIn(ctx context.Context, s sender, v effect.Verdict, f *facts) (*store.Begun, error) {
	b.sent, b.tried = v, b.p.ID
	row, _ := b.row(&v, true)
	var r *effect.Record
	statements := []statement{row.insert(insertEffect, b.p.Tenant(), b.driver.clock.param(), func(_ uuid.UUID, seq int64, at time.Time) {
		r = b.p.NewRecord(&v, at)
		r.Seq = seq
	})}
	if v.UsesAgain != "" {
		statements = append(statements, b.useGrant(&v, f))
	}
	if len(b.p.Spends) > 0 {
		statements = append(statements, b.spend(b.id)...)
	}
	if err := asTenant(ctx, s, b.p.Tenant(), statements...); err != nil {
		return nil, fmt.Errorf("insert effect %s: %w", b.p.ID, err)
	}
	if r == nil {
		return nil, errLost
	}
	return b.claimed(v, r), nil
}

// useGrant notes that a granted run was used up by this claim. Of any number of claims one uses it.
func (b *begin) useGrant(v *effect.Verdict, f *facts) statement {
	grant := f.grant
	if f.Latest == nil {
		grant = f.likeGrant
	}
	return insertEvent(&effect.Event{
		Tenant: b.p.Tenant(), Effect: v.UsesAgain, Kind: effect.EventAgainUsed,
		Principal: b.p.Call.Principal, Server: b.p.Call.Server, Tool: b.p.Call.Tool,
		Detail: []byte(`{"by":"` + b.p.ID + `"}`),
	}, eventID{id: b.id, used: grant}, b.driver.clock.param())
}
