package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/conformance"
)

func load(t *testing.T, files map[string]string) ([]*conformance.Fixture, error) {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return conformance.Load(fsys)
}

const simple = `{"id":"protocol/a_b","kind":"protocol","requirement":"R","description":"d",
 "interceptors":[{"name":"n","type":"validation","behavior":"allow-all","events":["tools/call"],"phases":"both","mode":"enforce"}],
 "steps":[{"op":"chain","event":"tools/call","phase":"request","payload":{},"context":null,"expect":{"decision":"allow"}}],"volatile":[]}`

func TestLoad_ReadsOlderSpellings(t *testing.T) {
	fixtures, err := load(t, map[string]string{"protocol/a.json": simple, "manifest.json": `{"fixtures":[]}`, "list.json": `[{"id":"protocol/a_b"}]`, "schema/x.json": `{`})
	if err != nil || len(fixtures) != 1 {
		t.Fatalf("Load: %d fixtures, %v", len(fixtures), err)
	}
	f := fixtures[0]
	if f.Interceptors[0].Mode != "active" || f.Steps[0].Op != conformance.OpApply || f.Posture != conformance.PostureClient {
		t.Errorf("mode %q, op %q, posture %q", f.Interceptors[0].Mode, f.Steps[0].Op, f.Posture)
	}
	if need := f.Needs(); len(need) != 0 {
		t.Errorf("a plain fixture needs %q", need)
	}
}

func TestLoad_Refuses(t *testing.T) {
	for name, text := range map[string]string{
		"a misspelt expectation":     strings.Replace(simple, `"decision"`, `"decison"`, 1),
		"an unknown op":              strings.Replace(simple, `"chain"`, `"try"`, 1),
		"a step that cannot fail":    strings.Replace(simple, `{"decision":"allow"}`, `{}`, 1),
		"a decision that is neither": strings.Replace(simple, `"allow"}`, `"maybe"}`, 1),
		"no steps":                   `{"id":"x","steps":[]}`,
		"misspelt steps":             strings.Replace(simple, `"steps"`, `"step"`, 1),
		"an error and a result":      strings.Replace(simple, `{"decision":"allow"}`, `{"errorCode":-32602,"result":{}}`, 1),
		"what is no JSON":            `{`,
	} {
		if _, err := load(t, map[string]string{"a.json": text}); err == nil {
			t.Errorf("%s is loaded", name)
		}
	}
	if _, err := load(t, map[string]string{"a.json": simple, "b.json": simple}); err == nil {
		t.Error("two fixtures of one id are loaded")
	}
}

func TestSuite_NamesWhatItNeeds(t *testing.T) {
	suite, err := conformance.Suite()
	if err != nil {
		t.Fatalf("Suite: %v", err)
	}
	if len(suite) < 100 {
		t.Errorf("%d cases", len(suite))
	}
	for _, f := range suite {
		if f.Requirement == "" || f.Description == "" || !strings.Contains(f.ID, "/") {
			t.Errorf("case %q has no requirement, description or kind", f.ID)
		}
	}
}

// scripted is an adapter that answers every call with what it was given.
type scripted struct {
	answer   conformance.Answer
	decision conformance.Decision
	has      bool
}

func (s *scripted) Name() string                 { return "scripted" }
func (s *scripted) Has(conformance.Feature) bool { return s.has }
func (s *scripted) Close() error                 { return nil }
func (s *scripted) CreateSession(context.Context, *conformance.Fixture) (conformance.Session, error) {
	return s, nil
}

func (s *scripted) List(context.Context, *string) (*conformance.Answer, error) { return &s.answer, nil }

func (s *scripted) Invoke(context.Context, json.RawMessage) (*conformance.Answer, error) {
	return &s.answer, nil
}

func (s *scripted) Apply(context.Context, *conformance.Step) (*conformance.Decision, error) {
	return &s.decision, nil
}

