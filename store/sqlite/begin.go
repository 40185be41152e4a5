package sqlite

import (
	"context"
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
	if begun, err := t.beginNew(p); begun != nil || err != nil {
		return begun, err
	}
	facts, err := t.facts(p)
	if err != nil {
		return nil, fmt.Errorf("gather facts: %w", err)
	}
	v := effect.Decide(p.Call, p.Identity, p.Contract, facts, p.Continuation)
	var r *effect.Record
	switch v.Action {
	case effect.ActInsert:
		r, err = t.insert(p, &v)
	case effect.ActReclaim, effect.ActContinue, effect.ActApproved:
		r, err = t.reclaim(p, &v, facts.Latest)
	case effect.ActRequest:
		return t.request(p, v, facts.Latest)
	default:
		return &store.Begun{Verdict: v, Record: p.Shown(facts, &v)}, nil
	}
	if err != nil {
		return nil, err
	}
	return t.claimed(v, r), nil
}

// beginNew claims a call of which the log knows nothing, in one statement; nil when it knows something,
// or when even such a call is not to run.
func (t *tx) beginNew(p *store.Begin) (*store.Begun, error) {
	if p.Identity.Signature.IsZero() {
		return nil, nil // always new, and matches nothing
	}
	if p.Contract.AsksGrants() || len(p.Spends) > 0 {
		return nil, nil // other things of the log decide too
	}
	v := effect.Decide(p.Call, p.Identity, p.Contract, &effect.Facts{Now: t.now}, p.Continuation)
	if v.Action != effect.ActInsert {
		return nil, nil
	}
	r := p.NewRecord(&v, t.now)
	if err := t.beatWhenDue(p, r); err != nil { // mostly it is not, and the claim is all that is written
		return nil, err
	}
	if inserted, err := t.insertIfNew(r); !inserted || err != nil {
		return nil, err
	}
	return t.claimed(v, r), nil
}

func (t *tx) claimed(v effect.Verdict, r *effect.Record) *store.Begun {
	t.rememberClaim(r)
	return store.Claimed(v, r)
}

// facts gathers what effect.Decide wants to know, and no more than this call needs.
func (t *tx) facts(p *store.Begin) (*effect.Facts, error) {
	f := &effect.Facts{Now: t.now}
	if err := t.recorded(p, f); err != nil {
		return nil, err
	}
	if err := t.grants(p, f); err != nil {
		return nil, fmt.Errorf("read grants: %w", err)
	}
	if err := t.spent(p, f); err != nil {
		return nil, fmt.Errorf("read spends: %w", err)
	}
	return f, nil
}

// recorded is what the log has of the call itself.
func (t *tx) recorded(p *store.Begin, f *effect.Facts) (err error) {
	if p.Identity.Signature.IsZero() {
		return nil
	}
	f.Latest, err = one(t, selectRecord+`
		WHERE e.tenant = ? AND e.signature = ?
		ORDER BY e.generation DESC
		LIMIT 1`, p.Tenant(), p.Identity.Signature[:])
	if err != nil {
		return err
	}
	if f.Latest == nil {
		return t.lookalike(p, f)
	}
	p.Know(f.Latest)
	if f.Again, err = againOpen(t, f.Latest.ID); err != nil {
		return err
	}
	if f.UnknownRound, err = unknownRound(t, f.Latest, p.Continuation); err != nil {
		return err
	}
	if p.Identity.Rule == effect.RuleWindow && !f.Latest.State.IsOpen() {
		f.OtherWrites, err = otherWrites(t, f.Latest)
	}
	return err
}

// unknownRound reports whether a call goes on with a round that r, which waits, has never asked for.
func unknownRound(q queryer, r *effect.Record, continuation string) (bool, error) {
	if continuation == "" || r.State != effect.StateWaiting || r.Continuation == continuation {
		return false, nil
	}
	asked, err := exists(q, `SELECT 1 FROM transition WHERE effect = ? AND continuation = ?`, r.Seq, continuation)
	return !asked, err
}

// againOpen reports whether a granted run of the effect is not used up. An effect may have any number of
// events: the index event_again holds these two kinds alone.
func againOpen(q queryer, id string) (bool, error) {
	return exists(q, `
		SELECT 1
		FROM (SELECT kind FROM event
		      WHERE effect = ? AND kind IN ('again', 'again_used')
		      ORDER BY seq DESC
		      LIMIT 1)
		WHERE kind = 'again'`, id)
}

