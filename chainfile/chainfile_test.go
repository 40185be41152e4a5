package chainfile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/chainfile"
	"github.com/undolog/undolog/interceptors"
)

const whole = `
version: 1
deadline: 1m20s
hosts:
  - name: pii
    url: https://pii.example.com/mcp
    headers: {Authorization: "env:PII_TOKEN"}
    respond: true
    wrapped: true
    max_payload: 1000
    interceptors:
      redact:
        required: mutation
        mode: audit
        fail_open: true
        priority: {request: 5, response: -5}
        timeout: 1.5s
        hooks: [{events: ["tools/*"], phase: request}]
        config: {fields: [ssn], big: 9007199254740993}
      greet: {disabled: true, side: agent}
  - name: lint
    command: [lint-host, --fast]
    env: {KEY: "env:LINT_KEY"}
    side: upstream
`

func TestParse(t *testing.T) {
	f, err := chainfile.Parse("chain.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if f.Deadline != 80*time.Second {
		t.Errorf("deadline %v, want 1m20s", f.Deadline)
	}
	open := true
	want := &chain.HostPolicy{
		MaxPayload: 1000,
		Required:   map[string]interceptors.Type{"redact": interceptors.TypeMutation},
		Overrides: map[string]chain.Override{
			"redact": {
				Mode: interceptors.ModeAudit, FailOpen: &open, Priority: &interceptors.Priority{Request: 5, Response: -5}, TimeoutMs: 1500,
				Hooks:  []interceptors.Hook{{Events: []string{"tools/*"}, Phase: interceptors.PhaseRequest}},
				Config: json.RawMessage(`{"fields":["ssn"],"big":9007199254740993}`),
			},
			"greet": {Disabled: true, Side: chain.SideAgent},
		},
	}
	if diff := cmp.Diff(want, f.Hosts[0].Policy()); diff != "" {
		t.Errorf("policy (-want +got)\n%s", diff)
	}
	if p := f.Hosts[1].Policy(); p.Side != chain.SideUpstream || p.MaxPayload != 4<<20 {
		t.Errorf("policy %+v", p)
	}
}

func TestParse_SaysWhereAndWhat(t *testing.T) {
	host := func(more string) string { return "version: 1\nhosts:\n  - name: a\n" + more }
	tests := []struct{ name, file, want string }{
		{"no version", "hosts: []\n", `chain.yaml:1:1: version is missing: begin the file with "version: 1"`},
		{"a misspelt field", host("    comand: [x]\n"), `chain.yaml:4:5: unknown field "comand": did you mean "command"?`},
		{"a misspelt field of an interceptor", host("    command: [x]\n    interceptors:\n      i: {failOpn: true}\n"), `chain.yaml:6:11: unknown field "failOpn": did you mean "fail_open"?`},
		{"nowhere", host("    side: agent\n"), "chain.yaml:3:5: host a is nowhere: give it a command or a url"},
		{"two places", host("    command: [x]\n    url: https://x\n"), "chain.yaml:5:5: command and url are two hosts: keep one"},
		{"a header for a command", host("    command: [x]\n    headers: {A: \"env:B\"}\n"), "chain.yaml:5:5: headers are for a url: a command has env"},
		{"a secret in the file", host("    url: https://x\n    headers: {A: Bearer s3cret}\n"), "write env:NAME"},
		{"a name twice", host("    command: [x]\n  - name: a\n    command: [y]\n"), "chain.yaml:5:5: the name a is taken"},
		{"our name", "version: 1\nhosts:\n  - name: undolog\n    command: [x]\n", "chain.yaml:3:5: the name undolog is taken"},
		{"required without a type", host("    command: [x]\n    interceptors:\n      i: {required: true}\n"), "chain.yaml:6:21: required is true: write validation or mutation"},
		{"required and disabled", host("    command: [x]\n    interceptors:\n      i: {required: mutation, disabled: true}\n"), "chain.yaml:6:31: i is required and disabled: keep one"},
		{"an order of validations", host("    command: [x]\n    interceptors:\n      i: {required: validation, priority: 3}\n"), "a validation has no order"},
		{"no duration", host("    command: [x]\n    timeout: 5\n"), "timeout is a number: it must be text"},
		{"an odd deadline", "version: 1\ndeadline: soon\n", "it must be a duration such as 500ms"},
		{"no deadline at all", "version: 1\ndeadline: 0s\n", "chain.yaml:2:11: deadline must be longer than nothing"},
		{"an event of older drafts", host("    command: [x]\n    interceptors:\n      i: {hooks: [{events: [\"*/response\"], phase: response}]}\n"), `*/response is a name of older drafts: write "*" with phase response`},
		{"an odd duration", host("    command: [x]\n    timeout: soon\n"), "it must be a duration such as 500ms"},
		{"an empty duration", host("    command: [x]\n    timeout: \"\"\n"), "timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := chainfile.Parse("chain.yaml", []byte(tt.file))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q in it", err, tt.want)
			}
			var located *chainfile.Error
			if !errors.As(err, &located) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v is no place in the file, or tells a secret", err)
			}
		})
	}
}

