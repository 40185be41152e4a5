package effectinterceptor

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/faults"
)

// End is how a dispatch ended, as an engine tells it. Result or Error is set when Kind is
// effect.OutcomeAnswered.
type End struct {
	Kind   effect.OutcomeKind
	Result json.RawMessage
	Error  json.RawMessage
	Reason string
}

// Settled records the end of the dispatch of an exchange: once with what is first known, and once more
// if an answer still comes after it was lost. It returns when the outcome is durable, or when recording
// it was left to the background; an exchange that is no effect is ignored.
func (i *Interceptors) Settled(ctx context.Context, exchange string, end End) {
	o := i.open.byExchange(exchange)
	if o == nil || o.replayed {
		return
	}
	faults.Point("after-answer")
	out := effect.Outcome{Kind: end.Kind, Reason: end.Reason}
	if end.Kind == effect.OutcomeAnswered {
		out = classify(end.Result, end.Error)
	}
	i.settle(ctx, o, out)
	faults.Point("after-settle")
	if !i.opts.Delivery && out.Kind != effect.OutcomeLost {
		i.open.remove(o)
	}
}

// Delivered records whether the answer of an exchange reached its requester, and ends the exchange.
func (i *Interceptors) Delivered(exchange string, at time.Time, delivered bool) {
	o := i.open.byExchange(exchange)
	if o == nil {
		return
	}
	o.mu.Lock()
	settled := o.settled || o.replayed || o.claim == nil
	o.mu.Unlock()
	if delivered && settled && o.effectID != "" {
		i.log.Delivered(o.call.Tenant, o.effectID, at)
	}
	i.open.remove(o)
}

// Explain is what the requester of an exchange is told when its dispatch was lost or not sent; nil when
// the exchange is no effect.
func (i *Interceptors) Explain(exchange string, kind effect.OutcomeKind) *interceptors.BlockError {
	o := i.open.byExchange(exchange)
	if o == nil || o.claim == nil {
		return nil
	}
	r := &effect.Record{ID: o.claim.Effect, Attempt: o.claim.Attempt, CreatedAt: o.started}
	switch kind {
	case effect.OutcomeUnsent:
		return unsent(o.identity, r).block(codeInternal)
	case effect.OutcomeLost:
		return lost(o.identity, r, o.contract.Tier == effect.TierIdempotent).block(codeInternal)
	}
	return nil
}

// settleResponse is the response phase of undolog/effect: it settles the call that the result answers,
// unless the engine has told of its end already, and takes our stamp off.
func (i *Interceptors) settleResponse(ctx context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	o := i.settleBy(ctx, in)
	if o == nil || o.replayed {
		if o != nil && !o.local {
			i.open.remove(o)
		}
		return &interceptors.Change{}, nil
	}
	if !o.local {
		i.open.remove(o)
	}
	result, err := stripResult(in.Payload)
	if err != nil {
		return nil, err
	}
	change := &interceptors.Change{Payload: result}
	if o.claim != nil {
		r := &effect.Record{ID: o.claim.Effect, Attempt: o.claim.Attempt}
		change.Info = newInfo(outcomeExecute, o.identity, r).wrapped()
	}
	return change, nil
}

// settleBy records the result under the call that it answers and returns that call. A response that
// answers none that is known is kept as an event, never guessed.
func (i *Interceptors) settleBy(ctx context.Context, in *interceptors.Invocation) *open {
	echoed := echoedEffect(in.Payload)
	o := i.open.match(in, echoed)
	if o == nil && echoed != "" && !in.Caller.Local {
		o = i.reopen(ctx, in, echoed)
	}
	if o == nil {
		if !in.Caller.Local {
			i.log.Note(effect.Event{At: i.opts.Now(), Tenant: i.tenantOf(in), Kind: effect.EventUnmatched, Principal: principalOf(in)})
		}
		return nil
	}
	if !o.replayed {
		i.settle(ctx, o, classify(in.Payload, nil))
	}
	return o
}