// otherWrites reports whether the caller of r has begun another write on its server since r's last
// attempt was begun: a first claim has its place by seq, a later attempt, or one that was asked about, by the
// position and the row of its claim. What only awaits approval has not begun.
func otherWrites(q queryer, r *effect.Record) (bool, error) {
	begun, row := r.Seq, int64(0)
	if r.Ordinal > 1 {
		const claim = `
			FROM transition
			WHERE effect = ? AND position IS NOT NULL
			ORDER BY ordinal DESC
			LIMIT 1`
		position, err := number(q, `SELECT position`+claim, r.Seq)
		if err != nil {
			return false, err
		}
		if row, err = number(q, `SELECT rowid`+claim, r.Seq); err != nil {
			return false, err
		}
		begun = max(begun, position)
	}
	found, err := exists(q, `
		SELECT 1
		FROM effect
		WHERE tenant = ? AND principal = ? AND server = ? AND seq > ? AND tier <> 'read' AND window IS NOT ? AND state = 'claimed'
		LIMIT 1`, r.Tenant, r.Principal, r.Server, begun, blob(r.Window))
	if err != nil || found {
		return found, err
	}
	return exists(q, `
		SELECT 1
		FROM transition t
		JOIN effect e ON e.seq = t.effect
		WHERE t.position >= ? AND t.rowid > ? AND t.effect <> ?
		  AND e.tenant = ? AND e.principal = ? AND e.server = ? AND e.window IS NOT ?
		LIMIT 1`, begun, row, r.Seq, r.Tenant, r.Principal, r.Server, blob(r.Window))
}

// lookalike looks for an equal call under another key or run, or none, whose effect may stand.
func (t *tx) lookalike(p *store.Begin, f *effect.Facts) (err error) {
	if p.Identity.Window.IsZero() {
		return nil
	}
	// However often the call was made under other keys, only its newest 64 are looked at.
	const standing = `
		AND (COALESCE(t.state, e.state) IN ('claimed', 'waiting', 'in_doubt')
		     OR COALESCE(t.state, e.state) = 'awaiting_approval' AND ? < COALESCE(t.use_until, t.decide_until, e.decide_until)
		     OR t.state IN ('committed', 'compensating', 'compensation_failed') AND t.at > ?)
		ORDER BY e.seq DESC
		LIMIT 1`
	now, since := micros(t.now), micros(t.now.Add(-p.Contract.Window))
	f.Lookalike, err = one(t, selectRecord+`
		WHERE e.seq IN (SELECT seq FROM effect
		                WHERE tenant = ? AND window = ? AND rule IN ('key', 'run') AND tier <> 'read' AND signature <> ?
		                ORDER BY seq DESC
		                LIMIT 64)`+standing,
		p.Tenant(), p.Identity.Window[:], p.Identity.Signature[:], now, since)
	if err == nil && f.Lookalike == nil && p.Identity.Rule != effect.RuleWindow {
		f.Lookalike, err = one(t, selectRecord+`
			WHERE e.tenant = ? AND e.signature = ?`+standing,
			p.Tenant(), p.Identity.Window[:], now, since)
	}
	if err != nil || f.Lookalike == nil {
		return err
	}
	p.Know(f.Lookalike)
	f.LookalikeAgain, err = againOpen(t, f.Lookalike.ID)
	return err
}

// insert claims a new generation; the unique signature makes it the only one.
func (t *tx) insert(p *store.Begin, v *effect.Verdict) (*effect.Record, error) {
	r := p.NewRecord(v, t.now)
	if err := t.insertEffect(r); err != nil {
		return nil, err
	}
	if err := t.beatWhenDue(p, r); err != nil {
		return nil, err
	}
	if err := t.spend(p, r); err != nil {
		return nil, err
	}
	return r, t.useAgain(p, v)
}

func (t *tx) insertEffect(r *effect.Record) error {
	result, err := t.exec(`
		INSERT INTO effect (generation, `+effectColumns+`)
		VALUES (?27, `+effectValues+`)`, append(effectArgs(r), r.Generation)...)
	if err != nil {
		return fmt.Errorf("insert effect %s: %w", r.ID, err)
	}
	r.Seq, err = result.LastInsertId()
	return err
}

// request records that a person is asked: as a new generation, or as the next move of the latest.
func (t *tx) request(p *store.Begin, v effect.Verdict, latest *effect.Record) (*store.Begun, error) {
	var r *effect.Record
	var err error
	if v.Generation > 0 {
		r = p.NewRecord(&v, t.now)
		err = t.insertAwaiting(r)
	} else {
		r = p.Requested(&v, latest, t.now)
		_, err = t.insertTransition(r, false, effect.Answer{}) // the record was read in this transaction
	}
	if err != nil {
		return nil, fmt.Errorf("request approval of effect %s: %w", r.ID, err)
	}
	return &store.Begun{Verdict: v, Record: r}, nil
}

