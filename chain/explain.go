package chain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/undolog/undolog/interceptors"
)

// Explanation is what a plan makes of one interceptor, and why.
type Explanation struct {
	Entry
	Version  string
	Position int      // in the phase, from 1; zero when it does not run
	Reasons  []string // for being there or not, and for the position
}

// Explain tells of every interceptor that the hosts list, and of every one that is required, whether it
// runs on the event in the phase of an operation of req's kind, in which place, and why. Those that run
// come first, in order. req may be nil.
func (c *Chain) Explain(ctx context.Context, event string, phase interceptors.Phase, req *Request) []Explanation {
	p := &PhaseParams{Event: event, Phase: phase, Request: req}
	k := planKey{event: event, phase: phase}
	if req != nil {
		k.protocol = req.Protocol
	}
	legs, _ := c.route(ctx, p)
	var out []Explanation
	for i := range legs {
		out = legs[i].explain(out, k)
	}
	s := c.snapshot(ctx)
	for _, e := range s.entries {
		if k.side = ""; !Governed(event) || !e.selected(k) {
			out = append(out, Explanation{Entry: e.shown(phase), Version: e.descriptor.Version, Reasons: []string{e.absent(k)}})
		}
	}
	for _, l := range s.left {
		out = append(out, Explanation{
			Entry:   Entry{Host: l.host, Name: l.descriptor.Name, Side: l.side, Type: l.descriptor.Type, Mode: l.descriptor.Mode},
			Version: l.descriptor.Version, Reasons: []string{l.reason},
		})
	}
	return out
}

// explain adds those that run in the leg, in order.
func (l *leg) explain(out []Explanation, k planKey) []Explanation {
	if l.plan == nil {
		return out
	}
	for i, e := range l.plan.ordered(l.direction) {
		out = append(out, Explanation{
			Entry: e.shown(k.phase), Version: e.descriptor.Version, Position: len(out) + 1,
			Reasons: e.present(k, l, i),
		})
	}
	return out
}

func (p *plan) ordered(d Direction) []*entry {
	if d == Sending {
		return slices.Concat(p.mutators, p.validators)
	}
	return slices.Concat(p.validators, p.mutators)
}

// present says why e runs, and where among the others of its leg.
func (e *entry) present(k planKey, l *leg, index int) []string {
	reasons := []string{"hooked by " + e.hookFor(k)}
	if e.missing != nil {
		reasons = []string{e.missing.Error(), "it fails whenever it is its turn"}
	}
	order := "validators run before mutators"
	if l.direction == Sending {
		order = "mutators run before validators"
	}
	if l.side != "" {
		order = "the boundary to the " + string(l.side) + " is " + string(l.direction) + ": " + order
	} else {
		order = string(l.direction) + ": " + order
	}
	reasons = append(reasons, order)
	if e.descriptor.Type != interceptors.TypeMutation {
		return append(reasons, "validators of a pass run at the same time")
	}
	if e.nearest {
		return append(reasons, "nearest the upstream, whatever the others' priorities")
	}
	place := fmt.Sprintf("priority %d (%s)", e.priorityIn(k.phase), e.prioritySource())
	if l.direction == Receiving {
		index -= len(l.plan.validators)
	}
	if tied := l.plan.tie(index, k.phase); tied != "" {
		place += ", then " + tied
	}
	return append(reasons, place)
}

// tie says by what mutators of the same priority are told apart; empty when there is no other.
func (p *plan) tie(i int, phase interceptors.Phase) string {
	e, by := p.mutators[i], ""
	for _, other := range p.mutators {
		switch {
		case other == e || other.priorityIn(phase) != e.priorityIn(phase):
		case other.descriptor.Name == e.descriptor.Name:
			return "the order of the hosts"
		default:
			by = "the name"
		}
	}
	return by
}

func (e *entry) prioritySource() string {
	switch {
	case e.overridden:
		return "set by the policy"
	case e.descriptor.PriorityHint != nil:
		return "its author's hint"
	}
	return "the default"
}

// hookFor is the declared pattern that covers the event.
func (e *entry) hookFor(k planKey) string {
	for _, h := range e.descriptor.Hooks {
		for _, pattern := range h.Events {
			if h.Phase == k.phase && interceptors.MatchEvent(pattern, k.event) {
				return fmt.Sprintf("%q", pattern)
			}
		}
	}
	return "nothing"
}

// absent says why e does not run.
func (e *entry) absent(k planKey) string {
	switch {
	case !Governed(k.event):
		return k.event + " is never governed"
	case !e.compatible(k.protocol):
		c := e.descriptor.Compat
		return fmt.Sprintf("made for revisions %s to %s, not %s", c.MinProtocol, cmp.Or(c.MaxProtocol, "any later"), k.protocol)
	case !e.descriptor.Hooked(k.event, k.phase):
		return fmt.Sprintf("no hook for %s %s: it has %s", k.event, k.phase, hooksText(e.descriptor.Hooks))
	}
	return "narrowed away by the policy to " + hooksText(e.narrowed.Hooks)
}

func hooksText(hooks []interceptors.Hook) string {
	if len(hooks) == 0 {
		return "none"
	}
	texts := make([]string, len(hooks))
	for i, h := range hooks {
		texts[i] = strings.Join(h.Events, ", ") + " " + string(h.Phase)
	}
	return strings.Join(texts, "; ")
}
