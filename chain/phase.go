package chain

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// PhaseParams are what Execute runs one phase with.
type PhaseParams struct {
	Event string
	Phase interceptors.Phase
	// Direction is that of the interception point. Empty: as the chain's posture and Request.FromServer
	// have it; a gateway's two plans run one after the other.
	Direction Direction
	// Side restricts the phase to one of a gateway's plans. Empty: all interceptors.
	Side     Side
	Payload  json.RawMessage // nil: absent; interceptors see an empty object
	Request  *Request        // who and what the operation belongs to; nil: unknown
	Exchange string          // correlation id, sent as context[ExchangeKey]; empty: not sent

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
	Side        Side // of a gateway's plan
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
	Pause       *Pause                   // somebody must decide, says a trusted host
}

var errDeadline = errors.New("the phase's deadline is over")

// Execute runs one phase: the pass of validators and the pass of mutators, in the order of the direction.
// It never fails as such; what stops the operation is in the result. On events that are not Governed it
// calls nobody. It is what an application runs its own events with: one that it asks of a model, for
// instance, or any namespace/operation.
func (c *Chain) Execute(ctx context.Context, p *PhaseParams) *PhaseResult {
	out := c.execute(ctx, p)
	return &out
}

// execute costs nothing when nobody is concerned: neither p nor the result need the heap.
func (c *Chain) execute(ctx context.Context, p *PhaseParams) PhaseResult {
	out := PhaseResult{Status: StatusSuccess, Payload: p.Payload}
	legs, found := c.route(ctx, p)
	if !found {
		return out
	}
	ctx, cancel := c.withDeadline(ctx)
	defer cancel()
	r := &run{chain: c, params: *p, out: out, current: p.Payload}
	started := time.Now()
	r.through(ctx, legs)
	r.out.Elapsed = time.Since(started)
	return r.out
}

// route returns the legs of a phase with their plans, and whether anybody is in one.
func (c *Chain) route(ctx context.Context, p *PhaseParams) (legs [2]leg, found bool) {
	if !Governed(p.Event) {
		return legs, false
	}
	k := planKey{event: p.Event, phase: p.Phase}
	if p.Request != nil {
		k.protocol = p.Request.Protocol
	}
	s := c.snapshot(ctx)
	legs = c.legs(p)
	for i := range legs {
		if legs[i].direction == "" {
			continue
		}
		k.side = legs[i].side
		legs[i].plan = s.plan(k)
		found = found || !legs[i].plan.empty()
	}
	return legs, found
}

// concerned reports whether an interceptor would run in a phase of the request's event.
func (c *Chain) concerned(ctx context.Context, req *Request, phase interceptors.Phase) bool {
	_, found := c.route(ctx, &PhaseParams{Event: req.Event, Phase: phase, Request: req})
	return found
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
	params  PhaseParams
	leg     leg // the one under way
	out     PhaseResult
	current json.RawMessage // the payload as it stands, never nil
	changed bool            // it is not the one that came
	pinned  *pinned         // read when first needed

	timestamp string          // one for all
	exchange  json.RawMessage // Exchange as a JSON text; nil: none

	describeOnce sync.Once
	described    *interceptors.Context // of every local invocation
}

// through takes the payload past every leg. An answer in the target's place goes no further.
func (r *run) through(ctx context.Context, legs [2]leg) {
	if r.current == nil {
		r.current = json.RawMessage("{}")
	}
	received := r.chain.opts.Now()
	if request := r.params.Request; request != nil && !request.ReceivedAt.IsZero() {
		received = request.ReceivedAt
	}
	r.timestamp = received.UTC().Format(time.RFC3339Nano)
	if r.params.Exchange != "" {
		r.exchange = splice.Quote(r.params.Exchange)
	}
	r.out.Records = make([]Record, 0, legs[0].plan.size()+legs[1].plan.size())
	for _, l := range legs {
		if l.plan == nil || r.out.Respond != nil {
			continue
		}
		r.leg = l
		if !r.pass(ctx) {
			r.out.Payload, r.out.Respond, r.out.responder = nil, nil, ""
			return
		}
	}
	if r.changed {
		r.out.Payload, r.out.Modified = r.current, true
	}
}

// pass runs both passes of the leg.
func (r *run) pass(ctx context.Context) bool {
	if r.leg.direction == Sending {
		return r.mutate(ctx) && r.validate(ctx)
	}
	return r.validate(ctx) && r.mutate(ctx)
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
		Side:        r.leg.side,
		Type:        e.descriptor.Type,
		Mode:        e.mode,
		Result:      o.result,
		Failure:     o.failure,
		Elapsed:     o.elapsed,
	})
	return &r.out.Records[len(r.out.Records)-1]
}