// reopen finds the claim of an effect that another process of ours made, by the id that the target
// echoed.
func (i *Interceptors) reopen(ctx context.Context, in *interceptors.Invocation, id string) *open {
	shown, err := i.log.Show(ctx, i.tenantOf(in), id)
	if err != nil {
		return nil
	}
	r := shown.Record
	if r.Principal != principalOf(in) || r.State != effect.StateClaimed {
		return nil
	}
	call := &effect.Call{Tenant: r.Tenant, Principal: r.Principal, Server: r.Server, Tool: r.Tool}
	contract, err := i.contractOf(ctx, call)
	if err != nil {
		return nil
	}
	return &open{
		call: call, contract: contract, effectID: r.ID, started: r.CreatedAt,
		identity: &effect.Identity{Rule: r.Rule, Signature: r.Signature},
		claim:    &effect.Claim{Effect: r.ID, Tenant: r.Tenant, Attempt: r.Attempt, Ordinal: r.Ordinal, Owner: r.Owner},
	}
}

// settle records an outcome of o once; after a lost one, one more.
func (i *Interceptors) settle(ctx context.Context, o *open, out effect.Outcome) {
	o.mu.Lock()
	if o.settled {
		o.mu.Unlock()
		return
	}
	o.settled = out.Kind != effect.OutcomeLost
	o.mu.Unlock()
	if o.claim == nil {
		i.recordRead(o, out)
		return
	}
	i.record(context.WithoutCancel(ctx), o, out)
}

// settleGrace is how long an answer is held back for the record of it. A log that takes longer goes on
// by itself, and the lease covers what it cannot write.
const settleGrace = 5 * time.Second

func (i *Interceptors) record(ctx context.Context, o *open, out effect.Outcome) {
	recorded := make(chan struct{})
	i.background.Go(func() {
		defer close(recorded)
		r, err := i.log.Settle(ctx, *o.claim, o.contract, out)
		if err != nil {
			i.opts.Logger.ErrorContext(ctx, "outcome not recorded yet", slog.String("effect", o.claim.Effect), slog.Any("error", err))
			return
		}
		i.opts.Logger.DebugContext(ctx, "effect settled", slog.String("effect", r.ID), slog.String("state", string(r.State)))
	})
	grace := time.NewTimer(settleGrace)
	defer grace.Stop()
	select {
	case <-recorded:
	case <-grace.C:
	}
}

func (i *Interceptors) recordRead(o *open, out effect.Outcome) {
	i.log.RecordRead(&effect.Record{
		Tenant: o.call.Tenant, Principal: o.call.Principal, Session: o.call.Session, Trace: o.call.Trace,
		Server: o.call.Server, Tool: o.call.Tool, Tier: effect.TierRead, Rule: effect.RuleNone,
		Run: o.call.Run, Arguments: o.call.Arguments,
		Policy: i.policyDigest(), Source: o.contract.Source, CreatedAt: o.started,
		State: effect.Settlement(o.contract, out), Attempt: 1, ChangedAt: i.opts.Now(),
		Answer: out.Answer, Reason: out.Reason,
	})
}

// classify says what kind of end an answer of the target is: an input_required round and a task handle
// are no completions.
func classify(result, errorBody json.RawMessage) effect.Outcome {
	if errorBody != nil {
		return effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerError, Body: errorBody}}
	}
	out := effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerResult, Body: result}}
	var shape struct {
		IsError      bool           `json:"isError"`
		ResultType   string         `json:"resultType"`
		RequestState *string        `json:"requestState"`
		TaskID       string         `json:"taskId"`
		Task         jsontext.Value `json:"task"`
	}
	if err := jsonv2.Unmarshal(result, &shape, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return out
	}
	out.Answer.IsError = shape.IsError
	switch {
	case shape.ResultType == "input_required":
		out.Kind, out.Continuation = effect.OutcomeWaiting, roundWithoutState
		if shape.RequestState != nil {
			out.Continuation = *shape.RequestState
		}
	case shape.ResultType == "task":
		out.Kind, out.Continuation = effect.OutcomeWaiting, shape.TaskID
	case shape.ResultType == "" && shape.Task.Kind() == '{':
		out.Kind, out.Continuation = effect.OutcomeWaiting, taskID(shape.Task)
	}
	return out
}

func taskID(task jsontext.Value) string {
	var t struct {
		TaskID string `json:"taskId"`
	}
	if jsonv2.Unmarshal(task, &t, jsontext.AllowDuplicateNames(true)) != nil {
		return ""
	}
	return t.TaskID
}
