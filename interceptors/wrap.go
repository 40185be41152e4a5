package interceptors

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/undolog/undolog/internal/splice"
)

// wrapping is a payload as it came and the bare payload in it.
type wrapping struct {
	outer  json.RawMessage
	inner  json.RawMessage // nil when the outer one has no params
	method json.RawMessage // nil when the payload came bare
}

// unwrap takes a request's payload out of {method, params}, the form that some engines send. Only an
// object with no other member is taken so, the jsonrpc and id of a whole message apart: were any allowed, a
// requester could put a harmless "params" beside the real name and arguments and be judged by the wrong
// ones. Our own engine always sends bare payloads.
func unwrap(p *InvokeParams) wrapping {
	w := wrapping{outer: p.Payload, inner: p.Payload}
	if p.Caller.Local || p.Phase != PhaseRequest || !isObject(p.Payload) ||
		!bytes.Contains(p.Payload, []byte(`"method"`)) {
		return w
	}
	ms, err := members(p.Payload)
	if err != nil {
		return w
	}
	var method, params json.RawMessage
	for _, m := range ms {
		switch m.name {
		case "method":
			method = m.value
		case "params":
			params = m.value
		case "jsonrpc", "id":
		default:
			return w
		}
	}
	if name, ok := splice.Text(method); !ok || name != p.Event || params != nil && !isObject(params) {
		return w
	}
	w.method, w.inner = method, params
	return w
}

// finish puts a result into the shape in which the payload came.
func (w wrapping) finish(r *Result) {
	if r.Type == TypeMutation {
		w.finishPayload(r)
		return
	}
	if w.method == nil {
		return
	}
	for i := range r.Messages { // body made a copy
		r.Messages[i].Path = within(r.Messages[i].Path)
	}
	suggestions := make([]Suggestion, len(r.Suggestions))
	for i, s := range r.Suggestions {
		suggestions[i] = Suggestion{within(s.Path), s.Value}
	}
	r.Suggestions = suggestions
}

func (w wrapping) finishPayload(r *Result) {
	if r.Payload == nil || !r.Certain && w.inner != nil && equalJSON(r.Payload, w.inner) {
		r.Modified, r.Payload = false, w.outer
	} else {
		r.Modified = true
		r.Payload = w.put(r.Payload)
	}
	if r.Payload == nil {
		r.Payload = json.RawMessage("null")
	}
}

func (w wrapping) put(inner json.RawMessage) json.RawMessage {
	if w.method == nil {
		return inner
	}
	outer, err := splice.Set(w.outer, inner, "params")
	if err != nil {
		return w.outer // not so: unwrap has read it
	}
	return outer
}

// within makes a path into the params one into the object around them, in the path's own style.
func within(path string) string {
	switch {
	case path == "":
		return ""
	case strings.HasPrefix(path, "/"):
		return "/params" + path
	case strings.HasPrefix(path, "["):
		return "params" + path
	}
	return "params." + path
}
