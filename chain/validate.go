package chain

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/undolog/undolog/interceptors"
)

// maxParallel bounds how many validators of one phase run at a time.
const maxParallel = 32

// validate runs the validation pass: every validator sees the same payload, all are awaited, and what
// they say together does not depend on who was first.
func (r *run) validate(ctx context.Context) bool {
	outcomes := r.invokeAll(ctx, r.leg.plan.validators)
	pass := true
	for i, e := range r.leg.plan.validators {
		o := &outcomes[i]
		r.record(e, o)
		r.count(o)
		if abort := objection(e, o); abort != nil && pass {
			pass = r.abort(ctx, e, StatusValidationFailed, abort)
		}
		r.direct(e, o)
	}
	return pass
}

func (r *run) invokeAll(ctx context.Context, entries []*entry) []outcome {
	if len(entries) == 0 {
		return nil
	}
	outcomes := make([]outcome, len(entries))
	if len(entries) == 1 {
		outcomes[0] = r.invoke(ctx, entries[0])
		return outcomes
	}
	var group errgroup.Group
	group.SetLimit(maxParallel)
	for i, e := range entries {
		group.Go(func() error {
			outcomes[i] = r.invoke(ctx, e)
			return nil
		})
	}
	_ = group.Wait() // no func returns an error
	return outcomes
}

// objection is why the operation must stop because of one validator, nil when it need not. failOpen is
// about failures: it never turns a rejection into a pass.
func objection(e *entry, o *outcome) *Abort {
	switch {
	case e.audit():
		return nil
	case o.block != nil:
		return &Abort{Denied: true, Reason: interceptors.Brief(o.block.Message), Block: o.block, Pause: pauseOf(o.block.Data)}
	case o.failure != nil && !e.failOpen:
		return &Abort{Reason: brief(o.failure)}
	case o.failure == nil && rejects(o.result):
		return &Abort{Denied: true, Reason: firstMessage(o.result), Pause: e.pause(o.result)}
	}
	return nil
}

// rejects reports a verdict that stops the operation: invalid, unless it is known to be a mere warning
// or a note. A severity that is missing or new is taken for an error.
func rejects(res *interceptors.Result) bool {
	return !res.Valid && res.Severity != interceptors.SeverityWarn && res.Severity != interceptors.SeverityInfo
}

func firstMessage(res *interceptors.Result) string {
	if len(res.Messages) == 0 {
		return "rejected without a message"
	}
	return interceptors.Brief(res.Messages[0].Message)
}

func (r *run) count(o *outcome) {
	switch {
	case o.result == nil || o.result.Valid:
	case o.result.Severity == interceptors.SeverityWarn:
		r.out.Summary.Warnings++
	case o.result.Severity == interceptors.SeverityInfo:
		r.out.Summary.Infos++
	default:
		r.out.Summary.Errors++
	}
}
