package hostcheck

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// benignResult is a payload of the response phase.
const benignResult = `{"content":[{"type":"text","text":"hello \u00fc \ud83d\ude00"}],"structuredContent":{"id":9007199254740993}}`

func payloadOf(phase string) string {
	if phase == "response" {
		return benignResult
	}
	return benign
}

// invoked calls f for every interceptor and phase with a tool call, and for its result if it gives one: a
// host may refuse what it is sent, or fail.
func (p *probe) invoked(ctx context.Context, f *finding, payload func(phase string) string, more string,
	judge func(d *descriptor, phase string, result json.RawMessage)) {
	results := 0
	for i := range p.descriptors {
		d := &p.descriptors[i]
		for _, phase := range []string{"request", "response"} {
			if !d.hooked("tools/call", phase) {
				continue
			}
			a, ok := p.call(ctx, f, interceptors.MethodInvoke, invocation(d.Name, "tools/call", phase, payload(phase), more))
			if ok && a.Result != nil {
				results++
				judge(d, phase, a.Result)
			}
		}
	}
	if results == 0 && len(f.faults) == 0 {
		f.nothing = "no interceptor gave a result for a tool call"
	}
}

func checkResultShape(ctx context.Context, p *probe, f *finding) {
	p.invoked(ctx, f, payloadOf, "", func(d *descriptor, phase string, result json.RawMessage) {
		before := len(f.faults)
		p.shape(f, d, phase, result)
		if len(f.faults) > before {
			f.addf("%s answered %.300s", d.Name, result)
		}
	})
}

// own are the members of results by type; those of the protocol revision and of the older envelope go besides.
var own = map[string][]string{
	"validation": {"interceptor", "type", "phase", "durationMs", "info", "valid", "severity", "messages", "suggestions"},
	"mutation":   {"interceptor", "type", "phase", "durationMs", "info", "modified", "payload"},
	"sink":       {"interceptor", "type", "phase", "durationMs", "info", "recorded", "metrics"},
}

func (p *probe) shape(f *finding, d *descriptor, phase string, result json.RawMessage) {
	for member, want := range map[string]string{"interceptor": d.Name, "type": d.Type, "phase": phase} {
		if got := string(splice.Get(result, member)); got != quoted(want) {
			f.addf("%s is %s, want %q", member, orAbsent(splice.Get(result, member)), want)
		}
	}
	allowed := append([]string{"_meta", "resultType", "ttlMs", "cacheScope", "validation", "mutation"}, own[d.Type]...)
	_ = splice.Each(result, func(name string, value []byte) { // the envelope was read
		if !slices.Contains(allowed, name) {
			f.addf("%s is no member of a %s result: what is the host's own belongs into info", name, d.Type)
		}
		if name != "payload" && bytes.Equal(bytes.TrimSpace(value), []byte("null")) {
			f.addf("%s is null: what is absent is left out", name)
		}
	})
	var took *float64
	if raw := splice.Get(result, "durationMs"); raw != nil && (json.Unmarshal(raw, &took) != nil || took == nil || *took < 0) {
		f.addf("durationMs is %s, want a number that is not negative", raw)
	}
	if info := splice.Get(result, "info"); info != nil && !isObject(info) {
		f.addf("info is %s, want an object", info)
	}
	p.resultType(f, result)
	switch d.Type {
	case "validation":
		verdict(f, result)
	case "mutation":
		mutation(f, json.RawMessage(payloadOf(phase)), result)
	}
}

