package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
)

type hook struct {
	Events []string `json:"events"`
	Phase  string   `json:"phase"`
}

type descriptor struct {
	Name         string          `json:"name"`
	Type         string          `json:"type"`
	Hooks        []hook          `json:"hooks"`
	Mode         string          `json:"mode"`
	FailOpen     bool            `json:"failOpen"`
	PriorityHint json.RawMessage `json:"priorityHint"`
	Compat       *struct {
		MinProtocol string `json:"minProtocol"`
		MaxProtocol string `json:"maxProtocol"`
	} `json:"compat"`
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// discover lists what the host has for the event in the phase.
func (a *agent) discover(event, phase string) ([]descriptor, error) {
	m, err := a.listed()
	if err != nil || m.Error != nil {
		return nil, errors.New("the host does not list")
	}
	var list struct {
		Interceptors []descriptor `json:"interceptors"`
	}
	if err := json.Unmarshal(m.Result, &list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Interceptors, func(d descriptor) bool { return !d.hooked(event, phase) || !d.compatible(a.protocol) }), nil
}

var firstList atomic.Pointer[message]

// listed asks the host for all that it has.
func (a *agent) listed() (*message, error) {
	if known := firstList.Load(); known != nil && is("believes-lists-forever") {
		return known, nil
	}
	m, err := a.post(*hosts, "interceptors/list", json.RawMessage(`{`+meta+`}`))
	if err == nil {
		firstList.CompareAndSwap(nil, m)
	}
	return m, err
}

func (d *descriptor) hooked(event, phase string) bool {
	return slices.ContainsFunc(d.Hooks, func(h hook) bool {
		return (h.Phase == phase || is("ignores-phase")) && slices.ContainsFunc(h.Events, func(p string) bool { return covers(p, event) })
	})
}

func (d *descriptor) compatible(protocol string) bool {
	c := d.Compat
	return c == nil || is("ignores-compat") || c.MinProtocol <= protocol && (c.MaxProtocol == "" || protocol <= c.MaxProtocol)
}

func covers(pattern, event string) bool {
	prefix, wild := strings.CutSuffix(pattern, "*")
	return pattern == event || wild && !is("no-wildcards") && strings.HasPrefix(event, prefix)
}

func (d *descriptor) audit() bool { return d.Mode == "audit" && !is("ignores-audit") }

func (d *descriptor) open() bool {
	switch {
	case is("never-open"):
		return false
	case is("always-open"):
		return true
	}
	return d.FailOpen
}

func (d *descriptor) priority(phase string) int {
	if is("ignores-priority") {
		return 0
	}
	var both int
	if json.Unmarshal(d.PriorityHint, &both) == nil {
		return both
	}
	if is("priority-number-only") {
		return 0
	}
	var split map[string]int
	_ = json.Unmarshal(d.PriorityHint, &split)
	if is("priority-of-other-phase") {
		return split["request"] + split["response"]
	}
	return split[phase]
}

// ordered sorts mutators by priority, then name.
func ordered(mutators []descriptor, phase string) {
	if is("unsorted") {
		return
	}
	slices.SortStableFunc(mutators, func(a, b descriptor) int {
		byName := strings.Compare(a.Name, b.Name)
		switch {
		case is("order-of-registration"):
			byName = 0
		case is("order-ignores-case"):
			byName = strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
		case is("order-by-length"):
			byName = cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), byName)
		case is("order-descending"):
			byName = -byName
		}
		return cmp.Or(cmp.Compare(a.priority(phase), b.priority(phase)), byName)
	})
}

// operation is an event in a phase, and who began it.
type operation struct {
	event, phase string
	fromServer   bool
	agent        *agent
}

// run takes a payload through one phase.
func (a *agent) run(event, phase string, payload json.RawMessage) (json.RawMessage, error) {
	return (&operation{event: event, phase: phase, agent: a}).run(payload)
}

func (o *operation) run(payload json.RawMessage) (json.RawMessage, error) {
	phase := o.phase
	all, err := o.agent.discover(o.event, phase)
	if err != nil {
		return nil, err
	}
	var validators, mutators []descriptor
	for _, d := range all {
		if d.Type == "mutation" {
			mutators = append(mutators, d)
		} else {
			validators = append(validators, d)
		}
	}
	ordered(mutators, phase)
	sending := (phase == "request") == (*posture == "client") != o.fromServer
	if is("order-request") && phase == "request" || is("order-response") && phase == "response" {
		sending = !sending
	}
	if !sending {
		if err := o.validate(validators, payload); err != nil {
			return nil, err
		}
		return o.mutate(mutators, payload)
	}
	changed, err := o.mutate(mutators, payload)
	if err != nil {
		return nil, err
	}
	if is("plans-twice") {
		if validators, err = o.again(mutators, &changed); err != nil {
			return nil, err
		}
	}
	return changed, o.validate(validators, changed)
}

// again plans anew in the middle of a phase, and runs the mutators that have come.
func (o *operation) again(ran []descriptor, payload *json.RawMessage) (validators []descriptor, err error) {
	all, err := o.agent.discover(o.event, o.phase)
	if err != nil {
		return nil, err
	}
	var come []descriptor
	for _, d := range all {
		known := slices.ContainsFunc(ran, func(r descriptor) bool { return r.Name == d.Name })
		switch {
		case d.Type == "validation":
			validators = append(validators, d)
		case !known:
			come = append(come, d)
		}
	}
	*payload, err = o.mutate(come, *payload)
	return validators, err
}
