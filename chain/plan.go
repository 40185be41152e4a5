package chain

import (
	"cmp"
	"context"
	"encoding/json"
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
	descriptor interceptors.Descriptor
	mode       interceptors.Mode
	failOpen   bool
	priority   interceptors.Priority
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
		descriptor: d,
		mode:       cmp.Or(o.Mode, d.Mode, interceptors.ModeActive),
		failOpen:   d.FailOpen,
		timeoutMs:  o.TimeoutMs,
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
		e.priority = *o.Priority
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

// selected reports whether e runs on the event in the phase under the negotiated revision.
func (e *entry) selected(k planKey) bool {
	if compat := e.descriptor.Compat; compat != nil && k.protocol != "" {
		if k.protocol < compat.MinProtocol || compat.MaxProtocol != "" && k.protocol > compat.MaxProtocol {
			return false
		}
	}
	return e.descriptor.Hooked(k.event, k.phase) &&
		(e.narrowed.Hooks == nil || e.narrowed.Hooked(k.event, k.phase))
}

// plan is what runs in one phase of one event. It does not depend on payloads or timing.
type plan struct {
	mutators   []*entry // in order
	validators []*entry // hosts in order, then as listed
}

func (p *plan) empty() bool { return len(p.mutators)+len(p.validators) == 0 }

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
			cmp.Compare(a.priorityIn(k.phase), b.priorityIn(k.phase)),
			cmp.Compare(a.descriptor.Name, b.descriptor.Name))
	})
	return p
}

type planKey struct {
	event    string
	phase    interceptors.Phase
	protocol string
}

// maxPlans bounds the cache: requesters choose the names of custom methods.
const maxPlans = 512

type planCache struct {
	plans sync.Map // planKey to *plan
	size  atomic.Int64
}

func (c *planCache) get(k planKey, entries []*entry) *plan {
	if p, ok := c.plans.Load(k); ok {
		return p.(*plan)
	}
	p := derive(entries, k)
	if c.size.Add(1) > maxPlans {
		return p
	}
	c.plans.Store(k, p)
	return p
}

func (c *Chain) plan(ctx context.Context, k planKey) *plan {
	s := c.snapshot(ctx)
	if len(s.entries) == 0 {
		return &plan{}
	}
	return s.plans.get(k, s.entries)
}

// Entry is one step of a plan, with the policy resolved.
type Entry struct {
	Host     string
	Name     string
	Type     interceptors.Type
	Mode     interceptors.Mode
	FailOpen bool
	Priority int32 // of the phase; validators run without order
	Missing  bool  // required and not there: fails whenever it is its turn
}

// Plan returns what would run on the event in the phase under the negotiated protocol revision (empty:
// unknown), in order. It asks hosts whose list is old.
func (c *Chain) Plan(ctx context.Context, event string, phase interceptors.Phase, direction Direction, protocol string) []Entry {
	if !Governed(event) {
		return nil
	}
	p := c.plan(ctx, planKey{event, phase, protocol})
	first, second := p.validators, p.mutators
	if direction == Sending {
		first, second = second, first
	}
	var out []Entry
	for _, e := range slices.Concat(first, second) {
		out = append(out, Entry{
			Host:     e.host.Name(),
			Name:     e.descriptor.Name,
			Type:     e.descriptor.Type,
			Mode:     e.mode,
			FailOpen: e.failOpen,
			Priority: e.priorityIn(phase),
			Missing:  e.missing != nil,
		})
	}
	return out
}
