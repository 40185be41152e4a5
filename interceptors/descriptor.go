package interceptors

import (
	"errors"
	"fmt"
	"strings"

	"github.com/undolog/undolog/internal/splice"
)

// MatchEvent reports whether an event is covered by a hook's entry: the event itself, "*" for every
// event, or a pattern in which each "*" stands for any run of characters, such as "tools/*".
func MatchEvent(pattern, event string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == event
	}
	event, ok := strings.CutPrefix(event, head)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	for _, part := range parts[:len(parts)-1] {
		i := strings.Index(event, part)
		if i < 0 {
			return false
		}
		event = event[i+len(part):]
	}
	return strings.HasSuffix(event, parts[len(parts)-1])
}

// OldEvent reports whether an event's name is one by which older drafts meant every event of a phase, and of
// which.
func OldEvent(name string) (Phase, bool) {
	switch name {
	case "*/request":
		return PhaseRequest, true
	case "*/response":
		return PhaseResponse, true
	}
	return "", false
}

// isConcrete reports whether an event names one operation.
func isConcrete(event string) bool { return !strings.Contains(event, "*") }

// Covers reports whether the hook has an entry for the event, whatever its phase.
func (h Hook) Covers(event string) bool {
	for _, pattern := range h.Events {
		if MatchEvent(pattern, event) {
			return true
		}
	}
	return false
}

// Hooked reports whether one of the descriptor's hooks covers the event in the phase.
func (d *Descriptor) Hooked(event string, phase Phase) bool {
	for _, h := range d.Hooks {
		if h.Phase == phase && h.Covers(event) {
			return true
		}
	}
	return false
}

// covers reports whether any phase's hook covers the event.
func (d *Descriptor) covers(event string) bool {
	return d.Hooked(event, PhaseRequest) || d.Hooked(event, PhaseResponse)
}

// MarshalJSON writes the descriptor as interceptors/list shows it: no defaults, no nulls.
func (d Descriptor) MarshalJSON() ([]byte, error) {
	type plain Descriptor
	p := plain(d)
	if p.Mode == ModeActive {
		p.Mode = ""
	}
	p.Hooks = d.shownHooks()
	return splice.Encode(p)
}

// shownHooks are the hooks with empty lists where Go has nil, which would be null on the wire.
func (d Descriptor) shownHooks() []Hook {
	hooks := make([]Hook, len(d.Hooks))
	for i, h := range d.Hooks {
		if h.Events == nil {
			h.Events = []string{}
		}
		hooks[i] = h
	}
	return hooks
}

// check reports what makes a descriptor unusable.
func (d *Descriptor) check() error {
	if d.Name == "" {
		return errors.New("name is empty")
	}
	if d.Type != TypeValidation && d.Type != TypeMutation {
		return fmt.Errorf("type %q is not known", d.Type)
	}
	if d.Mode != "" && d.Mode != ModeActive && d.Mode != ModeAudit {
		return fmt.Errorf("mode %q is not known", d.Mode)
	}
	for _, h := range d.Hooks {
		if h.Phase != PhaseRequest && h.Phase != PhaseResponse {
			return fmt.Errorf("phase %q is not known", h.Phase)
		}
		for _, event := range h.Events {
			if event == "" {
				return errors.New("a hook names an empty event")
			}
			if phase, old := OldEvent(event); old {
				return fmt.Errorf("a hook names %s, as older drafts do: name \"*\" in phase %s", event, phase)
			}
		}
	}
	if c := d.Compat; c != nil && c.MaxProtocol != "" && c.MaxProtocol < c.MinProtocol {
		return fmt.Errorf("compat ends at %s before it begins at %s", c.MaxProtocol, c.MinProtocol)
	}
	return nil
}