func lookup(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
}

// site is a host behind HTTP that wants a token, with one validator that denies.
func site(t *testing.T) string {
	t.Helper()
	s := interceptors.NewServer(nil)
	err := s.Add(&interceptors.Validator{
		Descriptor: interceptors.Descriptor{Name: "guard", Hooks: []interceptors.Hook{{Events: []string{"*"}, Phase: interceptors.PhaseRequest}}},
		Validate: func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
			return interceptors.Deny("no"), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := s.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// used puts a file's hosts on a gateway's chain and runs the request phase of a call.
func used(t *testing.T, file string, log *bytes.Buffer) *chain.PhaseResult {
	t.Helper()
	f, err := chainfile.Parse("chain.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, err := chain.New(&chain.Options{Posture: chain.PostureGateway, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := f.Use(c, &chainfile.Options{Lookup: lookup(map[string]string{"TOKEN": "Bearer s3cret"}), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { chainfile.Close(hosts) })
	return c.Execute(t.Context(), &chain.PhaseParams{Event: "tools/call", Phase: interceptors.PhaseRequest, Payload: json.RawMessage(`{"name":"t"}`)})
}

func TestUse(t *testing.T) {
	url := site(t)
	head := "version: 1\nhosts:\n  - name: a\n    url: " + url + "\n    headers: {Authorization: \"env:TOKEN\"}\n"
	tests := []struct {
		name, file string
		denied     bool // by a verdict
		failed     bool
	}{
		{"a host's verdict counts", head, true, false},
		{"one that is disabled is not asked", head + "    interceptors: {guard: {disabled: true}}\n", false, false},
		{"one in audit mode does not count", head + "    interceptors: {guard: {mode: audit}}\n", false, false},
		{"hooks are narrowed", head + "    interceptors: {guard: {hooks: [{events: [tools/list], phase: request}]}}\n", false, false},
		{"a required one that the host does not have blocks", head + "    interceptors: {other: {required: mutation}}\n", true, true},
		{"a payload above the limit is a failure", head + "    max_payload: 3\n", false, true},
		{"a host that is gone from the start blocks when required",
			"version: 1\nhosts:\n  - name: a\n    command: [/nowhere/such-a-program]\n    interceptors: {guard: {required: validation}}\n", false, true},
		{"and does not when nothing of it is", "version: 1\nhosts:\n  - name: a\n    command: [/nowhere/such-a-program]\n", false, false},
		{"nor when it may fail open",
			"version: 1\nhosts:\n  - name: a\n    command: [/nowhere/such-a-program]\n    interceptors: {guard: {required: validation, fail_open: true}}\n", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			r := used(t, tt.file, &log)
			if blocked := r.Abort != nil; blocked != (tt.denied || tt.failed) || blocked && !tt.failed && !r.Abort.Denied {
				t.Errorf("abort %+v", r.Abort)
			}
			if strings.Contains(log.String(), "s3cret") {
				t.Errorf("a secret is logged:\n%s", log.String())
			}
		})
	}
}

func TestUse_MissingVariable(t *testing.T) {
	f, err := chainfile.Parse("chain.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	c, err := chain.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Use(c, &chainfile.Options{Lookup: lookup(map[string]string{"PII_TOKEN": "x"})})
	var missing *chainfile.MissingEnvError
	if !errors.As(err, &missing) || missing.Host != "lint" || missing.Variable != "LINT_KEY" {
		t.Errorf("error %v", err)
	}
}

// Whatever the file holds, reading it ends, and what is accepted can be put on a chain.
func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add("version: 1\nhosts: [{name: a, command: [x], interceptors: {i: {priority: 3}}}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := chainfile.Parse("chain.yaml", []byte(text))
		if err != nil {
			return
		}
		for i := range file.Hosts {
			file.Hosts[i].Policy()
		}
	})
}
