package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
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
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// discover lists what the host has for the event in the phase.
func discover(event, phase string) ([]descriptor, error) {
	m, err := post(*hosts, "interceptors/list", json.RawMessage(`{`+meta+`}`))
	if err != nil || m.Error != nil {
		return nil, errors.New("the host does not list")
	}
	var list struct {
		Interceptors []descriptor `json:"interceptors"`
	}
	if err := json.Unmarshal(m.Result, &list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Interceptors, func(d descriptor) bool { return !d.hooked(event, phase) }), nil
}

func (d *descriptor) hooked(event, phase string) bool {
	return slices.ContainsFunc(d.Hooks, func(h hook) bool {
		return (h.Phase == phase || is("ignores-phase")) && slices.ContainsFunc(h.Events, func(p string) bool { return covers(p, event) })
	})
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
}

// run takes the payload of a tool call through one phase.
func run(phase string, payload json.RawMessage) (json.RawMessage, error) {
	return (&operation{event: "tools/call", phase: phase}).run(payload)
}

func (o *operation) run(payload json.RawMessage) (json.RawMessage, error) {
	phase := o.phase
	all, err := discover(o.event, phase)
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
	return changed, o.validate(validators, changed)
}
