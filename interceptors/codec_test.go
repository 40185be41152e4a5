package interceptors_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/interceptors"
)

func TestDescriptor_JSON(t *testing.T) {
	cases := map[string]struct {
		descriptor interceptors.Descriptor
		want       string
	}{
		"H20 defaults are not written": {
			interceptors.Descriptor{Name: "a", Type: interceptors.TypeValidation, Mode: interceptors.ModeActive},
			`{"name":"a","type":"validation","hooks":[]}`},
		"everything": {
			interceptors.Descriptor{Name: "a", Version: "1", Description: "d", Type: interceptors.TypeMutation,
				Hooks: bothPhases("tools/call"), Mode: interceptors.ModeAudit, FailOpen: true,
				PriorityHint: &interceptors.Priority{Request: 1, Response: -1},
				Compat:       &interceptors.Compat{MinProtocol: "2025-06-18"}, ConfigSchema: json.RawMessage(`{"type":"object"}`)},
			`{"name":"a","version":"1","description":"d","type":"mutation","hooks":[{"events":["tools/call"],"phase":"request"},` +
				`{"events":["tools/call"],"phase":"response"}],"mode":"audit","failOpen":true,"priorityHint":{"request":1,"response":-1},` +
				`"compat":{"minProtocol":"2025-06-18"},"configSchema":{"type":"object"}}`},
		"one priority for both phases is a number": {
			interceptors.Descriptor{Name: "a", Type: interceptors.TypeMutation, PriorityHint: &interceptors.Priority{Request: 7, Response: 7}},
			`{"name":"a","type":"mutation","hooks":[],"priorityHint":7}`},
		"a priority of one phase leaves the other out": {
			interceptors.Descriptor{Name: "a", Type: interceptors.TypeMutation, PriorityHint: &interceptors.Priority{Response: -1}},
			`{"name":"a","type":"mutation","hooks":[],"priorityHint":{"response":-1}}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := marshal(t, c.descriptor)
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("JSON (-want +got)\n%s", diff)
			}
			var read interceptors.Descriptor
			if err := json.Unmarshal(got, &read); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(marshal(t, read))); diff != "" {
				t.Errorf("read and written again (-want +got)\n%s", diff)
			}
		})
	}
}

func TestPriority_JSON(t *testing.T) {
	for in, want := range map[string]interceptors.Priority{
		`5`: {Request: 5, Response: 5}, `{"request":2}`: {Request: 2}, `{"response":-2147483648}`: {Response: -2147483648}, `{}`: {},
	} {
		var got interceptors.Priority
		if err := json.Unmarshal([]byte(in), &got); err != nil || got != want {
			t.Errorf("%s is read as %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{`2147483648`, `1.5`, `"5"`, `{"request":"5"}`, `[]`} {
		var got interceptors.Priority
		if err := json.Unmarshal([]byte(in), &got); err == nil {
			t.Errorf("%s is read as %+v", in, got)
		}
	}
}

func TestContext_JSON(t *testing.T) {
	const in = `{"principal":{"type":"user","id":"alice","claims":{"n":9007199254740993}},"traceId":"t","sessionId":"s",` +
		`"acme.example/a":[1.0e2],"dev.undolog/exchange":"x"}`
	var c interceptors.Context
	if err := json.Unmarshal([]byte(in), &c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, string(marshal(t, c))); diff != "" {
		t.Errorf("JSON (-want +got)\n%s", diff)
	}
	for _, bad := range []string{
		`[]`, `{"traceId":1}`, `{"principal":[]}`, `{"principal":{}}`, `{"principal":{"type":"User"}}`,
		`{"principal":{"type":"user","id":1}}`, `{"principal":{"type":"user","claims":[]}}`, `{"sessionId":"a","sessionId":"b"}`,
	} {
		if err := json.Unmarshal([]byte(bad), &c); err == nil {
			t.Errorf("%s is read without an error", bad)
		}
	}
	masked := interceptors.Context{TraceID: "t", Extra: map[string]json.RawMessage{"traceId": json.RawMessage(`"other"`)}}
	if got := string(marshal(t, masked)); got != `{"traceId":"t"}` {
		t.Errorf("an extra member takes the place of a known one: %s", got)
	}
}

func TestDecodeInvoke(t *testing.T) {
	const head = `"name":"v","event":"tools/call","phase":"request"`
	p, err := interceptors.DecodeInvoke(json.RawMessage(`{` + head + `,"payload":{"n": 1.0e2},"timeoutMs":5000.0,"config":null,"context":null,"NAME":"w"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &interceptors.InvokeParams{Name: "v", Event: "tools/call", Phase: interceptors.PhaseRequest,
		Payload: json.RawMessage(`{"n": 1.0e2}`), TimeoutMs: 5000}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("DecodeInvoke (-want +got)\n%s", diff)
	}

	bad := map[string]struct{ in, path string }{
		"no object":                        {`[]`, ""},
		"nothing":                          {``, ""},
		"a broken end":                     {`{` + head, ""},
		"data after the object":            {`{` + head + `} {}`, ""},
		"a phase of old":                   {`{"name":"v","event":"tools/call","phase":"both"}`, "/phase"},
		"a pattern as event":               {`{"name":"v","event":"tools/*","phase":"request"}`, "/event"},
		"a negative timeout":               {`{` + head + `,"timeoutMs":-1}`, "/timeoutMs"},
		"half a timeout":                   {`{` + head + `,"timeoutMs":1.5}`, "/timeoutMs"},
		"a timeout out of all reason":      {`{` + head + `,"timeoutMs":1e300}`, "/timeoutMs"},
		"a config that is no object":       {`{` + head + `,"config":[]}`, "/config"},
		"a name twice":                     {`{` + head + `,"name":"w"}`, "/name"},
		"a member twice in the payload":    {`{` + head + `,"payload":{"arguments":{"to":"a","to":"b"}}}`, "/payload/arguments/to"},
		"a member twice, spelt in two way": {`{` + head + `,"payload":{"a":1,"\u0061":2}}`, "/payload/a"},
	}
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			_, err := interceptors.DecodeInvoke(json.RawMessage(c.in))
			var params *interceptors.ParamsError
			if !errors.As(err, &params) {
				t.Fatalf("DecodeInvoke = %v, want a ParamsError", err)
			}
			if got := params.Problems[0].Path; got != c.path {
				t.Errorf("path = %q, want %q", got, c.path)
			}
		})
	}
}

func TestMatchEvent(t *testing.T) {
	cases := []struct {
		pattern, event string
		want           bool
	}{
		{"*", "acme/deploy", true}, {"tools/call", "tools/call", true}, {"tools/call", "tools/calls", false},
		{"tools/*", "tools/call", true}, {"tools/*", "tools", false}, {"*/list", "tools/list", true},
		{"*/list", "tools/lists", false}, {"acme/*/x", "acme/a/b/x", true}, {"acme/*/x", "acme/x", false},
		{"a*b*c", "abc", true}, {"a*b*c", "acb", false}, {"a*a", "a", false}, {"", "x", false}, {"**", "x", true},
	}
	for _, c := range cases {
		if got := interceptors.MatchEvent(c.pattern, c.event); got != c.want {
			t.Errorf("MatchEvent(%q, %q) = %t", c.pattern, c.event, got)
		}
	}
}