func (t *tx) insertAwaiting(r *effect.Record) error {
	a, err := approvalOf(r)
	if err != nil {
		return err
	}
	result, err := t.exec(`
		INSERT INTO effect (generation, approval, decide_until, `+effectColumns+`)
		VALUES (?27, ?28, ?29, `+effectValues+`)`, append(effectArgs(r), r.Generation, a.document, a.decideUntil)...)
	if err != nil {
		return err
	}
	if r.Seq, err = result.LastInsertId(); err != nil {
		return err
	}
	return t.account(r)
}

// insertIfNew inserts the first generation of a call of which nothing is known, by signature or as a
// look-alike, and reports whether it did. Most calls are new, and to ask first would cost a query each. A
// signature that has a first generation is refused by the unique index, and the generation of a look-alike
// is NULL, which the schema refuses; OR IGNORE makes no row of either. (INSERT … SELECT … WHERE would copy
// the row to a temporary table, since it reads the table that it writes.)
func (t *tx) insertIfNew(r *effect.Record) (inserted bool, err error) {
	result, err := t.execLast(`
		INSERT OR IGNORE INTO effect (generation, `+effectColumns+`)
		VALUES (CASE
		        WHEN EXISTS (SELECT 1 FROM effect WHERE tenant = ?2 AND window = ?12 AND rule IN ('key', 'run')) THEN NULL
		        WHEN ?9 <> 'window' AND EXISTS (SELECT 1 FROM effect WHERE tenant = ?2 AND signature = ?12) THEN NULL
		        ELSE 1
		        END, `+effectValues+`)`, effectArgs(r)...)
	if err != nil {
		return false, fmt.Errorf("insert effect %s: %w", r.ID, err)
	}
	if n, err := result.RowsAffected(); n == 0 || err != nil {
		return false, err
	}
	r.Seq, err = result.LastInsertId()
	return true, err
}

// effectColumns are all columns of a new effect but its generation.
const (
	effectColumns = `
		id, tenant, principal, session, trace, server, tool, tier, rule, scope,
		signature, window, key, run, occurrence, args_digest, complete,
		policy, source, lookalike_of, created_at, state, owner, lease_until, timeout_at, arguments`
	effectValues = `
		?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
		?11, ?12, ?13, ?14, ?15, ?16, ?17,
		?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26`
)

// effectArgs has the state of the first move: a read that is recorded after its end was claimed.
func effectArgs(r *effect.Record) []any {
	state := effect.StateClaimed
	if r.State == effect.StateAwaitingApproval {
		state = r.State
	}
	return []any{
		r.ID, r.Tenant, r.Principal, r.Session, r.Trace, r.Server, r.Tool, string(r.Tier), string(r.Rule), r.Scope,
		blob(r.Signature), blob(r.Window), r.Key, r.Run, r.Occurrence, r.ArgsDigest[:], r.Complete[:],
		r.Policy, r.Source, r.LookalikeOf, micros(r.CreatedAt), string(state), r.Owner,
		nullMicros(r.LeaseUntil), nullMicros(r.TimeoutAt), []byte(r.Arguments),
	}
}

// reclaim claims the next attempt of an effect, the approved one, or the waiting one again.
func (t *tx) reclaim(p *store.Begin, v *effect.Verdict, latest *effect.Record) (*effect.Record, error) {
	r := p.Reclaimed(v, latest, t.now)
	// The record was read in this transaction: nobody can have taken the ordinal.
	begins := v.Action != effect.ActContinue
	if _, err := t.insertTransition(r, begins, effect.Answer{}); err != nil {
		return nil, fmt.Errorf("claim effect %s again: %w", r.ID, err)
	}
	if err := t.beatWhenDue(p, r); err != nil {
		return nil, err
	}
	if begins {
		if err := t.spend(p, r); err != nil {
			return nil, err
		}
	}
	return r, t.useAgain(p, v)
}

// useAgain notes that a granted run was used up by this claim.
func (t *tx) useAgain(p *store.Begin, v *effect.Verdict) error {
	if v.UsesAgain == "" {
		return nil
	}
	return t.insertEvent(&effect.Event{
		At: t.now, Tenant: p.Tenant(), Effect: v.UsesAgain, Kind: effect.EventAgainUsed,
		Principal: p.Call.Principal, Server: p.Call.Server, Tool: p.Call.Tool,
		Detail: []byte(`{"by":"` + p.ID + `"}`),
	})
}
