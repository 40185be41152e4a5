package chain

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/interceptors"
)

// entry is one interceptor with the policy resolved: override, else the author's word, else the
// protocol's default.
type entry struct {
	host       Host
	trusted    bool
	local      bool
	side       Side
	maxPayload int64
	descriptor interceptors.Descriptor
	mode       interceptors.Mode
	failOpen   bool
	priority   interceptors.Priority
	overridden bool // the priority is the policy's
	nearest    bool // the target
	timeoutMs  int64
	config     json.RawMessage
	narrowed   interceptors.Descriptor // its hooks only; none: not narrowed
	missing    error                   // a required interceptor that cannot be called
}

func newEntry(h *hostEntry, d interceptors.Descriptor, o Override) *entry {
	e := &entry{
		host:       h.host,
		trusted:    h.trusted,
		local:      h.local,
		side:       cmp.Or(o.Side, h.policy.Side, SideAgent),
		maxPayload: h.policy.MaxPayload,
		descriptor: d,
		mode:       cmp.Or(o.Mode, d.Mode, interceptors.ModeActive),
		failOpen:   d.FailOpen,
		timeoutMs:  o.TimeoutMs,
		nearest:    o.Nearest,
		config:     o.Config,
		narrowed:   interceptors.Descriptor{Hooks: o.Hooks},
	}
	if d.PriorityHint != nil {
		e.priority = *d.PriorityHint
	}
	if o.FailOpen != nil {
		e.failOpen = *o.FailOpen
	}
	if o.Priority != nil {
		e.priority, e.overridden = *o.Priority, true
	}
	return e
}

func (e *entry) audit() bool { return e.mode == interceptors.ModeAudit }

// patience is how long an invocation is awaited.
func (e *entry) patience() time.Duration {
	d := time.Duration(e.timeoutMs) * time.Millisecond
	if e.local {
		return d
	}
	return d + deadlineGrace
}

func (e *entry) priorityIn(phase interceptors.Phase) int32 {
	if phase == interceptors.PhaseResponse {
		return e.priority.Response
	}
	return e.priority.Request
}

// distance is greater for what runs later, before priorities count.
func (e *entry) distance(phase interceptors.Phase) int {
	switch {
	case !e.nearest:
		return 0
	case phase == interceptors.PhaseResponse:
		return -1
	}
	return 1
}

// selected reports whether e runs on the event in the phase under the negotiated revision.
func (e *entry) selected(k planKey) bool {
	return (k.side == "" || k.side == e.side) &&
		e.compatible(k.protocol) &&
		e.descriptor.Hooked(k.event, k.phase) &&
		!e.narrowedAway(k)
}

func (e *entry) compatible(protocol string) bool {
	compat := e.descriptor.Compat
	return compat == nil || protocol == "" ||
		protocol >= compat.MinProtocol && (compat.MaxProtocol == "" || protocol <= compat.MaxProtocol)
}

func (e *entry) narrowedAway(k planKey) bool {
	return e.narrowed.Hooks != nil && !e.narrowed.Hooked(k.event, k.phase)
}

// plan is what runs in one phase of one event. It does not depend on payloads or timing.
type plan struct {
	mutators   []*entry // in order
	validators []*entry // hosts in order, then as listed
}

func (p *plan) empty() bool { return p.size() == 0 }

// size is how many run; none of no plan.
func (p *plan) size() int {
	if p == nil {
		return 0
	}
	return len(p.mutators) + len(p.validators)
}

func derive(entries []*entry, k planKey) *plan {
	p := &plan{}
	for _, e := range entries {
		switch {
		case !e.selected(k):
		case e.descriptor.Type == interceptors.TypeMutation:
			p.mutators = append(p.mutators, e)
		default:
			p.validators = append(p.validators, e)
		}
	}
	// Go compares strings by bytes, which for UTF-8 is the order of Unicode scalar values. Entries come in
	// the order of their hosts, which decides between equals.
	slices.SortStableFunc(p.mutators, func(a, b *entry) int {
		return cmp.Or(
			cmp.Compare(a.distance(k.phase), b.distance(k.phase)),
			cmp.Compare(a.priorityIn(k.phase), b.priorityIn(k.phase)),
			cmp.Compare(a.descriptor.Name, b.descriptor.Name))
	})
	return p
}

type planKey struct {
	event    string
	phase    interceptors.Phase
	protocol string
	side     Side // empty: all interceptors
}

// maxPlans bounds the cache: requesters choose the names of custom methods. One that is full is begun anew,
// so that what is asked for often is soon there again.
const maxPlans = 512

// planCache is read without a lock and without allocating; a new plan copies it.
type planCache struct {
	plans atomic.Pointer[map[planKey]*plan]
	mu    sync.Mutex // of writers
}

var noPlan = &plan{}

func (s *snapshot) plan(k planKey) *plan {
	if len(s.entries) == 0 {
		return noPlan
	}
	if known := s.plans.plans.Load(); known != nil {
		if p, ok := (*known)[k]; ok {
			return p
		}
	}
	p := derive(s.entries, k)
	s.plans.add(k, p)
	return p
}

func (c *planCache) add(k planKey, p *plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.plans.Load()
	grown := map[planKey]*plan{k: p}
	if known != nil && len(*known) < maxPlans {
		maps.Copy(grown, *known)
	}
	c.plans.Store(&grown)
}

// Entry is one step of a plan, with the policy resolved.
type Entry struct {
	Host     string
	Name     string
	Side     Side // of a gateway's plan
	Type     interceptors.Type
	Mode     interceptors.Mode
	FailOpen bool
	Priority int32 // of the phase; validators run without order
	Missing  bool  // required and not there: fails whenever it is its turn
}

func (e *entry) shown(phase interceptors.Phase) Entry {
	return Entry{
		Host:     e.host.Name(),
		Name:     e.descriptor.Name,
		Side:     e.side,
		Type:     e.descriptor.Type,
		Mode:     e.mode,
		FailOpen: e.failOpen,
		Priority: e.priorityIn(phase),
		Missing:  e.missing != nil,
	}
}

// Plan returns what would run on the event in the phase under the negotiated protocol revision (empty:
// unknown), in order. An empty direction is that of the chain's posture, where a gateway has two plans. It
// asks hosts whose list is old.
func (c *Chain) Plan(ctx context.Context, event string, phase interceptors.Phase, direction Direction, protocol string) []Entry {
	legs, _ := c.route(ctx, &PhaseParams{
		Event: event, Phase: phase, Direction: direction, Request: &Request{Protocol: protocol},
	})
	var out []Entry
	for _, l := range legs {
		if l.plan == nil {
			continue
		}
		for _, e := range l.plan.ordered(l.direction) {
			out = append(out, e.shown(phase))
		}
	}
	return out
}
