package enginecheck_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/enginecheck"
)

// faults are what the broken engine can have wrong, each with a case that must find it.
var faults = map[string]string{
	"order-request":           "engine/e02-sending-order-request",
	"order-response":          "engine/e01-receiving-order-response",
	"ignores-priority":        "engine/e03-priority",
	"unsorted":                "engine/e03-priority",
	"priority-of-other-phase": "engine/e04-priority-tie",
	"priority-number-only":    "engine/e04-priority-of-each-phase",
	"order-of-registration":   "engine/e04-priority-tie",
	"order-ignores-case":      "engine/e04-name-order",
	"order-descending":        "engine/e04-name-order",
	"not-atomic":              "engine/e07-crash-is-atomic",
	"goes-on-after-failure":   "engine/e07-crash-is-atomic",
	"never-open":              "engine/e08-crash-open",
	"always-open":             "engine/e07-crash-is-atomic",
	"open-discards":           "engine/e08-crash-open",
	"ignores-audit":           "engine/e10-audit-denial",
	"applies-audit":           "engine/e10-audit-mutator",
	"open-turns-denials":      "engine/e11-deny-fail-open",
	"blocks-on-warnings":      "engine/e12-findings",
	"believes-severity":       "engine/e14-valid-wins",
	"needs-severity":          "engine/e14-missing-severity",
	"stops-at-first-denial":   "engine/e15-all-awaited",
	"believes-interceptor":    "engine/e17-wrong-echo-interceptor",
	"believes-type":           "engine/e17-wrong-kind-closed",
	"believes-phase":          "engine/e17-wrong-echo-phase",
	"ignores-modified":        "engine/e17-lie-unmodified",
	"ignores-phase":           "engine/e19-select-hooks",
	"no-wildcards":            "engine/e19-select-hooks",
	"ignores-compat":          "engine/e19-select-compat",
	"merges":                  "engine/e29-removal",
	"no-response-phase":       "engine/e01-receiving-order-response",
	"governs-errors":          "engine/e31-error-answers",
	"ignores-is-error":        "engine/e31-iserror-governed",
	"doubles":                 "engine/e32-digits",
	"order-by-length":         "engine/e04-name-length",
	"needs-known-severity":    "engine/e14-unknown-severity",
	"keeps-name":              "engine/e29-rename",
	"refuses-bare":            "engine/e34-bare-result",
	"flat-only":               "engine/e34-nested-denial",
	"tasks-unseen":            "gateway/g14-task-result",
	"streams-unseen":          "gateway/g16-stream",
	"questions-unseen":        "gateway/g11-question-denied",
	"answers-unseen":          "gateway/g11-answer-denied",
	"drops-progress":          "gateway/g16-stream",
	"leaks-reason":            "engine/e38-no-leak",
	"leaks-result":            "engine/e38-no-leak-response",
	"id-as-string":            "engine/e11-deny-fail-open",
	"refuses-without-a-word":  "engine/e11-deny-fail-open",
	"silent":                  "engine/e09-audit-crash-told",
	"rounds-unseen":           "gateway/g10-question-denied",
	"lists-public":            "gateway/g13-private-list",
	"tells-nobody-who":        "gateway/g13-private-list",
	"task-results-unseen":     "gateway/g14-task-result-of-its-own",
	"task-notes-unseen":       "gateway/g14-notification",
	"task-notes-dropped":      "gateway/g14-notification",
	"believes-lists-forever":  "gateway/g18-new-list",
	"plans-twice":             "gateway/g18-not-under-way",
}

func brokenEngine(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "brokenengine")
	if out, err := exec.Command("go", "build", "-o", program, "../testdata/brokenengine").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// engineCases are the suite's cases about engines.
func engineCases(t *testing.T) []*conformance.Fixture {
	t.Helper()
	suite, err := conformance.Suite()
	if err != nil {
		t.Fatalf("Suite: %v", err)
	}
	return slices.DeleteFunc(suite, func(f *conformance.Fixture) bool { return f.Kind != "protocol" })
}

// onStreams and onHTTP are the broken engine with its agents on either.
func onStreams(program, fault string, posture conformance.Posture) *enginecheck.Engine {
	return &enginecheck.Engine{Posture: posture, Alerts: true,
		Command: []string{program, "-fault", fault, "-posture", string(posture), "-hosts", "{hosts}", "-upstream", "{upstream}"}}
}

