package effectinterceptor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/faults"
	"github.com/undolog/undolog/store"
)

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
	policy := i.policy.Load() // one for the whole call
	judged, err := i.judge(ctx, in, policy, call)
	if err != nil {
		return nil, i.stop(ctx, call, err)
	}
	contract := judged.contract
	o := i.newOpen(in, call, contract)
	o.schemas, o.waited = judged.schemas, judged.waited
	i.noteWrong(o, judged.wrong)
	o.policy = digestOf(policy)
	if contract.Tier == effect.TierRead {
		return i.beginRead(in, c, o), nil
	}
	if o.identity, err = contract.Identify(call); err != nil {
		return nil, i.stopInvalid(err)
	}
	if stop := i.resume(ctx, in, o); stop != nil {
		return nil, stop
	}
	return i.claim(ctx, in, c, o)
}

// beginRead lets a read through: it never claims, joins or replays, and is logged after its answer.
func (i *Interceptors) beginRead(in *interceptors.Invocation, c *toolCall, o *open) *interceptors.Change {
	i.await(in, o)
	stateless := o.call.Principal == "" && o.call.Key == "" && o.call.Run == ""
	return &interceptors.Change{Payload: c.strip(), Info: (&info{Outcome: outcomeExecute, Stateless: stateless}).wrapped()}
}

// claim asks the log, waits where an equal call is under way, and does what the log decided. A call that
// waited asks again when its answer is no answer: the other's was never sent, or may safely run again.
func (i *Interceptors) claim(ctx context.Context, in *interceptors.Invocation, c *toolCall, o *open) (*interceptors.Change, error) {
	var deadline time.Time // of waiting, from when it begins
	faults.Point("before-begin")
	for first := true; ; first = false {
		if !first {
			pause(ctx)
		}
		if ctx.Err() != nil { // an approval is not used up for a caller that has gone
			return nil, ctx.Err()
		}
		begun, err := i.log.Begin(ctx, &store.BeginParams{
			Call:         o.call,
			Identity:     o.identity,
			Contract:     o.contract,
			Policy:       o.policy,
			Remote:       !in.Caller.Local,
			Continuation: o.round(c.continuation),
			Waited:       o.waited,
		})
		if err != nil {
			return nil, i.stop(ctx, o.call, err)
		}
		if begun.Claim != nil {
			faults.Point("after-begin")
			o.claim, o.effectID = begun.Claim, begun.Claim.Effect
			if ctx.Err() != nil { // nobody will take the answer of this phase, so nobody will dispatch
				i.settle(ctx, o, effect.Outcome{Kind: effect.OutcomeUnsent, Reason: "the invoker left before the claim was made"})
				return nil, ctx.Err()
			}
			return i.execute(ctx, in, c, o, begun)
		}
		switch begun.Verdict.Action {
		case effect.ActJoin:
		case effect.ActInDoubt:
			if stop := i.doubt(ctx, in, o, begun.Record); stop != nil {
				return nil, stop
			}
			continue
		default:
			return nil, i.answer(ctx, in, o, begun)
		}
		if deadline.IsZero() {
			deadline = i.joinDeadline(ctx)
		}
		if err := i.join(ctx, in, o, begun.Record, deadline); err != nil {
			return nil, err
		}
	}
}

// askAgain is how soon a call that waited asks the log again. The log's clock may be another than the
// database's: one can take a lease for over that is not yet over to the other.
const askAgain = 10 * time.Millisecond

