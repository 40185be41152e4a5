package store

import (
	"bytes"
	"time"

	"github.com/undolog/undolog/effect"
)

// NewRecord is the effect that a verdict to insert, or to ask, makes of the call, as it stands once claimed
// or asked about at that time.
func (p *Begin) NewRecord(v *effect.Verdict, at time.Time) *effect.Record {
	c, id := p.Call, p.Identity
	r := &effect.Record{
		ID: p.ID, Tenant: p.Tenant(), Principal: c.Principal, Session: c.Session, Trace: c.Trace,
		Server: c.Server, Tool: c.Tool, Tier: p.Contract.Tier,
		Rule: id.Rule, Scope: c.Secrets.Text(id.Scope), Signature: id.Signature, Window: id.Window, Generation: v.Generation,
		Key: c.Secrets.Text(c.Key), Run: c.Run, Occurrence: c.Occurrence,
		Arguments: OrEmptyObject(c.Kept()), ArgsDigest: id.Arguments, Complete: id.Complete,
		Policy: p.Policy, Source: p.Contract.Source, LookalikeOf: v.Lookalike,
		State: effect.StateClaimed, Attempt: 1, Owner: p.Owner, CreatedAt: at,
	}
	r.ChangedAt = at
	if v.Action == effect.ActRequest {
		p.requested(r, v, at)
	} else {
		p.claimed(r, at)
	}
	return r
}

// Reclaimed is the latest effect as it stands once the verdict's next attempt, or its waiting one again, is
// claimed at that time.
func (p *Begin) Reclaimed(v *effect.Verdict, latest *effect.Record, at time.Time) *effect.Record {
	r := *latest
	r.State, r.Attempt, r.Ordinal, r.Owner = effect.StateClaimed, v.Attempt, latest.Ordinal+1, p.Owner
	r.By, r.Reason, r.Delivered, r.ArrivedAt = "", "", false, time.Time{}
	if v.Action != effect.ActContinue {
		r.Continuation = ""
	}
	if v.Action == effect.ActReclaim {
		r.Approval = nil // it was of an attempt before, and is used once
	}
	p.claimed(&r, at)
	return &r
}

// Requested is the latest effect as it stands once the verdict's request for approval is made at that time.
// What is asked about are the arguments of this call, which may be other ones than those of the effect where
// they are not its identity. Those of the effect may also have been pruned.
func (p *Begin) Requested(v *effect.Verdict, latest *effect.Record, at time.Time) *effect.Record {
	r := *latest
	r.Attempt, r.Ordinal, r.ChangedAt = v.Attempt, latest.Ordinal+1, at
	r.By, r.Reason, r.Continuation, r.Delivered, r.ArrivedAt = "", "", "", false, time.Time{}
	p.requested(&r, v, at)
	if r.Approval.Complete != r.Complete || len(r.Arguments) == 0 {
		r.Approval.Arguments = bytes.Clone(OrEmptyObject(p.Call.Kept()))
	}
	return &r
}

// requested makes the record await approval: nobody holds a claim on it.
func (p *Begin) requested(r *effect.Record, v *effect.Verdict, at time.Time) {
	a := *v.Request
	a.ID, a.Handle, a.Policy = p.Request.ID, p.Request.Handle, p.Policy
	a.RequestedAt, a.DecideUntil = at, at.Add(p.Contract.Asking.DecideFor)
	r.State, r.Approval = effect.StateAwaitingApproval, &a
	r.Owner, r.OwnerUntil, r.LeaseUntil, r.TimeoutAt = "", time.Time{}, time.Time{}, time.Time{}
}

// claimed says until when a claim holds: for a remote invoker a fixed time, else as long as the owner's
// heart beats, and never past the tool's time-out.
func (p *Begin) claimed(r *effect.Record, at time.Time) {
	r.ChangedAt = at
	r.LeaseUntil = later(at, p.Lease())
	r.TimeoutAt = later(at, p.Contract.Timeout)
}

// Lease is how long the claim holds without a heart; zero when the owner's heart holds it.
func (p *Begin) Lease() time.Duration {
	if p.Remote {
		return p.Contract.Lease
	}
	return 0
}

// Tenant is the call's tenant by the rule of effect.Call.
func (p *Begin) Tenant() string {
	if p.Call.Tenant == "" {
		return effect.DefaultTenant
	}
	return p.Call.Tenant
}

// Shown is the effect that a call which may not run is told of: nothing of another principal's.
func (p *Begin) Shown(f *effect.Facts, v *effect.Verdict) *effect.Record {
	r := f.Latest
	if r == nil && v.Lookalike != "" {
		r = f.Lookalike
	}
	if r != nil && r.Principal != p.Call.Principal && !p.Contract.ShareTenant {
		return nil
	}
	return r
}

// Claimed is what a caller gets that may dispatch.
func Claimed(v effect.Verdict, r *effect.Record) *Begun {
	return &Begun{Verdict: v, Record: r, Claim: &effect.Claim{
		Effect: r.ID, Tenant: r.Tenant, Attempt: r.Attempt, Ordinal: r.Ordinal, Owner: r.Owner,
	}}
}

// MayMove is the fence of Append. A live claim is moved by its owner only; whoever holds no claim (a
// person, a probe) moves what is in doubt or waits.
func MayMove(was *effect.Record, move *effect.Transition, now time.Time) bool {
	switch {
	case move.Ordinal != was.Ordinal+1, !effect.CanMove(was.State, move.State):
		return false
	case move.State != effect.StateClaimed && move.Attempt != was.Attempt:
		return false
	case move.Owner != "":
		return move.Owner == was.Owner
	}
	return was.StateAt(now) != effect.StateClaimed
}

// Moved is the effect as a transition of that time leaves it. It shares no bytes with the transition.
func Moved(was *effect.Record, move *effect.Transition, at time.Time) *effect.Record {
	r := *was
	r.State, r.Ordinal, r.Attempt, r.ChangedAt = move.State, move.Ordinal, move.Attempt, at
	r.By, r.Reason, r.Continuation = move.By, move.Reason, move.Continuation
	r.LeaseUntil, r.TimeoutAt, r.Delivered = move.LeaseUntil, move.TimeoutAt, false
	if move.Approval != nil {
		r.Approval = move.Approval
	}
	if move.Owner != "" {
		r.Owner = move.Owner // else the attempt stays its owner's
	}
	if move.Answer.Kind != effect.AnswerNone {
		r.Answer = move.Answer
		r.Answer.Body = bytes.Clone(move.Answer.Body)
	}
	return &r
}

// OrEmptyObject is the arguments of a call that gave none.
func OrEmptyObject(arguments []byte) []byte {
	if len(arguments) == 0 {
		return []byte("{}")
	}
	return arguments
}

// later is when something that lasts d from a time ends; the zero time when it lasts for ever.
func later(at time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return at.Add(d)
}
