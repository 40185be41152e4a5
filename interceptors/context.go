package interceptors

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/undolog/undolog/internal/splice"
)

// contextMembers are the members of Context that have a field.
var contextMembers = []string{"principal", "traceId", "spanId", "timestamp", "sessionId"}

// MarshalJSON writes the known members and Extra, sorted, its values as they stand. A key of Extra that
// names a known member is not written.
func (c Context) MarshalJSON() ([]byte, error) {
	type plain Context
	object, err := splice.Encode(plain(c))
	if err != nil {
		return nil, fmt.Errorf("encode context: %w", err)
	}
	object = object[:len(object)-1]
	for _, name := range slices.Sorted(maps.Keys(c.Extra)) {
		if slices.Contains(contextMembers, name) {
			continue
		}
		object = appendMembers(object, member{name, c.Extra[name]})
	}
	return append(object, '}'), nil
}

// UnmarshalJSON reads a context. It refuses members of the wrong type and principals of an unknown one.
func (c *Context) UnmarshalJSON(raw []byte) error {
	var problems []Problem
	read := decodeContext(raw, &problems)
	if len(problems) > 0 {
		return fmt.Errorf("decode %s: %s", problems[0].Path, problems[0].Message)
	}
	*c = *read
	return nil
}

func decodeContext(raw json.RawMessage, problems *[]Problem) *Context {
	ms, err := members(raw)
	if err != nil {
		*problems = append(*problems, problemOf("/context", err))
		return nil
	}
	c := new(Context)
	for _, m := range ms {
		path := "/context/" + m.name
		switch m.name {
		case "principal":
			if !isNull(m.value) {
				c.Principal = decodePrincipal(m.value, problems)
			}
		case "traceId":
			c.TraceID = optionalString(path, m.value, problems)
		case "spanId":
			c.SpanID = optionalString(path, m.value, problems)
		case "timestamp":
			c.Timestamp = optionalString(path, m.value, problems)
		case "sessionId":
			c.SessionID = optionalString(path, m.value, problems)
		default:
			if c.Extra == nil {
				c.Extra = map[string]json.RawMessage{}
			}
			c.Extra[m.name] = m.value
		}
	}
	return c
}

func decodePrincipal(raw json.RawMessage, problems *[]Problem) *Principal {
	const at = "/context/principal"
	ms, err := members(raw)
	if err != nil {
		*problems = append(*problems, problemOf(at, err))
		return nil
	}
	p := new(Principal)
	for _, m := range ms {
		switch m.name {
		case "type":
			p.Type = optionalString(at+"/type", m.value, problems)
		case "id":
			p.ID = optionalString(at+"/id", m.value, problems)
		case "claims":
			if isNull(m.value) {
				continue
			}
			if !isObject(m.value) {
				*problems = append(*problems, Problem{at + "/claims", errNotObject.Error()})
			}
			p.Claims = m.value
		}
	}
	if !slices.Contains([]string{"user", "service", "anonymous"}, p.Type) {
		*problems = append(*problems, Problem{at + "/type", "must be user, service or anonymous"})
	}
	return p
}

func optionalString(path string, v json.RawMessage, problems *[]Problem) string {
	if isNull(v) {
		return ""
	}
	s, ok := splice.Text(v)
	if !ok {
		*problems = append(*problems, Problem{path, "must be a string"})
	}
	return s
}