func TestReplay_Compares(t *testing.T) {
	big := json.RawMessage(`{"n":9007199254740993,"durationMs":4,"deep":[{"info":{},"b":1,"a":"<"}]}`)
	result := func(raw json.RawMessage) *scripted {
		return &scripted{answer: conformance.Answer{Result: raw}, has: true}
	}
	decided := func(d string, payload string) *scripted {
		return &scripted{decision: conformance.Decision{Decision: d, FinalPayload: json.RawMessage(payload)}, has: true}
	}
	refused := &scripted{answer: conformance.Answer{Error: &conformance.WireError{Code: -32602, Message: "m", Data: json.RawMessage(`{"name":"x"}`)}}, has: true}
	for _, test := range []struct {
		name, step string
		adapter    *scripted
		fault      string // empty: passes
	}{
		{"canonical text is compared after scrubbing", `{"op":"list","expect":{"result":1,"canonical":"{\"deep\":[{\"a\":\"<\",\"b\":1}],\"n\":9007199254740992}"}}`, result(big), ""},
		{"another result is a fault", `{"op":"list","expect":{"result":{"n":1}}}`, result(big), "result is"},
		{"digits count in a match", `{"op":"list","expect":{"match":{"n":9007199254740992}}}`, result(big), "result/n is 9007199254740993"},
		{"a match may leave members out", `{"op":"list","expect":{"match":{"n":9007199254740993}}}`, result(big), ""},
		{"a match wants arrays whole", `{"op":"list","expect":{"match":{"deep":[]}}}`, result(big), "result/deep"},
		{"what must be absent", `{"op":"list","expect":{"absent":["/deep/0/b"]}}`, result(big), "/deep/0/b"},
		{"an error in place of a result", `{"op":"list","expect":{"result":{}}}`, refused, "error -32602"},
		{"an error is compared by code", `{"op":"list","expect":{"errorCode":-32603}}`, refused, "want -32603"},
		{"and by data", `{"op":"list","expect":{"errorCode":-32602,"errorData":{"name":"y"}}}`, refused, "error.data/name"},
		{"a result in place of an error", `{"op":"list","expect":{"errorCode":-32602}}`, result(big), "no error"},
		{"the decision", `{"op":"apply","event":"e","phase":"request","expect":{"decision":"deny"}}`, decided("allow", `{}`), `decision is "allow"`},
		{"the final payload", `{"op":"apply","event":"e","phase":"request","expect":{"decision":"allow","finalPayloadCanonical":"{}"}}`, decided("allow", `{"a":1}`), "final payload is"},
		{"what the payload must not hold", `{"op":"apply","event":"e","phase":"request","expect":{"decision":"allow","forbids":["secret"]}}`, decided("allow", `{"a":"secret"}`), `"secret" is in`},
		{"escapes do not hide it", `{"op":"apply","event":"e","phase":"request","expect":{"decision":"allow","forbids":["secret"]}}`, decided("allow", `{"a":"s\u0065cret"}`), `"secret" is in`},
		{"what it must hold", `{"op":"apply","event":"e","phase":"request","expect":{"decision":"allow","requires":["b"]}}`, decided("allow", `{"a":1}`), `"b" is not in`},
		{"one of several", `{"op":"list","expect":{"anyOf":[{"errorCode":1},{"match":{"n":9007199254740993}}]}}`, result(big), ""},
		{"none of several", `{"op":"list","expect":{"anyOf":[{"errorCode":1},{"match":{"n":2}}]}}`, result(big), "none of what is allowed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			fixtures, err := load(t, map[string]string{"a.json": `{"id":"x","steps":[` + test.step + `],"volatile":["durationMs","info"]}`})
			if err != nil {
				t.Fatalf("Load: %v", err)
			}
			faults, err := conformance.Replay(t.Context(), test.adapter, fixtures[0])
			if err != nil {
				t.Fatalf("Replay: %v", err)
			}
			if got := strings.Join(faults, "; "); (test.fault == "") != (got == "") || !strings.Contains(got, test.fault) {
				t.Errorf("faults %q, want %q", got, test.fault)
			}
		})
	}
}