func onHTTP(program, fault string, posture conformance.Posture) *enginecheck.Engine {
	e := onStreams(program, fault, posture)
	e.Command = append(e.Command, "-http", "{listen}")
	e.URL, e.Tokens = "http://{listen}/", map[string]string{"alice": "alice", "bob": "bob"}
	return e
}

func failed(r *conformance.Report) []string {
	var ids []string
	for _, res := range r.Results {
		if res.Status == conformance.Failed {
			ids = append(ids, res.ID)
		}
	}
	return ids
}

func TestRun_NamesEachFault(t *testing.T) {
	program, cases := brokenEngine(t), engineCases(t)
	for fault, want := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			row, _, _ := strings.Cut(want, "-") // its neighbours are tried too
			engines := map[string]*enginecheck.Engine{"HTTP": onHTTP(program, fault, conformance.PostureClient)}
			if row != "gateway/g13" { // about two principals
				engines["standard streams"] = onStreams(program, fault, conformance.PostureClient)
			}
			for name, e := range engines {
				r := enginecheck.Run(t.Context(), e, cases, &conformance.Options{Parallel: 4, Only: row, Patience: 4})
				if got := failed(r); !slices.Contains(got, want) {
					t.Errorf("agents on %s: failed %q, want %s among them", name, got, want)
				}
			}
		})
	}
}

func TestRun_FindsNothingWrongWithAGoodEngine(t *testing.T) {
	program, cases := brokenEngine(t), engineCases(t)
	for _, posture := range []conformance.Posture{conformance.PostureClient, conformance.PostureServer} {
		for _, e := range []*enginecheck.Engine{onStreams(program, "", posture), onHTTP(program, "", posture)} {
			r := enginecheck.Run(t.Context(), e, cases, &conformance.Options{Parallel: 4, Patience: 4})
			for _, res := range r.Results {
				if res.Status == conformance.Failed {
					t.Errorf("posture %s, agents at %q: %s: %q", posture, e.URL, res.ID, res.Details)
				}
			}
			if r.Count(conformance.Passed) < 55 {
				t.Errorf("posture %s, agents at %q: %d cases were tried", posture, e.URL, r.Count(conformance.Passed))
			}
		}
	}
}

// What cannot be asked from outside is no fault of the engine.
func TestRun_LeavesOutWhatItCannotAsk(t *testing.T) {
	const guard = `"interceptors":[{"name":"g","type":"validation","behavior":"deny-all","events":["tools/call"],"phases":"both","compat":{"minProtocol":"2026-07-28"}}]`
	const apply = `{"op":"apply","event":"tools/call","phase":"request","payload":{"name":"echo","arguments":{}},"context":{"protocol":%q},"expect":{"decision":%q}}`
	fixtures := map[string]string{
		"two revisions": `{"id":"engine/x","kind":"protocol","posture":"any",` + guard + `,"steps":[` +
			fmt.Sprintf(apply, "2026-07-28", "deny") + `,` + fmt.Sprintf(apply, "2025-11-25", "allow") + `]}`,
		"a host that is gone, in the response phase": `{"id":"engine/x","kind":"protocol","posture":"any","host":{"down":["h"]},` + guard +
			`,"steps":[{"op":"apply","event":"tools/call","phase":"response","payload":{"content":[]},"expect":{"decision":"allow"}}]}`,
	}
	program := brokenEngine(t)
	for name, raw := range fixtures {
		t.Run(name, func(t *testing.T) {
			var f conformance.Fixture
			if err := json.Unmarshal([]byte(raw), &f); err != nil {
				t.Fatal(err)
			}
			e := onStreams(program, "", conformance.PostureClient)
			e.Configure = func(*conformance.Fixture, map[string]string) (string, error) { return "", nil }
			r := enginecheck.Run(t.Context(), e, []*conformance.Fixture{&f}, &conformance.Options{Patience: 4})
			if len(r.Results) != 1 || r.Results[0].Status != conformance.Skipped {
				t.Errorf("results %+v, want one that is skipped", r.Results)
			}
		})
	}
}
