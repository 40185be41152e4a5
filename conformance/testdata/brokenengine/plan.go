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

// discover lists what the host has for tool calls in the phase.
func discover(phase string) ([]descriptor, error) {
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
	return slices.DeleteFunc(list.Interceptors, func(d descriptor) bool { return !d.hooked(phase) }), nil
}

func (d *descriptor) hooked(phase string) bool {
	return slices.ContainsFunc(d.Hooks, func(h hook) bool {
		return (h.Phase == phase || is("ignores-phase")) && slices.ContainsFunc(h.Events, covers)
	})
}

func covers(pattern string) bool {
	prefix, wild := strings.CutSuffix(pattern, "*")
	return pattern == "tools/call" || wild && !is("no-wildcards") && strings.HasPrefix("tools/call", prefix)
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
		case is("order-descending"):
			byName = -byName
		}
		return cmp.Or(cmp.Compare(a.priority(phase), b.priority(phase)), byName)
	})
}

// run takes a payload through one phase.
func run(phase string, payload json.RawMessage) (json.RawMessage, error) {
	all, err := discover(phase)
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
	sending := (phase == "request") == (*posture == "client")
	if is("order-request") && phase == "request" || is("order-response") && phase == "response" {
		sending = !sending
	}
	if !sending {
		if err := validate(validators, phase, payload); err != nil {
			return nil, err
		}
		return mutate(mutators, phase, payload)
	}
	changed, err := mutate(mutators, phase, payload)
	if err != nil {
		return nil, err
	}
	return changed, validate(validators, phase, changed)
}