func pause(ctx context.Context) {
	timer := time.NewTimer(askAgain)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// execute stamps the claimed call and lets it go on.
func (i *Interceptors) execute(ctx context.Context, in *interceptors.Invocation, c *toolCall, o *open, begun *store.Begun) (*interceptors.Change, error) {
	c, err := i.approvedCall(ctx, c, o, begun)
	if err != nil {
		o.counted.Store(true) // by what its caller is told
		i.settle(ctx, o, effect.Outcome{Kind: effect.OutcomeUnsent, Reason: "the approved arguments are not those of the call"})
		return nil, err
	}
	i.noteVerdict(o, &begun.Verdict)
	key := begun.Claim.Effect
	if o.identity.Rule == effect.RuleKey {
		key = o.identity.Scope
	}
	out := newInfo(outcomeExecute, o.identity, begun.Record)
	out.Attempt = begun.Claim.Attempt
	i.await(in, o)
	payload, err := inject(c.stamp(begun.Claim, key), o.contract.Inject, key)
	if err != nil {
		i.settle(ctx, o, effect.Outcome{Kind: effect.OutcomeUnsent, Reason: "the idempotency key cannot be put into the call"})
		return nil, fmt.Errorf("put the key of %s into the call: %w", begun.Claim.Effect, err)
	}
	return &interceptors.Change{Payload: payload, Info: out.dispatched(o.contract, key), Certain: true}, nil
}

// noteVerdict notes what else the log decided on a call that runs: that a standing grant stood for an
// approval, and what would have been done were it not for the shadow.
func (i *Interceptors) noteVerdict(o *open, v *effect.Verdict) {
	if v.Grant != "" {
		i.noteDetail(o, effect.EventGranted, map[string]string{"grant": v.Grant})
	}
	if v.Would != nil {
		i.noteDetail(o, effect.EventShadow, map[string]string{"action": string(v.Would.Action), "reason": v.Would.Reason})
	}
}

// joinMargin is how long before its invocation's deadline a call stops waiting, so that the invoker
// still gets the reason.
const joinMargin = 250 * time.Millisecond

func (i *Interceptors) joinDeadline(ctx context.Context) time.Time {
	now := time.Now()
	until := now.Add(i.opts.JoinWait)
	if d, ok := ctx.Deadline(); ok {
		if last := d.Add(-min(joinMargin, d.Sub(now)/4)); last.Before(until) {
			return last
		}
	}
	return until
}

// join waits for the outcome of an equal call that is under way and returns the answer with it, failure or
// not. It returns nil when the call should ask the log again: there is no answer to give.
func (i *Interceptors) join(ctx context.Context, in *interceptors.Invocation, o *open, r *effect.Record, deadline time.Time) error {
	wait, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	now, err := i.log.Wait(wait, r.Tenant, r.ID)
	if err == nil {
		err = wait.Err()
	}
	switch {
	case err != nil && ctx.Err() == nil && wait.Err() != nil:
		return inProgress(o.identity, r).block(codeInternal)
	case err != nil:
		return i.stopUnavailable(ctx, o.call, err)
	case now.By != "", now.Answer.Kind == effect.AnswerNone: // settled by a person's word, or given up
		return nil
	}
	switch now.State {
	case effect.StateCommitted, effect.StateFailed, effect.StateWaiting:
		return i.replay(in, o, now, false, cameJoined)
	}
	return nil
}

// answer is what a caller gets that may not dispatch.
func (i *Interceptors) answer(ctx context.Context, in *interceptors.Invocation, o *open, begun *store.Begun) error {
	v, r := begun.Verdict, begun.Record
	switch v.Action {
	case effect.ActReplay:
		return i.replay(in, o, r, v.Repeat, cameReplayed)
	case effect.ActConflict: // r is nil when the other call is another principal's
		i.noteRefused(o, r, &v)
		return refused(outcomeConflict, v.Reason, o.identity, r).block(codeInternal)
	case effect.ActRequest, effect.ActAsk:
		return i.ask(ctx, o, begun)
	case effect.ActLimit:
		i.noteRefused(o, r, &v)
		return overLimit(v.Reason, o.identity, r).block(codeInternal)
	default:
		i.noteRefused(o, r, &v)
		return i.deny(ctx, o, begun).block(codeInternal)
	}
}

// replay answers from the record. The text for the model is added to a delivered repeat, and to every
// replay of a committed effect where the engine cannot say what was delivered.
func (i *Interceptors) replay(in *interceptors.Invocation, o *open, r *effect.Record, repeat bool, came string) error {
	blind := !i.opts.Delivery || !o.local
	note := ""
	if o.contract.Annotate && o.identity.Rule == effect.RuleWindow && (repeat || blind && r.State == effect.StateCommitted) {
		note = repeated(r, o.contract.Window)
	}
	note = paragraphs(editedNote(r), note)
	answer, err := respond(o.identity, r, note, o.isRedacted(r))
	if err == nil && !o.local && answer.Result != nil && !isMarkable(&r.Answer) {
		err = i.awaitUnmarked(in, o, r)
	}
	if err != nil {
		i.opts.Logger.Error("recorded answer cannot be given again", slog.String("effect", r.ID), slog.Any("error", err))
		return unreadable(o.identity, r).block(codeInternal)
	}
	i.counts.came(came)
	i.replays.add(i.eventOn(o, effect.EventReplayed, r, ""), "")
	if o.local && (i.opts.Delivery || answer.Result != nil) { // a remote engine's response phase sees our mark
		o.replayed, o.effectID = true, r.ID
		i.await(in, o)
	}
	return answer
}

// errUnmarked says that an answer without our marker would be taken for one that is fresh.
var errUnmarked = errors.New("it is no object, and its engine does not say which request a response answers")

// awaitUnmarked makes a replay findable whose result, at a remote engine's response phase, does not say that it is one.
func (i *Interceptors) awaitUnmarked(in *interceptors.Invocation, o *open, r *effect.Record) error {
	key := exchangeKey(in)
	if key == (openKey{}) {
		return errUnmarked
	}
	o.replayed, o.effectID, o.keys = true, r.ID, []openKey{key}
	i.open.add(o)
	return nil
}

func (i *Interceptors) stopInvalid(err error) error {
	if why := invalidCall(err); why != nil {
		return why.block(codeInvalidParams)
	}
	return err
}

// stop is for a call that cannot be judged, or that the log did not answer.
func (i *Interceptors) stop(ctx context.Context, call *effect.Call, err error) error {
	if why := invalidCall(err); why != nil {
		return why.block(codeInvalidParams)
	}
	return i.stopUnavailable(ctx, call, err)
}

func (i *Interceptors) stopUnavailable(ctx context.Context, call *effect.Call, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	i.opts.Logger.ErrorContext(ctx, "call not made: the log did not answer",
		slog.String("server", call.Server), slog.String("tool", call.Tool), slog.Any("error", err))
	return unavailable(call.Server).block(codeInternal)
}

func digestOf(p *effect.Policy) string {
	if p == nil {
		return ""
	}
	return p.Digest
}

// contractOf is what holds for the call. Where the log does not say what is known of the tool, a tool that is a read
// all the same still runs; others wait until it does.
func (i *Interceptors) contractOf(ctx context.Context, policy *effect.Policy, call *effect.Call) (*effect.Contract, error) {
	contract, _, err := i.contractAfter(ctx, policy, call)
	return contract, err
}

// contractAfter is contractOf, and how long the log was waited for in vain to find out.
func (i *Interceptors) contractAfter(ctx context.Context, policy *effect.Policy, call *effect.Call) (*effect.Contract, time.Duration, error) {
	key := serverKey{call.Tenant, call.Server}
	known, err := i.catalog.find(ctx, key, call.Tool)
	contract, wrong := i.contractBy(policy, call, &known)
	if err == nil || wrong == nil && contract.Tier == effect.TierRead {
		return contract, known.waited, wrong
	}
	if errors.Is(err, errSilent) {
		known, err = i.catalog.await(ctx, key, call.Tool)
	}
	if err != nil {
		return nil, 0, err
	}
	contract, wrong = i.contractBy(policy, call, &known)
	return contract, 0, wrong
}

// contractBy is what holds for the call by what is known of its tool.
func (i *Interceptors) contractBy(policy *effect.Policy, call *effect.Call, known *found) (*effect.Contract, error) {
	call.Definition, call.Annotations = known.digest, known.annotations
	trusted := i.opts.Trust(call.Server)
	if policy == nil {
		return effect.DefaultContract(call.Annotations, trusted), nil
	}
	return policy.For(call, trusted)
}

// noteRefused notes that a call was stopped by what the log decided.
func (i *Interceptors) noteRefused(o *open, r *effect.Record, v *effect.Verdict) {
	i.refused.add(i.eventOn(o, effect.EventRefused, r, v.Reason), string(v.Action))
}

func (i *Interceptors) eventOn(o *open, kind string, r *effect.Record, reason string) effect.Event {
	ev := o.event(kind)
	if ev.Effect = ""; r != nil {
		ev.Effect = r.ID
	}
	if reason != "" {
		ev.Detail = detail(map[string]string{"reason": i.opts.Vault.Text(reason)})
	}
	ev.At = i.opts.Now()
	return ev
}

// noteDetail notes an event of o's own effect.
func (i *Interceptors) noteDetail(o *open, kind string, members map[string]string) {
	i.log.Note(i.detailed(o, kind, members))
}

func (i *Interceptors) detailed(o *open, kind string, members map[string]string) effect.Event {
	ev := o.event(kind)
	ev.At, ev.Detail = i.opts.Now(), detail(members)
	return ev
}

func (o *open) event(kind string) effect.Event {
	return effect.Event{
		Tenant: o.call.Tenant, Effect: o.effectID, Kind: kind,
		Principal: o.call.Principal, Server: o.call.Server, Tool: o.call.Tool,
	}
}
