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
)

// End is how a dispatch ended, as an engine tells it. Result or Error is set when Kind is
// effect.OutcomeAnswered.
type End struct {
	Kind   effect.OutcomeKind
	Result json.RawMessage
	Error  json.RawMessage
	Reason string
}

func (e End) outcome() effect.Outcome {
	if e.Kind == effect.OutcomeAnswered {
		return classify(e.Result, e.Error)
	}
	return effect.Outcome{Kind: e.Kind, Reason: e.Reason}
}

// Settled records the end of the dispatch of an exchange: once with what is first known, and once more
// if an answer still comes after it was lost, or if the first answer was the handle of a task that has ended
// now. It returns when the outcome is durable, or when the log goes on recording it by itself; an exchange
// that is no effect, or that was answered or settled already, is ignored.
func (i *Interceptors) Settled(ctx context.Context, exchange string, end End) {
	o := i.open.only(localExchange(exchange))
	again := false
	if o == nil {
		o = i.resumed(exchange)
		again = o != nil
	}
	if o == nil || o.replayed {
		return
	}
	answered := end.Kind == effect.OutcomeAnswered
	if answered {
		faults.Point("after-answer")
	}
	out := end.outcome()
	late := o.ended() && !again
	i.settle(ctx, o, out)
	if answered {
		faults.Point("after-settle")
	}
	responseComes := answered && end.Error == nil && !late
	if !i.opts.Delivery && out.Kind != effect.OutcomeLost && !responseComes {
		i.forget(o)
	}
}

// Delivered records whether the answer of an exchange reached its requester, which it began to do at the
// given time, and ends the exchange. Told false of an exchange that it was told true of, it takes that back.
func (i *Interceptors) Delivered(exchange string, at time.Time, delivered bool) {
	o := i.open.only(localExchange(exchange))
	if o == nil {
		if a, ok := i.arrived.take(exchange); ok && !delivered {
			i.log.Withdraw(a.tenant, a.effect, at)
		}
		return
	}
	i.forget(o)
	o.mu.Lock()
	answered := o.settled || o.replayed
	o.mu.Unlock()
	if delivered && answered && o.effectID != "" {
		i.log.Delivered(o.call.Tenant, o.effectID, at)
		i.arrived.add(exchange, arrival{o.call.Tenant, o.effectID})
	}
}

// errNotHeld says that a claim was lost before its call was sent.
var errNotHeld = errors.New("the claim was lost before the call was sent: this process had been stopped for too long")

// MaySend returns why the call of an exchange must not be sent any more; nil when it may be. A process that was
// stopped since it claimed the call may have lost the claim, and others may have settled it or made the call
// themselves.
func (i *Interceptors) MaySend(ctx context.Context, exchange string) error {
	o := i.open.only(localExchange(exchange))
	if o == nil || o.claim == nil {
		return nil
	}
	holds, err := i.log.Holds(ctx, *o.claim, o.came)
	if err == nil && !holds {
		err = errNotHeld
	}
	return err
}

// Explain is what the requester of an exchange is told when its dispatch was lost or not sent; nil when
// the exchange is no effect.
func (i *Interceptors) Explain(exchange string, kind effect.OutcomeKind) *interceptors.BlockError {
	o := i.open.only(localExchange(exchange))
	if o == nil || o.claim == nil {
		return nil
	}
	r := &effect.Record{ID: o.claim.Effect, Tenant: o.claim.Tenant, Attempt: o.claim.Attempt, CreatedAt: o.started}
	switch kind {
	case effect.OutcomeUnsent:
		return unsent(o.identity, r).block(codeInternal)
	case effect.OutcomeLost:
		return lost(o.identity, r, o.contract.Tier == effect.TierIdempotent).block(codeInternal)
	}
	return nil
}