func TestReplay_SkipsWhatTheAdapterHasNot(t *testing.T) {
	fixtures, err := load(t, map[string]string{"a.json": `{"id":"x","posture":"server","steps":[{"op":"list","expect":{"result":1}}]}`})
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	if _, err := conformance.Replay(t.Context(), &scripted{}, fixtures[0]); !errors.Is(err, conformance.ErrUnsupported) {
		t.Errorf("Replay: %v, want ErrUnsupported", err)
	}
}

func results() *conformance.Report {
	return &conformance.Report{Suite: "1", Results: []conformance.Result{
		{ID: "a", Requirement: "R1", Subject: "s", Status: conformance.Passed},
		{ID: "b", Requirement: "R1", Subject: "s", Status: conformance.Failed, Details: []string{"wrong \x1b[2J <&>"}},
		{ID: "c", Requirement: "R2", Subject: "s", Status: conformance.Skipped, Details: []string{"why"}},
	}}
}

func TestExpectedFailures(t *testing.T) {
	for _, test := range []struct {
		name, file string
		ok         bool
		status     []conformance.Status
		stale      []string
	}{
		{"none", `[]`, false, []conformance.Status{conformance.Passed, conformance.Failed, conformance.Skipped}, nil},
		{"the failing one", "# known\n- b", true, []conformance.Status{conformance.Passed, conformance.ExpectedFailed, conformance.Skipped}, nil},
		{"of its subject", `["b [s]"]`, true, []conformance.Status{conformance.Passed, conformance.ExpectedFailed, conformance.Skipped}, nil},
		{"of another subject", `["b [t]"]`, false, []conformance.Status{conformance.Passed, conformance.Failed, conformance.Skipped}, []string{"b [t]"}},
		{"one that passes", `[a, b]`, false, []conformance.Status{conformance.UnexpectedPass, conformance.ExpectedFailed, conformance.Skipped}, nil},
		{"one that is not there", `[b, z]`, false, []conformance.Status{conformance.Passed, conformance.ExpectedFailed, conformance.Skipped}, []string{"z"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			expected, err := conformance.ParseExpectedFailures([]byte(test.file))
			if err != nil {
				t.Fatalf("ParseExpectedFailures: %v", err)
			}
			r := results()
			expected.Apply(r)
			var status []conformance.Status
			for _, res := range r.Results {
				status = append(status, res.Status)
			}
			if diff := cmp.Diff(test.status, status); diff != "" {
				t.Errorf("statuses (-want +got)\n%s", diff)
			}
			if r.OK() != test.ok || !slices.Equal(r.Stale, test.stale) {
				t.Errorf("OK %v, stale %q; want %v, %q", r.OK(), r.Stale, test.ok, test.stale)
			}
		})
	}
}

func TestReport_NothingTriedIsNotOK(t *testing.T) {
	r := &conformance.Report{Results: []conformance.Result{{ID: "c", Status: conformance.Skipped}}}
	if r.OK() {
		t.Error("a run in which everything was skipped is OK")
	}
}

