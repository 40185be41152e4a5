package chain

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/undolog/undolog/interceptors"
)

// PhaseParams are what Execute runs one phase with.
type PhaseParams struct {
	Event     string
	Phase     interceptors.Phase
	Direction Direction
	Payload   json.RawMessage // nil: absent; interceptors see an empty object
	Request   *Request        // who and what the operation belongs to; nil: unknown
	Exchange  string          // correlation id, sent as context[ExchangeKey]; empty: not sent

	late func() // called when an invocation that was given up on returns after all
}

// Status says how a phase ended.
type Status string

const (
	StatusSuccess          Status = "success"
	StatusValidationFailed Status = "validation_failed"
	StatusMutationFailed   Status = "mutation_failed"
	StatusTimeout          Status = "timeout" // the aggregate deadline ended the phase
)

// PhaseResult is what one phase came to.
type PhaseResult struct {
	Status   Status
	Payload  json.RawMessage // what goes on; nil when blocked, or when it was absent and nothing changed it
	Modified bool
	Records  []Record // in plan order, those that were called or failed
	Summary  Summary
	Abort    *Abort // set when Status is not success
	Dispatch Dispatch
	Elapsed  time.Duration

	// Respond is set when a trusted mutator answered in the target's place and no validator objected.
	Respond   *interceptors.RespondError
	responder string
}

// Record is one interceptor's part in a phase.
type Record struct {
	Host        string
	Interceptor string
	Type        interceptors.Type
	Mode        interceptors.Mode
	Result      *interceptors.Result // nil when it failed, blocked or responded by error
	Failure     error                // an invocation failure; never for the requester
	Applied     bool                 // a change that took effect
	Elapsed     time.Duration
}

// Summary counts the findings of validators, those in audit mode included.
type Summary struct {
	Errors, Warnings, Infos int
}

// Abort says who ended a phase and why. Reason is for logs and never for the requester.
type Abort struct {
	Interceptor string
	Type        interceptors.Type
	Reason      string
	Denied      bool                     // an explicit rejection, where false is a failure
	Block       *interceptors.BlockError // what the requester may be told, from a trusted host
}

var errDeadline = errors.New("the phase's deadline is over")

// Execute runs one phase: the pass of validators and the pass of mutators, in the order of the direction.
// It never fails as such; what stops the operation is in the result. On events that are not Governed it
// calls nobody.
func (c *Chain) Execute(ctx context.Context, p *PhaseParams) *PhaseResult {
	out := &PhaseResult{Status: StatusSuccess, Payload: p.Payload}
	if !Governed(p.Event) {
		return out
	}
	key := planKey{event: p.Event, phase: p.Phase}
	if p.Request != nil {
		key.protocol = p.Request.Protocol
	}
	plan := c.plan(ctx, key)
	if plan.empty() {
		return out
	}
	started := time.Now()
	ctx, cancel := c.withDeadline(ctx)
	defer cancel()
	r := &run{chain: c, params: p, plan: plan, out: out, current: p.Payload}
	if r.current == nil {
		r.current = json.RawMessage("{}")
	}
	r.pass(ctx)
	out.Elapsed = time.Since(started)
	return out
}

func (c *Chain) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.opts.Deadline == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, c.opts.Deadline, errDeadline)
}

// run is one phase under way.
type run struct {
	chain   *Chain
	params  *PhaseParams
	plan    *plan
	out     *PhaseResult
	current json.RawMessage // the payload as it stands, never nil
	pinned  *pinned         // read when first needed

	timestamp string // one for all
}

func (r *run) pass(ctx context.Context) {
	received := r.chain.opts.Now()
	if request := r.params.Request; request != nil && !request.ReceivedAt.IsZero() {
		received = request.ReceivedAt
	}
	r.timestamp = received.UTC().Format(time.RFC3339Nano)
	first, second := r.validate, r.mutate
	if r.params.Direction == Sending {
		first, second = second, first
	}
	if !first(ctx) || !second(ctx) {
		r.out.Payload, r.out.Modified = nil, false
		r.out.Respond, r.out.responder = nil, ""
		return
	}
	if r.out.Modified {
		r.out.Payload = r.current
	}
}

// abort ends the phase. It returns false, which is what a pass that aborted returns.
func (r *run) abort(ctx context.Context, e *entry, status Status, a *Abort) bool {
	a.Interceptor, a.Type = e.descriptor.Name, e.descriptor.Type
	if !a.Denied && context.Cause(ctx) == errDeadline {
		status = StatusTimeout
	}
	r.out.Status, r.out.Abort = status, a
	return false
}

func (r *run) record(e *entry, o *outcome) *Record {
	r.out.Records = append(r.out.Records, Record{
		Host:        e.host.Name(),
		Interceptor: e.descriptor.Name,
		Type:        e.descriptor.Type,
		Mode:        e.mode,
		Result:      o.result,
		Failure:     o.failure,
		Elapsed:     o.elapsed,
	})
	return &r.out.Records[len(r.out.Records)-1]
}
