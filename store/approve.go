package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/undolog/undolog/effect"
)

func newRequest() (Request, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Request{}, fmt.Errorf("name request: %w", err)
	}
	return Request{ID: id.String(), Handle: rand.Text()}, nil
}

// DecideParams is a decision on an effect that awaits approval.
type DecideParams struct {
	Tenant string
	ID     string // of the effect
	effect.Decision
}

// Decide records a person's decision on an effect that awaits approval, and returns the effect as it then
// is. Of any number of decisions that exclude each other one is recorded; the others get an
// *effect.DecidedError that says by whom and when. An *effect.ForbiddenError means that this person may not
// decide this way, an *effect.InvalidError that the decision lacks something. An edit is refused when the
// edited call is under way or has run, and so is its approval: it would run twice.
func (l *Log) Decide(ctx context.Context, p *DecideParams) (*effect.Record, error) {
	for {
		record, err := l.decide(ctx, p)
		if conflict, ok := errors.AsType[*ConflictError](err); ok && conflict.Record != nil {
			if ctx.Err() == nil {
				continue // somebody was first: decide on what they left
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s effect %s: %w", p.Kind, p.ID, err)
		}
		l.settled.wake(p.Tenant, p.ID)
		return record, nil
	}
}

func (l *Log) decide(ctx context.Context, p *DecideParams) (*effect.Record, error) {
	was, err := l.driver.Effect(ctx, p.Tenant, p.ID)
	if err != nil {
		return nil, err
	}
	now := l.opts.Now().UTC().Truncate(time.Microsecond)
	move, err := was.Decided(&p.Decision, now)
	if err != nil {
		return nil, err
	}
	if p.Kind == effect.DecideEdit || p.Kind == effect.DecideApprove {
		if err := l.checkEdited(ctx, was, move.Approval, now); err != nil {
			return nil, err
		}
	}
	return l.driver.Append(ctx, p.Tenant, move)
}

// checkEdited refuses an edit that would make a call run twice: one that equals what is under way, waits for
// approval itself, or has run and would still be answered from the record.
func (l *Log) checkEdited(ctx context.Context, was *effect.Record, a *effect.Approval, now time.Time) error {
	if !a.IsEdited() || was.Window.IsZero() {
		return nil
	}
	contract := &effect.Contract{Identity: a.Identity, Volatile: a.Volatile, NoKeyArgument: true}
	id, err := contract.Identify(&effect.Call{
		Tenant: was.Tenant, Principal: was.Principal, Server: was.Server, Tool: was.Tool, Arguments: a.Arguments, Occurrence: was.Occurrence,
	})
	if err != nil {
		return err
	}
	if id.Window == was.Window {
		return nil
	}
	equals, err := l.driver.Equals(ctx, was.Tenant, id.Window, 16)
	if err != nil {
		return err
	}
	for _, r := range equals {
		switch r.StateAt(now) {
		case effect.StateReleased, effect.StateFailed, effect.StateExpired, effect.StateVoid, effect.StateDenied:
		default:
			return &effect.ForbiddenError{Recorded: r.ID, Reason: fmt.Sprintf(
				"the edited call is on record as effect %s (%s): it would run twice. Deny this one, or edit it otherwise", r.ID, r.StateAt(now))}
		}
	}
	return nil
}

// Void ends a request that may not be used any more: the policy forbids the call now. Reason is told to the
// agent. An effect that awaits no approval is a *ConflictError.
func (l *Log) Void(ctx context.Context, tenant, id, reason string) (*effect.Record, error) {
	return l.endRequest(ctx, tenant, id, func(r *effect.Record) (effect.State, string) { return effect.StateVoid, reason })
}

// Expire records that the clock of a request is over, which readers derive by themselves: expired when nobody
// decided, void when the approval was not used. While the clock runs it is a *ConflictError.
func (l *Log) Expire(ctx context.Context, tenant, id string) (*effect.Record, error) {
	now := l.opts.Now()
	return l.endRequest(ctx, tenant, id, func(r *effect.Record) (effect.State, string) {
		if r.StateAt(now) == effect.StateVoid {
			return effect.StateVoid, "approved, and not used in time"
		}
		return r.StateAt(now), "nobody decided in time"
	})
}

func (l *Log) endRequest(ctx context.Context, tenant, id string, end func(r *effect.Record) (effect.State, string)) (*effect.Record, error) {
	was, err := l.driver.Effect(ctx, tenant, id)
	if err == nil {
		state, reason := end(was)
		if was.State != effect.StateAwaitingApproval || state == effect.StateAwaitingApproval {
			err = &ConflictError{ID: id, Want: state, Record: was}
		} else {
			was, err = l.driver.Append(ctx, tenant, &effect.Transition{
				Effect: was.ID, Ordinal: was.Ordinal + 1, Attempt: was.Attempt, State: state, Reason: reason, Approval: was.Approval,
			})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("end request of effect %s: %w", id, err)
	}
	l.settled.wake(tenant, id)
	return was, nil
}

// Remind records that the people who may decide were reminded, once for each request and each extension. It
// reports whether this call did it; then who calls tells them.
func (l *Log) Remind(ctx context.Context, r *effect.Record) (bool, error) {
	now := l.opts.Now()
	a := r.Approval
	if r.StateAt(now) != effect.StateAwaitingApproval || a == nil || a.IsApproved() || a.Reminded || now.Before(a.RemindAt()) {
		return false, nil
	}
	next := *a
	next.Reminded = true
	_, err := l.driver.Append(ctx, r.Tenant, &effect.Transition{
		Effect: r.ID, Ordinal: r.Ordinal + 1, Attempt: r.Attempt, State: r.State, Approval: &next,
	})
	if _, ok := errors.AsType[*ConflictError](err); ok {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remind of effect %s: %w", r.ID, err)
	}
	detail, err := json.Marshal(reminderDetail{Request: a.ID, Until: a.DecideUntil})
	if err != nil {
		return true, err
	}
	l.Note(effect.Event{
		Tenant: r.Tenant, Effect: r.ID, Kind: effect.EventReminder, Principal: r.Principal, Server: r.Server, Tool: r.Tool, Detail: detail,
	})
	return true, nil
}

type reminderDetail struct {
	Request string    `json:"request"`
	Until   time.Time `json:"until"`
}

// AwaitDecision returns the effect when it no longer waits for people: approved, denied, over, or claimed
// by another caller. It sees what other processes do as Wait does.
func (l *Log) AwaitDecision(ctx context.Context, tenant, id string) (*effect.Record, error) {
	return l.wait(ctx, tenant, id, func(r *effect.Record) bool {
		return r.StateAt(l.opts.Now()) == effect.StateAwaitingApproval && !r.Approval.IsApproved()
	})
}

// Grant records a standing grant and gives it its id and time.
func (l *Log) Grant(ctx context.Context, g effect.Grant) (*effect.Grant, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("name grant: %w", err)
	}
	g.ID, g.CreatedAt = id.String(), l.opts.Now()
	if err := g.Check(); err != nil {
		return nil, fmt.Errorf("grant %s on %s: %w", g.Tool, g.Server, err)
	}
	if err := l.driver.Grant(ctx, &g); err != nil {
		return nil, fmt.Errorf("grant %s on %s: %w", g.Tool, g.Server, err)
	}
	return &g, nil
}

// Revoke ends a standing grant. It returns the grant, and whether this call revoked it. The error is an
// *effect.InvalidError where no reason is given.
func (l *Log) Revoke(ctx context.Context, tenant, id, by, reason string) (*effect.Grant, bool, error) {
	switch {
	case by == "":
		return nil, false, fmt.Errorf("revoke grant %s: %w", id, errNobody)
	case strings.TrimSpace(reason) == "":
		return nil, false, fmt.Errorf("revoke grant %s: %w", id, &effect.InvalidError{Pointer: "/reason", Reason: "say why the grant ends"})
	}
	g, revoked, err := l.driver.Revoke(ctx, tenant, id, by, reason)
	if err != nil {
		return nil, false, fmt.Errorf("revoke grant %s: %w", id, err)
	}
	return g, revoked, nil
}

// Grants lists standing grants, newest first.
func (l *Log) Grants(ctx context.Context, f *GrantFilter) ([]*effect.Grant, error) {
	grants, err := l.driver.Grants(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("list grants: %w", err)
	}
	return grants, nil
}

// Awaiting lists the effects of a tenant that await approval and whose clocks run, newest first.
func (l *Log) Awaiting(ctx context.Context, tenant string, limit int) ([]*effect.Record, error) {
	return l.List(ctx, Filter{Tenant: tenant, Limit: limit}.Awaiting())
}
