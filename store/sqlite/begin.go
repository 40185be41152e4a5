package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Begin implements store.Driver.
func (d *Driver) Begin(ctx context.Context, p *store.Begin) (*store.Begun, error) {
	var begun *store.Begun
	err := d.writer.do(ctx, func(t *tx) (err error) {
		begun, err = t.begin(p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return begun, nil
}

func (t *tx) begin(p *store.Begin) (*store.Begun, error) {
	if err := t.deliver(p.Deliveries); err != nil {
		return nil, err
	}
	facts, err := t.facts(p)
	if err != nil {
		return nil, fmt.Errorf("gather facts: %w", err)
	}
	begun := &store.Begun{Verdict: effect.Decide(p.Call, p.Identity, p.Contract, facts, p.Continuation)}
	switch v := &begun.Verdict; v.Action {
	case effect.ActInsert:
		begun.Record, err = t.insert(p, v)
	case effect.ActReclaim, effect.ActContinue:
		begun.Record, err = t.reclaim(p, v, facts.Latest)
	default:
		begun.Record = shown(p, facts, v)
		return begun, nil
	}
	if err != nil {
		return nil, err
	}
	r := begun.Record
	t.rememberClaim(r)
	begun.Claim = &effect.Claim{Effect: r.ID, Tenant: r.Tenant, Attempt: r.Attempt, Ordinal: r.Ordinal, Owner: r.Owner}
	return begun, nil
}

// shown is the effect that a call which may not run is told of: nothing of another principal's.
func shown(p *store.Begin, f *effect.Facts, v *effect.Verdict) *effect.Record {
	r := f.Latest
	if r == nil && v.Lookalike != "" {
		r = f.Lookalike
	}
	if r != nil && r.Principal != p.Call.Principal && !p.Contract.ShareTenant {
		return nil
	}
	return r
}

// facts gathers what effect.Decide wants to know, and no more than this call needs.
func (t *tx) facts(p *store.Begin) (*effect.Facts, error) {
	f := &effect.Facts{Now: t.now}
	if p.Identity.Signature.IsZero() {
		return f, nil
	}
	latest, lookalikes, err := t.probe(p)
	switch {
	case err != nil:
		return nil, err
	case latest == 0 && lookalikes:
		return f, t.lookalike(p, f)
	case latest == 0:
		return f, nil
	}
	if f.Latest, err = one(t, selectRecord+`
		WHERE e.seq = ?`, latest); err != nil {
		return nil, err
	}
	if f.Again, err = againOpen(t, f.Latest.ID); err != nil {
		return nil, err
	}
	if p.Identity.Rule == effect.RuleWindow && !f.Latest.State.IsOpen() {
		f.OtherWrites, err = otherWrites(t, f.Latest)
	}
	return f, err
}

// probe finds the newest generation, and whether it is worth looking for look-alikes: for a new call,
// which most are, it is all that is read.
func (t *tx) probe(p *store.Begin) (latest int64, lookalikes bool, err error) {
	rows, err := t.query(`
		SELECT COALESCE((SELECT seq FROM effect
		                 WHERE tenant = ?1 AND signature = ?2
		                 ORDER BY generation DESC
		                 LIMIT 1), 0),
		       EXISTS (SELECT 1 FROM effect WHERE tenant = ?1 AND window = ?3 AND rule IN ('key', 'run'))
		       OR EXISTS (SELECT 1 FROM effect WHERE tenant = ?1 AND signature = ?3)`,
		tenant(p.Call), p.Identity.Signature[:], blob(p.Identity.Window))
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if rows.Next() {
		err = rows.Scan(&latest, &lookalikes)
	}
	return latest, lookalikes, errors.Join(err, rows.Err())
}

// againOpen reports whether a granted run of the effect is not used up.
func againOpen(q queryer, id string) (bool, error) {
	return exists(q, `
		SELECT 1
		FROM (SELECT kind FROM event
		      WHERE effect = ? AND effect <> '' AND kind IN ('again', 'again_used')
		      ORDER BY seq DESC
		      LIMIT 1)
		WHERE kind = 'again'`, id)
}

// otherWrites reports whether the caller of r has begun another write on its server since r's last
// attempt was begun: a first claim has its place by seq, a later attempt by position.
func otherWrites(q queryer, r *effect.Record) (bool, error) {
	begun := r.Seq
	if r.Attempt > 1 {
		position, err := number(q, `SELECT MAX(position) FROM transition WHERE effect = ? AND position IS NOT NULL`, r.Seq)
		if err != nil {
			return false, err
		}
		begun = max(begun, position)
	}
	found, err := exists(q, `
		SELECT 1
		FROM effect
		WHERE tenant = ? AND principal = ? AND server = ? AND seq > ? AND tier <> 'read' AND window IS NOT ?
		LIMIT 1`, r.Tenant, r.Principal, r.Server, begun, blob(r.Window))
	if err != nil || found {
		return found, err
	}
	return exists(q, `
		SELECT 1
		FROM transition t
		JOIN effect e ON e.seq = t.effect
		WHERE t.position >= ? AND t.effect <> ?
		  AND e.tenant = ? AND e.principal = ? AND e.server = ? AND e.window IS NOT ?
		LIMIT 1`, begun, r.Seq, r.Tenant, r.Principal, r.Server, blob(r.Window))
}

// lookalike looks for an equal call under another key or run, or none, whose effect may stand.
func (t *tx) lookalike(p *store.Begin, f *effect.Facts) (err error) {
	if p.Identity.Window.IsZero() {
		return nil
	}
	// However often the call was made under other keys, only its newest 64 are looked at.
	const standing = `
		AND (t.state IS NULL OR t.state IN ('awaiting_approval', 'claimed', 'waiting', 'in_doubt')
		     OR (t.state IN ('committed', 'compensating', 'compensation_failed') AND t.at > ?))
		ORDER BY e.seq DESC
		LIMIT 1`
	since := micros(t.now.Add(-p.Contract.Window))
	f.Lookalike, err = one(t, selectRecord+`
		WHERE e.seq IN (SELECT seq FROM effect
		                WHERE tenant = ? AND window = ? AND rule IN ('key', 'run') AND tier <> 'read' AND signature <> ?
		                ORDER BY seq DESC
		                LIMIT 64)`+standing,
		tenant(p.Call), p.Identity.Window[:], p.Identity.Signature[:], since)
	if err == nil && f.Lookalike == nil && p.Identity.Rule != effect.RuleWindow {
		f.Lookalike, err = one(t, selectRecord+`
			WHERE e.tenant = ? AND e.signature = ?`+standing,
			tenant(p.Call), p.Identity.Window[:], since)
	}
	if err != nil || f.Lookalike == nil {
		return err
	}
	f.LookalikeAgain, err = againOpen(t, f.Lookalike.ID)
	return err
}

// insert claims a new generation; the unique signature makes it the only one.
func (t *tx) insert(p *store.Begin, v *effect.Verdict) (*effect.Record, error) {
	r := newRecord(p, v)
	r.CreatedAt, r.ChangedAt = t.now, t.now
	t.lease(p, r)
	if err := t.insertEffect(r); err != nil {
		return nil, fmt.Errorf("insert effect %s: %w", r.ID, err)
	}
	if err := t.beatWhenDue(p, r); err != nil {
		return nil, err
	}
	return r, t.useAgain(p, v)
}

func newRecord(p *store.Begin, v *effect.Verdict) *effect.Record {
	c, id := p.Call, p.Identity
	return &effect.Record{
		ID: p.ID, Tenant: tenant(c), Principal: c.Principal, Session: c.Session, Trace: c.Trace,
		Server: c.Server, Tool: c.Tool, Tier: p.Contract.Tier,
		Rule: id.Rule, Scope: id.Scope, Signature: id.Signature, Window: id.Window, Generation: v.Generation,
		Key: c.Key, Run: c.Run, Occurrence: c.Occurrence,
		Arguments: bytes.Clone(orEmptyObject(c.Arguments)), ArgsDigest: id.Arguments, Complete: id.Complete,
		Policy: p.Policy, Source: p.Contract.Source, LookalikeOf: v.Lookalike,
		State: effect.StateClaimed, Attempt: 1, Owner: p.Owner,
	}
}

// lease says until when the claim holds: for a remote invoker a fixed time, else as long as the owner's
// heart beats, and never past the tool's time-out.
func (t *tx) lease(p *store.Begin, r *effect.Record) {
	r.LeaseUntil = later(t.now, 0)
	if p.Remote {
		r.LeaseUntil = later(t.now, p.Contract.Lease)
	}
	r.TimeoutAt = later(t.now, p.Contract.Timeout)
}

func (t *tx) insertEffect(r *effect.Record) error {
	result, err := t.exec(`
		INSERT INTO effect (id, tenant, principal, session, trace, server, tool, tier, rule, scope,
		       signature, window, generation, key, run, occurrence, args_digest, complete,
		       policy, source, lookalike_of, created_at, state, owner, lease_until, timeout_at, arguments)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
		       ?, ?, ?, ?, ?, ?, ?, ?,
		       ?, ?, ?, ?, 'claimed', ?, ?, ?, ?)`,
		r.ID, r.Tenant, r.Principal, r.Session, r.Trace, r.Server, r.Tool, string(r.Tier), string(r.Rule), r.Scope,
		blob(r.Signature), blob(r.Window), r.Generation, r.Key, r.Run, r.Occurrence, r.ArgsDigest[:], r.Complete[:],
		r.Policy, r.Source, r.LookalikeOf, micros(r.CreatedAt), r.Owner, nullMicros(r.LeaseUntil), nullMicros(r.TimeoutAt),
		[]byte(r.Arguments))
	if err != nil {
		return err
	}
	r.Seq, err = result.LastInsertId()
	return err
}

// reclaim claims the next attempt of an effect, or the waiting one again.
func (t *tx) reclaim(p *store.Begin, v *effect.Verdict, latest *effect.Record) (*effect.Record, error) {
	r := *latest
	r.State, r.Attempt, r.Ordinal, r.Owner = effect.StateClaimed, v.Attempt, latest.Ordinal+1, p.Owner
	r.ChangedAt, r.By, r.Reason, r.Delivered = t.now, "", "", false
	t.lease(p, &r)
	if v.Action == effect.ActReclaim {
		r.Continuation = ""
	}
	// The record was read in this transaction: nobody can have taken the ordinal.
	if _, err := t.insertTransition(&r, v.Action == effect.ActReclaim, effect.Answer{}); err != nil {
		return nil, fmt.Errorf("claim effect %s again: %w", r.ID, err)
	}
	if err := t.beatWhenDue(p, &r); err != nil {
		return nil, err
	}
	return &r, t.useAgain(p, v)
}

// useAgain notes that a granted run was used up by this claim.
func (t *tx) useAgain(p *store.Begin, v *effect.Verdict) error {
	if v.UsesAgain == "" {
		return nil
	}
	return t.insertEvent(&effect.Event{
		At: t.now, Tenant: tenant(p.Call), Effect: v.UsesAgain, Kind: effect.EventAgainUsed,
		Principal: p.Call.Principal, Server: p.Call.Server, Tool: p.Call.Tool,
		Detail: []byte(`{"by":"` + p.ID + `"}`),
	})
}

// tenant is a call's tenant by the rule of effect.Call.
func tenant(c *effect.Call) string {
	if c.Tenant == "" {
		return effect.DefaultTenant
	}
	return c.Tenant
}
