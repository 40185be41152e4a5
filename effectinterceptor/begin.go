package effectinterceptor

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/faults"
	"github.com/undolog/undolog/store"
)

// dispatchInfo is the info member by which an engine learns how to dispatch (see chain.DispatchKey).
const dispatchInfo = "dev.undolog/dispatch"

type dispatch struct {
	Detach    bool  `json:"detach,omitempty"`
	TimeoutMs int64 `json:"timeoutMs,omitempty"`
}

// begin is the request phase of undolog/effect: it claims the final payload, or answers in the target's
// place, or stops the call.
func (i *Interceptors) begin(ctx context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	c, err := parseCall(in.Payload)
	if err != nil {
		return nil, i.stopInvalid(err)
	}
	call, err := i.effectCall(in, c)
	if err != nil {
		return nil, i.stopInvalid(err)
	}
	contract, err := i.contractOf(ctx, call)
	if err != nil {
		return nil, i.stopUnavailable(ctx, call, err)
	}
	o := i.newOpen(in, call, contract)
	if contract.Tier == effect.TierRead {
		return i.beginRead(in, c, o)
	}
	if o.identity, err = contract.Identify(call); err != nil {
		return nil, i.stopInvalid(err)
	}
	return i.claim(ctx, in, c, o)
}

func (i *Interceptors) newOpen(in *interceptors.Invocation, call *effect.Call, contract *effect.Contract) *open {
	now := i.opts.Now()
	return &open{
		exchange: exchangeOf(in),
		invoker:  invokerOf(in),
		session:  in.Context.SessionID,
		span:     spanOf(in),
		local:    in.Caller.Local,
		until:    now.Add(max(contract.Lease, contract.Timeout)),
		call:     call,
		contract: contract,
		started:  now,
	}
}

// beginRead lets a read through: it never claims, joins or replays, and is logged after its answer.
func (i *Interceptors) beginRead(in *interceptors.Invocation, c *toolCall, o *open) (*interceptors.Change, error) {
	payload, err := stripRequest(in.Payload, c)
	if err != nil {
		return nil, i.stopInvalid(err)
	}
	i.open.add(o, o.started)
	return &interceptors.Change{Payload: payload, Info: (&info{Outcome: outcomeExecute}).wrapped()}, nil
}

// claim asks the log, waits where an equal call is under way, and does what the log decided. A call that
// waited asks again when its answer is no answer: the other's was never sent, or may safely run again.
func (i *Interceptors) claim(ctx context.Context, in *interceptors.Invocation, c *toolCall, o *open) (*interceptors.Change, error) {
	deadline := time.Now().Add(i.opts.JoinWait)
	faults.Point("before-begin")
	for {
		begun, err := i.log.Begin(ctx, &store.BeginParams{
			Call:         o.call,
			Identity:     o.identity,
			Contract:     o.contract,
			Policy:       i.policyDigest(),
			Remote:       !in.Caller.Local,
			Continuation: c.continuation(),
		})
		if err != nil {
			return nil, i.stopUnavailable(ctx, o.call, err)
		}
		if begun.Claim != nil {
			faults.Point("after-begin")
			o.claim, o.effectID = begun.Claim, begun.Claim.Effect
			if ctx.Err() != nil { // nobody will take the answer of this phase, so nobody will dispatch
				i.settle(ctx, o, effect.Outcome{Kind: effect.OutcomeUnsent, Reason: "the invoker left before the claim was made"})
				return nil, ctx.Err()
			}
			return i.execute(in, c, o, begun)
		}
		if begun.Verdict.Action != effect.ActJoin {
			return nil, i.answer(o, begun)
		}
		settled, err := i.join(ctx, o, begun.Record, deadline)
		if settled || err != nil {
			return nil, err
		}
	}
}

// execute stamps the claimed call and lets it go on.
func (i *Interceptors) execute(in *interceptors.Invocation, c *toolCall, o *open, begun *store.Begun) (*interceptors.Change, error) {
	i.open.add(o, o.started)
	payload, err := stampRequest(in.Payload, c, o.identity, begun.Claim)
	if err != nil {
		i.settle(context.Background(), o, effect.Outcome{Kind: effect.OutcomeUnsent, Reason: "stamping the request: " + err.Error()})
		return nil, err
	}
	out := newInfo(outcomeExecute, o.identity, begun.Record)
	out.Attempt = begun.Claim.Attempt
	return &interceptors.Change{Payload: payload, Info: out.wrapped(member{dispatchInfo, dispatch{
		Detach:    o.contract.Detach,
		TimeoutMs: clampMs(o.contract.Timeout),
	}})}, nil
}

