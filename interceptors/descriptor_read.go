package interceptors

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// UnmarshalJSON reads a descriptor, older spellings too: a single hook, the phase "both", the events "*/request"
// and "*/response" and the mode "enforce" come out in today's form, the mode empty when it is active. It is an
// error when there is no name, when the type or the mode is not known, and when there is no telling where it
// hooks. Whatever else cannot be read is as if it were absent: an interceptor that was left out for it would be a
// guard that fails open.
func (d *Descriptor) UnmarshalJSON(raw []byte) (err error) {
	*d, _, err = readDescriptor(raw)
	return err
}

// wireDescriptor is a descriptor of which nothing is read yet.
type wireDescriptor struct {
	Name         json.RawMessage `json:"name"`
	Version      json.RawMessage `json:"version"`
	Description  json.RawMessage `json:"description"`
	Type         json.RawMessage `json:"type"`
	Hooks        json.RawMessage `json:"hooks"`
	Hook         json.RawMessage `json:"hook"`
	Mode         json.RawMessage `json:"mode"`
	FailOpen     json.RawMessage `json:"failOpen"`
	PriorityHint json.RawMessage `json:"priorityHint"`
	Compat       json.RawMessage `json:"compat"`
	ConfigSchema json.RawMessage `json:"configSchema"`
}

// readDescriptor also names the members that are not quite, or not at all, what they should be.
func readDescriptor(raw []byte) (d Descriptor, odd []string, err error) {
	var w wireDescriptor
	if err := json.Unmarshal(raw, &w); err != nil {
		return d, nil, fmt.Errorf("decode descriptor: %w", err)
	}
	note := func(member string, exact bool) {
		if !exact {
			odd = append(odd, member)
		}
	}
	if !readInto(w.Name, &d.Name) || d.Name == "" {
		return d, nil, errors.New("decode descriptor: it has no name")
	}
	note("version", readInto(w.Version, &d.Version))
	note("description", readInto(w.Description, &d.Description))
	note("failOpen", readInto(w.FailOpen, &d.FailOpen))
	note("compat", readInto(w.Compat, &d.Compat))
	var exact bool
	d.PriorityHint, exact = readPriority(w.PriorityHint)
	note("priorityHint", exact)
	if !isNull(w.ConfigSchema) {
		d.ConfigSchema = w.ConfigSchema
	}
	if d.Hooks, exact, err = w.hooks(); err != nil {
		return d, nil, fmt.Errorf("decode descriptor %q: %w", d.Name, err)
	}
	note("hooks", exact)
	readInto(w.Type, &d.Type) // check tells what is not known
	if !readInto(w.Mode, &d.Mode) {
		d.Mode = Mode(w.Mode)
	}
	if d.Mode == ModeActive || d.Mode == "enforce" {
		d.Mode = ""
	}
	if err := d.check(); err != nil {
		return d, nil, fmt.Errorf("decode descriptor %q: %w", d.Name, err)
	}
	return d, odd, nil
}

// readInto reads a member that need not be there; it stays as it is when it cannot be read.
func readInto[T any](raw json.RawMessage, member *T) bool {
	if len(raw) == 0 {
		return true
	}
	var read T
	if err := json.Unmarshal(raw, &read); err != nil {
		return false
	}
	*member = read
	return true
}

// hooks reads the hooks that have a phase and events that are known; exact is false when there are others.
func (w *wireDescriptor) hooks() (hooks []Hook, exact bool, err error) {
	var raws []json.RawMessage
	if !readInto(w.Hooks, &raws) {
		return nil, false, errors.New("hooks is no list")
	}
	if len(w.Hook) > 0 && !isNull(w.Hook) {
		raws = append([]json.RawMessage{w.Hook}, raws...)
	}
	hooks, exact = []Hook{}, true
	for _, raw := range raws {
		read, whole := readHook(raw)
		hooks, exact = append(hooks, read...), exact && whole
	}
	if len(hooks) == 0 && len(raws) > 0 {
		return nil, false, errors.New("none of its " + strconv.Itoa(len(raws)) + " hooks is known")
	}
	return hooks, exact, nil
}

// readHook reads one hook, two when it is of both phases and none when it cannot be used.
func readHook(raw json.RawMessage) (hooks []Hook, exact bool) {
	var w struct {
		Events []json.RawMessage `json:"events"`
		Phase  Phase             `json:"phase"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, false
	}
	exact = true
	var events []string
	for _, raw := range w.Events {
		var event string
		if json.Unmarshal(raw, &event) != nil || event == "" {
			exact = false
			continue
		}
		events = append(events, event)
	}
	switch w.Phase {
	case PhaseRequest, PhaseResponse:
		return hooksOf(events, w.Phase), exact
	case "both":
		return append(hooksOf(events, PhaseRequest), hooksOf(events, PhaseResponse)...), exact
	}
	return nil, false
}

// hooksOf is the hook of events in a phase, none when the events are all of the other phase: older drafts have
// names for every event of one.
func hooksOf(events []string, phase Phase) []Hook {
	var of []string
	for _, event := range events {
		switch only, old := OldEvent(event); {
		case !old:
			of = append(of, event)
		case only == phase:
			of = append(of, "*")
		}
	}
	if len(of) == 0 && len(events) > 0 {
		return nil
	}
	return []Hook{{of, phase}}
}
