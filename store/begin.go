package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/undolog/undolog/effect"
)

// errRead says that a read was to be claimed: a bug of the caller's.
var errRead = errors.New("a read is recorded after its answer and never claimed")

// BeginParams is a call that is about to go out.
type BeginParams struct {
	Call         *effect.Call
	Identity     *effect.Identity // of Call under Contract
	Contract     *effect.Contract
	Policy       string // digest of the policy in force, empty without one
	Remote       bool   // claimed for a remote invoker: Contract.Lease holds the claim, not our heartbeat
	Continuation string // requestState or task id that the call carries; empty: none
	// Waited is how long the call has waited already for a log that did not answer: it does not wait for that
	// time once more.
	Waited time.Duration
}

// Begin decides on a call and records its claim, in one transaction. A claim is durable when Begin
// returns; the caller that gets one MUST settle it. After an error nothing may be dispatched. What is
// known to have been delivered by this process is part of the decision.
func (l *Log) Begin(ctx context.Context, p *BeginParams) (*Begun, error) {
	if p.Contract.Tier == effect.TierRead {
		return nil, fmt.Errorf("begin %s on %s: %w", p.Call.Tool, p.Call.Server, errRead)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("name effect: %w", err)
	}
	request, err := newRequest()
	if err != nil {
		return nil, err
	}
	spends, err := p.Contract.Spends(p.Call)
	if err != nil {
		return nil, fmt.Errorf("begin %s on %s: %w", p.Call.Tool, p.Call.Server, err)
	}
	call := *p.Call
	if !call.ReceivedAt.IsZero() {
		call.ReceivedAt = l.clock.LogTime(call.ReceivedAt)
	}
	from := time.Now()
	begun, err := l.driver.Begin(ctx, &Begin{
		ID: id.String(), Call: &call, Identity: p.Identity, Contract: p.Contract, Policy: p.Policy,
		Owner: l.owner, TTL: l.opts.TTL, Remote: p.Remote, Continuation: p.Continuation,
		Request: request, Spends: spends, Unwritten: l.notes.unwritten(), Waited: p.Waited,
	})
	if err != nil {
		return nil, fmt.Errorf("begin %s on %s: %w", p.Call.Tool, p.Call.Server, err)
	}
	if begun.Claim != nil && !p.Remote {
		l.heart.claimed(from)
		l.hold(begun.Claim.Effect)
	}
	return begun, nil
}
