package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

type hook struct {
	Events []string `json:"events"`
	Phase  string   `json:"phase"`
}

// hosted is an interceptor: a validator that denies or passes, or a mutator that shouts or does nothing.
type hosted struct {
	name, typ string
	hooks     []hook
	schema    object
	acts      bool
}

var all = []hosted{
	{"v/deny", "validation", []hook{{[]string{"tools/call"}, "request"}}, nil, true},
	{"v/pass", "validation", []hook{{[]string{"*"}, "request"}}, object{"type": "object", "required": []string{"level"},
		"properties": object{"level": object{"type": "string", "pattern": `^(?!x)\p{L}`}}}, false},
	{"v/quiet", "validation", []hook{{[]string{"tools/call", "prompts/get"}, "request"}, {[]string{"tools/call"}, "response"}}, nil, false},
	{"m/shout", "mutation", []hook{{[]string{"tools/call"}, "request"}}, nil, true},
	{"m/same", "mutation", []hook{{[]string{"tools/*"}, "request"}, {[]string{"tools/*"}, "response"}}, nil, false},
}

func (h *hook) covers(event string) bool {
	return slices.ContainsFunc(h.Events, func(p string) bool {
		if is("filter-no-wildcards") {
			return p == event
		}
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(event, prefix)
		}
		return p == event
	})
}

func (h *hosted) hooked(event, phase string) bool {
	return slices.ContainsFunc(h.hooks, func(k hook) bool { return (phase == "" || k.Phase == phase) && k.covers(event) })
}

func (h *hosted) descriptor(event string) object {
	d := object{"name": h.name, "type": h.typ, "hooks": h.hooks}
	if h.schema != nil {
		d["configSchema"] = h.schema
	}
	if h.typ == "mutation" && h.acts {
		d["priorityHint"] = object{"request": -2147483648, "response": 2147483647}
		d["compat"] = object{"minProtocol": "2025-11-25", "maxProtocol": "2026-07-28"}
	}
	if event != "" && is("filter-narrows-hooks") {
		d["hooks"] = slices.DeleteFunc(slices.Clone(h.hooks), func(k hook) bool { return !k.covers(event) })
	}
	switch {
	case is("default-mode"):
		d["mode"] = "active"
	case is("null-version"):
		d["version"] = nil
	case is("fail-open-false"):
		d["failOpen"] = false
	case is("schema-keyword") && h.schema != nil:
		d["configSchema"] = object{"type": "object", "required": "level"}
	case is("schema-type") && h.schema != nil:
		d["configSchema"] = object{"type": "record"}
	case is("schema-inside") && h.schema != nil:
		d["configSchema"] = object{"type": "object", "properties": object{"level": object{"type": "integr"}}}
	case is("priority-large"):
		d["priorityHint"] = 3000000000
	case is("priority-fraction"):
		d["priorityHint"] = 1.5
	case is("priority-text"):
		d["priorityHint"] = "first"
	case is("priority-of-phase"):
		d["priorityHint"] = object{"request": -2147483649}
	case is("compat-text"):
		d["compat"] = object{"minProtocol": "latest"}
	case is("compat-backwards"):
		d["compat"] = object{"minProtocol": "2026-07-28", "maxProtocol": "2025-11-25"}
	case is("phase-both"):
		d["hooks"] = []hook{{h.hooks[0].Events, "both"}}
	}
	return d
}

func list(q *request) (object, *failure) {
	var p struct {
		Event json.RawMessage `json:"event"`
	}
	_ = json.Unmarshal(q.Params, &p)
	event := ""
	if p.Event != nil {
		if json.Unmarshal(p.Event, &event) != nil || strings.Contains(event, "*") && !is("filter-pattern") {
			return nil, refusal(-32602, "event is one event")
		}
	}
	if is("filter-ignored") {
		event = ""
	}
	found := []object{}
	for i := range all {
		if event == "" || all[i].hooked(event, "") {
			found = append(found, all[i].descriptor(event))
		}
	}
	switch {
	case is("unstable-order") && lists.Add(1)%2 == 0:
		slices.Reverse(found)
	case is("twice-other-type") && len(found) > 0:
		again := maps.Clone(found[0])
		again["type"] = map[string]string{"validation": "mutation", "mutation": "validation"}[again["type"].(string)]
		found = append(found, again)
	case is("twice") && len(found) > 0:
		found = append(found, found[0])
	case is("null-list"):
		return object{"interceptors": nil}, nil
	}
	return object{"interceptors": found}, nil
}

type params struct {
	Name      string          `json:"name"`
	Event     string          `json:"event"`
	Phase     string          `json:"phase"`
	Payload   json.RawMessage `json:"payload"`
	Config    json.RawMessage `json:"config"`
	TimeoutMs int             `json:"timeoutMs"`
	Context   *struct {
		Principal *struct {
			Type string `json:"type"`
		} `json:"principal"`
	} `json:"context"`
}

func (p *params) wrong() bool {
	principal := p.Context != nil && p.Context.Principal != nil && !slices.Contains([]string{"user", "service", "anonymous"}, p.Context.Principal.Type)
	return p.Name == "" || p.Event == "" || p.Phase != "request" && p.Phase != "response" || p.TimeoutMs < 0 || principal ||
		p.Config != nil && !isObject(p.Config) && !is("config")
}

var lastName atomic.Pointer[string]