// join waits for the outcome of an equal call that is under way and answers with it, failure or not. It
// reports false without an error when the call should ask the log again.
func (i *Interceptors) join(ctx context.Context, o *open, r *effect.Record, deadline time.Time) (bool, error) {
	wait, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	now, err := i.log.Wait(wait, r.Tenant, r.ID)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return true, inProgress(o.identity, r).block(codeInternal)
	case err != nil:
		return true, i.stopUnavailable(ctx, o.call, err)
	}
	switch state := now.StateAt(i.opts.Now()); state {
	case effect.StateCommitted, effect.StateFailed, effect.StateWaiting:
		return true, i.replay(o, now, false)
	case effect.StateInDoubt:
		if o.contract.Tier != effect.TierIdempotent {
			return true, inDoubt(o.identity, now).block(codeInternal)
		}
	}
	return false, nil
}

// answer is what a caller gets that may not dispatch.
func (i *Interceptors) answer(o *open, begun *store.Begun) error {
	v, r := begun.Verdict, begun.Record
	switch v.Action {
	case effect.ActReplay:
		return i.replay(o, r, v.Repeat)
	case effect.ActInDoubt:
		return inDoubt(o.identity, r).block(codeInternal)
	case effect.ActConflict:
		return refused(outcomeConflict, v.Reason, o.identity, nil).block(codeInternal)
	default:
		i.note(o, effect.EventRefused, r, v.Reason)
		return refused(outcomeDenied, v.Reason, o.identity, r).block(codeInternal)
	}
}

// replay answers from the record. The text for the model is added to a delivered repeat, and to every
// replay of a settled effect where the engine cannot say what was delivered.
func (i *Interceptors) replay(o *open, r *effect.Record, repeat bool) error {
	o.replayed, o.effectID = true, r.ID
	i.open.add(o, o.started)
	blind := !i.opts.Delivery || !o.local
	note := ""
	if o.contract.Annotate && o.identity.Rule == effect.RuleWindow && r.State != effect.StateWaiting && (repeat || blind) {
		note = repeated(r, o.contract.Window)
	}
	i.note(o, effect.EventReplayed, r, "")
	return respond(o.identity, r, note)
}

func (i *Interceptors) stopInvalid(err error) error {
	var bad *effect.InvalidError
	if errors.As(err, &bad) {
		return invalid(bad).block(codeInvalidParams)
	}
	return err
}

func (i *Interceptors) stopUnavailable(ctx context.Context, call *effect.Call, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	i.opts.Logger.ErrorContext(ctx, "call not made: the log did not answer",
		slog.String("server", call.Server), slog.String("tool", call.Tool), slog.Any("error", err))
	return unavailable(call.Server).block(codeInternal)
}

func (i *Interceptors) policyDigest() string {
	if i.opts.Policy == nil {
		return ""
	}
	return i.opts.Policy.Digest
}

// contractOf is what holds for the call's tool.
func (i *Interceptors) contractOf(ctx context.Context, call *effect.Call) (*effect.Contract, error) {
	ann, err := i.catalog.annotations(ctx, call.Tenant, call.Server, call.Tool)
	if err != nil {
		return nil, err
	}
	trusted := i.opts.Trust(call.Server)
	if i.opts.Policy == nil {
		return effect.DefaultContract(ann, trusted), nil
	}
	return i.opts.Policy.Contract(call.Server, call.Tool, ann, trusted), nil
}

func (i *Interceptors) note(o *open, kind string, r *effect.Record, reason string) {
	ev := effect.Event{
		At: i.opts.Now(), Tenant: o.call.Tenant, Kind: kind,
		Principal: o.call.Principal, Server: o.call.Server, Tool: o.call.Tool,
	}
	if r != nil {
		ev.Effect = r.ID
	}
	if reason != "" {
		detail, err := json.Marshal(map[string]string{"reason": reason})
		if err != nil {
			panic(err) // two strings
		}
		ev.Detail = detail
	}
	i.log.Note(ev)
}
