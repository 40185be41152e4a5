package hostcheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// descriptor is one entry of a list, as it came and as it reads.
type descriptor struct {
	raw   json.RawMessage
	Name  string `json:"name"`
	Type  string `json:"type"`
	Hooks []hook `json:"hooks"`
}

type hook struct {
	Events []string `json:"events"`
	Phase  string   `json:"phase"`
}

// readList reads the result of interceptors/list.
func readList(result json.RawMessage) ([]descriptor, error) {
	raw := splice.Get(result, "interceptors")
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || trimmed[0] != '[' {
		return nil, fmt.Errorf("interceptors is %s, want an array", orAbsent(raw))
	}
	var entries []json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, err
	}
	list := make([]descriptor, len(entries))
	for i, entry := range entries {
		if err := json.Unmarshal(entry, &list[i]); err != nil {
			return nil, fmt.Errorf("descriptor %d: %w", i, err)
		}
		list[i].raw = entry
	}
	return list, nil
}

func orAbsent(raw json.RawMessage) string {
	if raw == nil {
		return "absent"
	}
	return string(raw)
}

// matches reports whether the descriptor hooks the event in any phase.
func (d *descriptor) matches(event string) bool {
	return slices.ContainsFunc(d.Hooks, func(h hook) bool { return h.covers(event) })
}

func (h *hook) covers(event string) bool {
	return slices.ContainsFunc(h.Events, func(p string) bool { return interceptors.MatchEvent(p, event) })
}

// hooked reports whether it hooks the event in the phase.
func (d *descriptor) hooked(event, phase string) bool {
	return slices.ContainsFunc(d.Hooks, func(h hook) bool { return h.Phase == phase && h.covers(event) })
}

// known are the members of a descriptor, each with what its value must look like.
var known = map[string]*regexp.Regexp{
	"name":         regexp.MustCompile(`^".+"$`),
	"version":      regexp.MustCompile(`^".*"$`),
	"description":  regexp.MustCompile(`^"(?s:.*)"$`),
	"type":         regexp.MustCompile(`^"(validation|mutation|sink)"$`),
	"hooks":        regexp.MustCompile(`^\[(?s:.*)\]$`),
	"mode":         regexp.MustCompile(`^"audit"$`),
	"failOpen":     regexp.MustCompile(`^true$`),
	"priorityHint": regexp.MustCompile(`^(-?\d+|\{(?s:.*)\})$`),
	"compat":       regexp.MustCompile(`^\{(?s:.*)\}$`),
	"configSchema": regexp.MustCompile(`^\{(?s:.*)\}$`),
}

// faults says what is wrong with a descriptor's shape.
func (d *descriptor) faults() []string {
	var found []string
	for _, required := range []string{"name", "type", "hooks"} {
		if splice.Get(d.raw, required) == nil {
			found = append(found, fmt.Sprintf("descriptor %q has no %s", d.Name, required))
		}
	}
	_ = splice.Each(d.raw, func(name string, value []byte) { // readList has read it
		shape := known[name]
		if shape != nil && !shape.Match(bytes.TrimSpace(value)) {
			found = append(found, fmt.Sprintf("descriptor %q: %s is %s; defaults and absent values are left out, the rest is as the proposal has it",
				d.Name, name, value))
		}
	})
	found = append(found, d.priorityFaults()...)
	found = append(found, d.compatFaults()...)
	if fault := schemaFault(splice.Get(d.raw, "configSchema")); fault != "" {
		found = append(found, fmt.Sprintf("descriptor %q: configSchema %s", d.Name, fault))
	}
	for _, h := range d.Hooks {
		if h.Phase != "request" && h.Phase != "response" {
			found = append(found, fmt.Sprintf("descriptor %q: phase %q is neither request nor response", d.Name, h.Phase))
		}
		if len(h.Events) == 0 {
			found = append(found, fmt.Sprintf("descriptor %q: a hook without events", d.Name))
		}
	}
	return found
}

// priorityFaults says which priorities are no 32-bit integers: engines drop what they cannot order.
func (d *descriptor) priorityFaults() []string {
	hint := splice.Get(d.raw, "priorityHint")
	values := map[string]json.RawMessage{"priorityHint": hint}
	if isObject(hint) {
		values = map[string]json.RawMessage{
			"priorityHint.request": splice.Get(hint, "request"), "priorityHint.response": splice.Get(hint, "response"),
		}
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		var n *int32
		if v := values[name]; v != nil && (json.Unmarshal(v, &n) != nil || n == nil) {
			found = append(found, fmt.Sprintf("descriptor %q: %s is %s, want a 32-bit integer", d.Name, name, v))
		}
	}
	return found
}

var revision = regexp.MustCompile(`^"\d{4}-\d{2}-\d{2}"$`)

// compatFaults says what is no range of protocol revisions.
func (d *descriptor) compatFaults() []string {
	compat := splice.Get(d.raw, "compat")
	if compat == nil || !isObject(compat) { // the shape is another's
		return nil
	}
	lowest, highest := splice.Get(compat, "minProtocol"), splice.Get(compat, "maxProtocol")
	if !revision.Match(lowest) || highest != nil && (!revision.Match(highest) || string(highest) < string(lowest)) {
		return []string{fmt.Sprintf("descriptor %q: compat is %s, want a minProtocol and at most a later maxProtocol, as dates", d.Name, compat)}
	}
	return nil
}

// concrete are the events without a pattern that the descriptors hook, in order.
func concrete(ds []descriptor) []string {
	var events []string
	for _, d := range ds {
		for _, h := range d.Hooks {
			for _, e := range h.Events {
				if !strings.Contains(e, "*") && !slices.Contains(events, e) {
					events = append(events, e)
				}
			}
		}
	}
	return events
}