// verdict wants that every engine reads the same: they look at different members.
func verdict(f *finding, result json.RawMessage) {
	var v struct {
		Valid    *bool  `json:"valid"`
		Severity string `json:"severity"`
		Messages []struct {
			Message  string `json:"message"`
			Severity string `json:"severity"`
			Path     string `json:"path"`
		} `json:"messages"`
		Suggestions []struct {
			Path  *string         `json:"path"`
			Value json.RawMessage `json:"value"`
		} `json:"suggestions"`
	}
	if err := json.Unmarshal(result, &v); err != nil || v.Valid == nil {
		f.addf("valid is not there, or something cannot be read: %v", err)
		return
	}
	for _, s := range v.Suggestions {
		if s.Path == nil || s.Value == nil {
			f.addf("a suggestion without a path or a value")
		}
	}
	errors := false
	for _, m := range v.Messages {
		errors = errors || m.Severity == "error"
		if m.Message == "" {
			f.addf("a message without text")
		}
		if m.Severity != "error" && m.Severity != "warn" && m.Severity != "info" {
			f.addf("a message of severity %q", m.Severity)
		}
	}
	switch {
	case *v.Valid && v.Severity != "":
		f.addf("a pass has severity %q", v.Severity)
	case *v.Valid && errors:
		f.addf("a pass has an error message: some engines block on it")
	case v.Severity != "" && v.Severity != "error" && v.Severity != "warn" && v.Severity != "info":
		f.addf("severity is %q: engines take what they do not know for an error", v.Severity)
	case !*v.Valid && v.Severity == "":
		f.addf("a verdict that is not valid has no severity")
	case !*v.Valid && v.Severity == "error" && !errors:
		f.addf("a denial has no error message: some engines let it pass")
	case !*v.Valid && v.Severity != "error" && errors:
		f.addf("a finding that does not block has an error message: some engines block on it")
	}
}

func mutation(f *finding, sent, result json.RawMessage) {
	modified, payload := string(splice.Get(result, "modified")), splice.Get(result, "payload")
	switch {
	case modified != "true" && modified != "false":
		f.addf("modified is %q", modified)
	case payload == nil:
		f.addf("a mutation without a payload")
	case modified == "false" && !same(sent, payload):
		f.addf("modified is false, and the payload is another")
	case modified == "true" && same(sent, payload):
		f.addf("modified is true, and the payload is the same")
	}
}

func checkUnknownMembers(ctx context.Context, p *probe, f *finding) {
	for i := range p.descriptors {
		d := &p.descriptors[i]
		event, phase, ok := d.toolCall()
		if !ok {
			continue
		}
		plain, ok1 := p.call(ctx, f, interceptors.MethodInvoke, invocation(d.Name, event, phase, payloadOf(phase), ""))
		more, ok2 := p.call(ctx, f, interceptors.MethodInvoke, invocation(d.Name, event, phase, payloadOf(phase),
			`,"undologConformance":1,"context":{"undologConformance":true}`))
		if ok1 && ok2 && plain.Result != nil && more.Error != nil && more.Error.Code == -32602 {
			f.addf("%s: refused because of members that it does not know: %s", d.Name, more.Error.Message)
		}
	}
}

func checkWrapped(ctx context.Context, p *probe, f *finding) {
	wrapped := func(phase string) string {
		if phase == "request" {
			return `{"method":"tools/call","params":` + benign + `}`
		}
		return benignResult
	}
	p.invoked(ctx, f, wrapped, "", func(d *descriptor, phase string, result json.RawMessage) {
		if d.Type != "mutation" || phase != "request" {
			return
		}
		payload := splice.Get(result, "payload")
		if string(splice.Get(payload, "method")) != `"tools/call"` || splice.Get(payload, "params") == nil {
			f.addf("%s: sent wrapped as {method, params}, answered %s", d.Name, payload)
		}
	})
}

func checkNumbers(ctx context.Context, p *probe, f *finding) {
	p.invoked(ctx, f, payloadOf, "", func(d *descriptor, _ string, result json.RawMessage) {
		payload := splice.Get(result, "payload")
		if d.Type == "mutation" && bytes.Contains(payload, []byte("900719925474099")) && !bytes.Contains(payload, []byte("9007199254740993")) {
			f.addf("%s: 9007199254740993 came back as another number: %s", d.Name, payload)
		}
	})
}