// settleResponse is the response phase of undolog/effect: it settles the call that the result answers,
// unless the engine has told of its end already, and takes our stamp off. A response that answers no call
// that is known is kept as an event, never guessed.
func (i *Interceptors) settleResponse(ctx context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	ev := evidenceOf(in)
	o, expected := i.match(ctx, in, &ev)
	if o == nil {
		if !expected {
			i.refused.add(effect.Event{At: i.opts.Now(), Tenant: i.tenantOf(in), Kind: effect.EventUnmatched, Principal: principalOf(in)}, "")
		}
		return &interceptors.Change{}, nil
	}
	if !o.local || !i.opts.Delivery {
		i.forget(o)
	}
	if o.replayed {
		return &interceptors.Change{}, nil
	}
	i.noteAltered(o, &ev.echo)
	i.settleResult(ctx, o, in.Payload)
	result, err := stripResult(in.Payload)
	if err == nil && o.edited != "" {
		result, err = addText(result, o.edited)
	}
	if err != nil {
		return nil, err
	}
	change := &interceptors.Change{}
	if len(result) != len(in.Payload) { // else it is as it came, whatever that is
		change.Payload = result
	}
	if o.claim != nil {
		r := &effect.Record{ID: o.claim.Effect, Attempt: o.claim.Attempt}
		change.Info, change.Certain = newInfo(outcomeExecute, o.identity, r).wrapped(), change.Payload == nil
	}
	return change, nil
}

// settleResult is settle for a result that the engine may have told of already: then it is not read again.
func (i *Interceptors) settleResult(ctx context.Context, o *open, result json.RawMessage) {
	o.mu.Lock()
	settled := o.settled
	o.mu.Unlock()
	if !settled {
		i.settle(ctx, o, classify(result, nil))
	}
}

// settle records an outcome of o once; after one that was lost or no end, one more.
func (i *Interceptors) settle(ctx context.Context, o *open, out effect.Outcome) {
	if !o.end(out.Kind) {
		return
	}
	i.counts.ended(o, out)
	kept := i.redacted(o, out)
	if o.claim == nil {
		i.recordRead(o, kept)
	} else {
		i.record(context.WithoutCancel(ctx), o, kept)
	}
	i.checkResult(ctx, o, out)
}

// checkResult flags a result that is not as its tool's schema says. It is recorded and answered all the same:
// what it tells of has happened.
func (i *Interceptors) checkResult(ctx context.Context, o *open, out effect.Outcome) {
	if o.schemas == nil || out.Kind != effect.OutcomeAnswered || out.Answer.Kind != effect.AnswerResult || out.Answer.IsError {
		return
	}
	found := o.schemas.checkResult(out.Answer.Body)
	if len(found) == 0 {
		return
	}
	ev := o.event(effect.EventResultSchema)
	ev.At, ev.Detail = i.opts.Now(), append(append([]byte(`{"errors":`), encodeProblems(found)...), '}')
	i.log.Note(ev)
	i.opts.Logger.WarnContext(ctx, "result is not as the tool's schema says", slog.String("effect", o.effectID),
		slog.String("server", o.call.Server), slog.String("tool", o.call.Tool), slog.String("path", found[0].Path), slog.String("what", found[0].Message))
}

// end notes that an outcome of the kind is being recorded; false when there is nothing more to record.
func (o *open) end(kind effect.OutcomeKind) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost, waiting := kind == effect.OutcomeLost, kind == effect.OutcomeWaiting
	over := o.settled && (!o.waiting || waiting)
	if over || o.lost && lost {
		return false
	}
	o.settled, o.waiting, o.lost = !lost, waiting, o.lost || lost
	return true
}

// record gives the log an outcome. An answer is held back for as long as the log takes to record it or to
// say that it goes on by itself; the lease covers what it cannot write.
func (i *Interceptors) record(ctx context.Context, o *open, out effect.Outcome) {
	r, err := i.log.Settle(ctx, *o.claim, o.contract, out)
	if err != nil {
		i.opts.Logger.ErrorContext(ctx, "outcome not recorded yet", slog.String("effect", o.claim.Effect), slog.Any("error", err))
		return
	}
	i.opts.Logger.LogAttrs(ctx, slog.LevelDebug, "effect settled", slog.String("effect", r.ID), slog.String("state", string(r.State)))
}

func (i *Interceptors) recordRead(o *open, out effect.Outcome) {
	i.log.RecordRead(&effect.Record{
		Tenant: o.call.Tenant, Principal: o.call.Principal, Session: o.call.Session, Trace: o.call.Trace,
		Server: o.call.Server, Tool: o.call.Tool, Tier: effect.TierRead, Rule: effect.RuleNone,
		Run: o.call.Run, Arguments: o.call.Kept(),
		Policy: o.policy, Source: o.contract.Source, CreatedAt: o.started,
		State: effect.Settlement(o.contract, out), Attempt: 1, ChangedAt: i.opts.Now(),
		Answer: out.Answer, Reason: out.Reason,
	})
}
