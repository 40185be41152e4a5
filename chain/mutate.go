package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/undolog/undolog/interceptors"
)

// mutate runs the mutation pass: one after the other, each on what the one before left, all or nothing.
// A mutator that answers in the target's place ends it.
func (r *run) mutate(ctx context.Context) bool {
	for _, e := range r.leg.plan.mutators {
		o := r.invoke(ctx, e)
		var next json.RawMessage
		if o.failure == nil && o.result != nil {
			next, o.failure = r.changeOf(e, o.result)
			if o.failure != nil {
				o.result = nil
				r.noteFailure(ctx, e, o.failure)
			}
		}
		rec := r.record(e, &o)
		if e.audit() {
			continue
		}
		switch {
		case o.respond != nil:
			r.out.Respond, r.out.responder = o.respond, e.descriptor.Name
			return true
		case o.block != nil:
			return r.abort(ctx, e, StatusMutationFailed, &Abort{Denied: true, Reason: interceptors.Brief(o.block.Message), Block: o.block, Pause: pauseOf(o.block.Data)})
		case o.failure != nil && !e.failOpen:
			return r.abort(ctx, e, StatusMutationFailed, &Abort{Reason: brief(o.failure)})
		case next != nil:
			rec.Applied, r.changed = true, true
			r.current = next
		}
		r.direct(e, &o)
	}
	return true
}

// changeOf is the payload that an active mutator's result puts in place of the current one, nil when it
// changes nothing. A result that says one thing and carries another is malformed: its payload is never
// applied.
func (r *run) changeOf(e *entry, res *interceptors.Result) (json.RawMessage, error) {
	if !res.Modified {
		if len(res.Payload) > 0 && !sameJSON(res.Payload, r.current) {
			return nil, fmt.Errorf("malformed result: not modified, yet another payload")
		}
		return nil, nil
	}
	if !e.local && !json.Valid(res.Payload) { // a local server has looked itself
		return nil, fmt.Errorf("malformed result: the payload is not JSON")
	}
	if e.audit() {
		return nil, nil
	}
	if e.local && res.Certain {
		return res.Payload, nil
	}
	next := bytes.Clone(res.Payload) // the handler may keep and change its own
	if r.params.Phase != interceptors.PhaseRequest || !isObject(r.current) {
		return next, nil
	}
	if !isObject(next) {
		return nil, fmt.Errorf("malformed result: params that were an object are one no longer")
	}
	next, err := r.pins().restore(next)
	if err != nil {
		return nil, fmt.Errorf("malformed result: %w", err)
	}
	return next, nil
}

func (r *run) pins() pinned {
	if r.pinned == nil {
		p := pinnedOf(r.current) // whatever was applied so far has them too
		r.pinned = &p
	}
	return *r.pinned
}
