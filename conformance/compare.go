package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/internal/jcs"
)

// canonical is the RFC 8785 form of a JSON text; numbers are written as the doubles they are read as.
func canonical(raw json.RawMessage) (string, error) {
	v := jsontext.Value(bytes.Clone(raw))
	if err := v.Canonicalize(); err != nil {
		return "", fmt.Errorf("canonicalize: %w", err)
	}
	return string(v), nil
}

// scrub takes the named members out of every object of a JSON text.
func scrub(raw json.RawMessage, volatile []string) (json.RawMessage, error) {
	if len(volatile) == 0 || len(raw) == 0 {
		return raw, nil
	}
	switch bytes.TrimLeft(raw, " \t\r\n")[0] {
	case '{':
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return nil, fmt.Errorf("read object: %w", err)
		}
		for name, value := range members {
			if slices.Contains(volatile, name) {
				delete(members, name)
				continue
			}
			clean, err := scrub(value, volatile)
			if err != nil {
				return nil, err
			}
			members[name] = clean
		}
		return marshal(members)
	case '[':
		var elements []json.RawMessage
		if err := json.Unmarshal(raw, &elements); err != nil {
			return nil, fmt.Errorf("read array: %w", err)
		}
		for i := range elements {
			clean, err := scrub(elements[i], volatile)
			if err != nil {
				return nil, err
			}
			elements[i] = clean
		}
		return marshal(elements)
	}
	return raw, nil
}

// marshal keeps characters as they are, where json.Marshal would escape those of HTML.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// contains says where got does not hold what want does: objects may have more members, arrays must be as
// long, all else must be equal, integers digit for digit. Empty when it does.
func contains(want, got json.RawMessage, at string) string {
	if got == nil {
		return at + " is missing"
	}
	switch bytes.TrimLeft(want, " \t\r\n")[0] {
	case '{':
		return containsMembers(want, got, at)
	case '[':
		return containsElements(want, got, at)
	}
	w, err := jcs.Canonical(want)
	if err != nil {
		return fmt.Sprintf("%s: %v", at, err)
	}
	if g, err := jcs.Canonical(got); err != nil || !bytes.Equal(w, g) {
		return fmt.Sprintf("%s is %s, want %s", at, got, want)
	}
	return ""
}

func containsMembers(want, got json.RawMessage, at string) string {
	var w, g map[string]json.RawMessage
	if json.Unmarshal(want, &w) != nil || json.Unmarshal(got, &g) != nil {
		return fmt.Sprintf("%s is %s, want an object", at, got)
	}
	names := make([]string, 0, len(w))
	for name := range w {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if diff := contains(w[name], g[name], at+"/"+escapePointer(name)); diff != "" {
			return diff
		}
	}
	return ""
}

func containsElements(want, got json.RawMessage, at string) string {
	var w, g []json.RawMessage
	if json.Unmarshal(want, &w) != nil || json.Unmarshal(got, &g) != nil || len(w) != len(g) {
		return fmt.Sprintf("%s is %s, want %s", at, got, want)
	}
	for i := range w {
		if diff := contains(w[i], g[i], at+"/"+strconv.Itoa(i)); diff != "" {
			return diff
		}
	}
	return ""
}

// pointed returns the value at a JSON pointer, nil when there is none.
func pointed(raw json.RawMessage, pointer string) json.RawMessage {
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) == nil {
			raw = members[token]
		} else {
			var elements []json.RawMessage
			i, err := strconv.Atoi(token)
			if err != nil || json.Unmarshal(raw, &elements) != nil || i >= len(elements) {
				return nil
			}
			raw = elements[i]
		}
		if raw == nil {
			return nil
		}
	}
	return raw
}

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