func invoke(q *request) (object, *failure) {
	var p params
	if err := json.Unmarshal(q.Params, &p); err != nil || p.wrong() {
		if is("malformed-code") {
			return nil, refusal(-32603, "internal error")
		}
		return nil, refusal(-32602, "params")
	}
	if is("strict-params") && bytes.Contains(q.Params, []byte("undologConformance")) {
		return nil, refusal(-32602, "unknown member")
	}
	if string(p.Payload) == "null" {
		switch {
		case is("null-panics"):
			os.Exit(2) // as a panic that nobody contains
		case is("null-leaks"):
			return nil, refusal(-32603, "'NoneType' object has no attribute 'get'")
		}
	}
	i := slices.IndexFunc(all, func(h hosted) bool {
		return h.name == p.Name || is("name-any-case") && strings.EqualFold(h.name, p.Name) || is("name-trimmed") && h.name == strings.TrimSpace(p.Name)
	})
	if i < 0 {
		own := p.Name
		if last := lastName.Swap(&own); is("mixes-up") && last != nil {
			p.Name = *last
		}
		if is("unknown-name-code") {
			return nil, refusal(-32601, "no such interceptor", "name", p.Name)
		}
		return nil, refusal(-32602, "no such interceptor", "name", p.Name)
	}
	h := &all[i]
	if failed := h.refuse(&p); failed != nil {
		return nil, failed
	}
	return h.run(&p), nil
}

func (h *hosted) refuse(p *params) *failure {
	checked := h.hooked(p.Event, p.Phase)
	if is("no-hook-check") || is("no-phase-check") && h.hooked(p.Event, "") {
		checked = true
	}
	if !checked {
		if is("no-advertised-hooks") {
			return refusal(-32602, "not hooked", "name", h.name)
		}
		if is("names-another") {
			return refusal(-32602, "not hooked", "name", all[0].name, "advertisedHooks", h.hooks)
		}
		return refusal(-32602, "not hooked", "name", h.name, "advertisedHooks", h.hooks)
	}
	if p.Config != nil && h.schema != nil && !bytes.Contains(p.Config, []byte("level")) && !is("config") {
		return refusal(-32602, "config", "name", h.name)
	}
	return nil
}

func (h *hosted) run(p *params) object {
	r := object{"interceptor": h.name, "type": h.typ, "phase": p.Phase}
	if is("wrong-echo") {
		r["phase"] = "request"
		r["interceptor"] = "x"
	}
	if is("extra-member") {
		r["vendor"] = object{"verdict": "ALLOW"}
	}
	if is("duration-text") {
		r["durationMs"] = "3 ms"
	}
	if is("info-text") {
		r["info"] = "fine"
	}
	if h.typ == "validation" {
		return h.judge(r)
	}
	return h.change(r, p)
}

func (h *hosted) judge(r object) object {
	if !h.acts {
		r["valid"] = true
		if is("pass-with-severity") {
			r["severity"] = "info"
		}
		if is("null-members") {
			r["messages"] = nil
		}
		return r
	}
	messages := []object{{"message": "no", "severity": "error"}}
	if is("denial-without-message") {
		messages = []object{}
	}
	if is("path-number") {
		messages[0]["path"] = 3
	}
	if is("suggestions-object") {
		r["suggestions"] = object{"path": "arguments.note", "value": "x"}
	}
	if is("suggestion-without-value") {
		r["suggestions"] = []object{{"path": "arguments.note"}}
	}
	if is("message-without-text") {
		messages[0]["message"] = ""
	}
	r["valid"], r["severity"], r["messages"] = false, "error", messages
	if is("severity-unknown") {
		r["severity"] = "critical"
	}
	if is("denial-without-severity") {
		delete(r, "severity")
	}
	if is("nested") {
		return object{"interceptor": r["interceptor"], "type": r["type"], "phase": r["phase"],
			"validation": object{"valid": false, "severity": "error", "messages": messages}}
	}
	return r
}

func (h *hosted) change(r object, p *params) object {
	payload, wrapped := unwrap(p)
	changed := payload
	if h.acts {
		changed = bytes.ReplaceAll(payload, []byte(`"note":"hello"`), []byte(`"note":"HELLO"`))
	}
	changed = sameNumbers(changed)
	if is("mangles-text") {
		changed = bytes.Map(func(r rune) rune {
			if r > 126 {
				return '?'
			}
			return r
		}, bytes.ReplaceAll(changed, []byte(`\u`), []byte("?")))
	}
	if is("drops-meta") {
		changed = bytes.Replace(changed, []byte(`,"_meta":{"org.example/kept":1}`), nil, 1)
	}
	if wrapped && !is("unwraps") {
		changed = json.RawMessage(`{"method":"` + p.Event + `","params":` + string(changed) + `}`)
	}
	r["modified"], r["payload"] = h.acts && p.Phase == "request", changed
	switch {
	case is("lie-unmodified"):
		r["modified"] = false
	case is("lie-modified"):
		r["modified"] = true
	case is("no-payload") && r["modified"] == false:
		delete(r, "payload")
	}
	return r
}

func unwrap(p *params) (payload json.RawMessage, wrapped bool) {
	var w struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(p.Payload, &w) == nil && w.Method == p.Event && p.Event != "" {
		return w.Params, true
	}
	return p.Payload, false
}
