package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/undolog/undolog/effect"
)

// Tenants lists the tenants that have effects.
func (l *Log) Tenants(ctx context.Context) ([]string, error) {
	tenants, err := l.driver.Tenants(ctx)
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	return tenants, nil
}

// Lose records that the outcome of a claim is lost, which readers derive by themselves: its owner has gone, or
// no answer came in time. A late answer of the attempt still settles it. It returns nil when the claim was moved
// meanwhile, or holds after all.
func (l *Log) Lose(ctx context.Context, r *effect.Record) (*effect.Record, error) {
	now := l.opts.Now()
	if r.State != effect.StateClaimed || r.StateAt(now) != effect.StateInDoubt {
		return nil, nil
	}
	reason := "the process that held it has gone"
	if !r.TimeoutAt.IsZero() && !now.Before(r.TimeoutAt) {
		reason = "no answer came in time"
	} else if !r.LeaseUntil.IsZero() {
		reason = "its lease is over and no outcome was told"
	}
	lost, err := l.driver.Append(ctx, r.Tenant, &effect.Transition{
		Effect: r.ID, Ordinal: r.Ordinal + 1, Attempt: r.Attempt, State: effect.StateInDoubt, Reason: reason,
	})
	if _, moved := errors.AsType[*ConflictError](err); moved {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lose effect %s: %w", r.ID, err)
	}
	l.settled.wake(r.Tenant, r.ID)
	return lost, nil
}