func TestReport_Forms(t *testing.T) {
	var text, js, junit bytes.Buffer
	r := results()
	if err := errors.Join(r.WriteText(&text, false), r.WriteJSON(&js), r.WriteJUnit(&junit)); err != nil {
		t.Fatalf("write: %v", err)
	}
	if strings.Contains(text.String(), "\x1b") || !strings.Contains(text.String(), "FAILED  b  (R1) [s]") ||
		!strings.Contains(text.String(), "1 passed, 1 failed, 0 expected failures, 1 skipped: compliance 50%") {
		t.Errorf("text:\n%s", &text)
	}
	var decoded struct {
		OK     bool           `json:"ok"`
		Counts map[string]int `json:"counts"`
	}
	if err := json.Unmarshal(js.Bytes(), &decoded); err != nil {
		t.Fatalf("JSON report: %v", err)
	}
	if diff := cmp.Diff(map[string]int{"passed": 1, "failed": 1, "skipped": 1}, decoded.Counts); diff != "" || decoded.OK {
		t.Errorf("JSON report, ok %v (-want +got)\n%s", decoded.OK, diff)
	}
	var suites struct {
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Name  string     `xml:"name,attr"`
			Cases []struct{} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(junit.Bytes(), &suites); err != nil {
		t.Fatalf("JUnit report: %v\n%s", err, &junit)
	}
	if suites.Failures != 1 || len(suites.Suites) != 2 || len(suites.Suites[0].Cases) != 2 {
		t.Errorf("JUnit report: %+v", suites)
	}
}

func TestExternal(t *testing.T) {
	program := filepath.Join(t.TempDir(), "adapter")
	if out, err := exec.Command("go", "build", "-o", program, "./testdata/lineadapter").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	plain := plainFixtures(t)
	commands := map[string][]string{"Go": {program}}
	if python, err := exec.LookPath("python3"); err == nil {
		commands["the documented example"] = []string{python, documentedExample(t)}
	}
	for name, command := range commands {
		if r := external(t, plain, command...); r.Count(conformance.Passed) != len(plain) {
			t.Errorf("%s: %d of %d pass: %+v", name, r.Count(conformance.Passed), len(plain), r.Results)
		}
	}
	if r := external(t, plain, program, "-permissive"); r.Count(conformance.Failed) == 0 {
		t.Error("an adapter that never denies passes")
	}
}

// documentedExample writes the example of the adapter page to a file.
func documentedExample(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/conformance-adapter.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(page), "```python\n")
	code, _, ok := strings.Cut(code, "```")
	if lines := strings.Count(code, "\n"); !ok || lines > 60 {
		t.Fatalf("the example has %d lines, want at most 60", lines)
	}
	script := filepath.Join(t.TempDir(), "adapter.py")
	if err := os.WriteFile(script, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	return script
}

func TestExternal_ProgramThatEnds(t *testing.T) {
	if _, err := conformance.StartExternal(t.Context(), []string{"go", "version"}, nil); err == nil {
		t.Error("a program that is no adapter is taken for one")
	}
}

// plainFixtures are the cases that an adapter without any feature can try, and those of UNDOLOG_FIXTURES.
func plainFixtures(t *testing.T) []*conformance.Fixture {
	t.Helper()
	suite, err := conformance.Suite()
	if err != nil {
		t.Fatalf("Suite: %v", err)
	}
	plain := slices.DeleteFunc(suite, func(f *conformance.Fixture) bool { return !strings.HasPrefix(f.ID, "protocol/plain-") })
	for _, f := range plain {
		if need := slices.DeleteFunc(f.Needs(), func(n conformance.Feature) bool { return n == conformance.FeatureInvoke }); len(need) > 0 {
			t.Errorf("%s is not plain: it needs %q", f.ID, need)
		}
	}
	if len(plain) < 12 {
		t.Fatalf("the suite has %d plain cases", len(plain))
	}
	if dir := os.Getenv("UNDOLOG_FIXTURES"); dir != "" {
		others, err := conformance.Load(os.DirFS(dir))
		if err != nil || len(others) == 0 {
			t.Fatalf("UNDOLOG_FIXTURES: %d fixtures, %v", len(others), err)
		}
		plain = append(plain, others...)
	}
	return plain
}

func external(t *testing.T, fixtures []*conformance.Fixture, argv ...string) *conformance.Report {
	t.Helper()
	a, err := conformance.StartExternal(t.Context(), argv, os.Stderr)
	if err != nil {
		t.Fatalf("StartExternal: %v", err)
	}
	r := conformance.Run(t.Context(), fixtures, a, nil)
	if err := a.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	return r
}
