package hostcheck_test

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/hostcheck"
)

// faults are what the broken host can have wrong, each with the check that must find it.
var faults = map[string]string{
	"capability-missing":                     "host/capability",
	"capability-old-place":                   "host/capability",
	"capability-tools":                       "host/no-tools",
	"tools":                                  "host/no-tools",
	"drops-meta":                             "host/result-shape",
	"names-another":                          "host/hook-event",
	"name-any-case":                          "host/unknown-name",
	"name-trimmed":                           "host/unknown-name",
	"info-text":                              "host/result-shape",
	"path-number":                            "host/result-shape",
	"suggestions-object":                     "host/result-shape",
	"suggestion-without-value":               "host/result-shape",
	"null-list":                              "host/list",
	"unstable-order":                         "host/list-stable",
	"default-mode":                           "host/descriptors",
	"null-version":                           "host/descriptors",
	"fail-open-false":                        "host/descriptors",
	"phase-both":                             "host/descriptors",
	"twice":                                  "host/unique-names",
	"filter-no-wildcards":                    "host/filter",
	"filter-ignored":                         "host/filter-nothing",
	"filter-narrows-hooks":                   "host/filter",
	"filter-pattern":                         "host/filter-malformed",
	"unknown-name-code":                      "host/unknown-name",
	"no-hook-check":                          "host/hook-event",
	"no-phase-check":                         "host/hook-phase",
	"no-advertised-hooks":                    "host/hook-event",
	"malformed-code":                         "host/malformed-params",
	"strict-params":                          "host/result-unknown-members",
	"plural-method":                          "host/plural-method",
	"unknown-method-code":                    "host/unknown-method",
	"leak":                                   "host/errors-leak-nothing",
	"config":                                 "host/config-no-object",
	"result-type-missing":                    "host/list-result-type",
	"result-type-legacy":                     "host/list-result-type",
	"result-type-input-required":             "host/result-shape",
	"wrong-echo":                             "host/result-shape",
	"extra-member":                           "host/result-shape",
	"null-members":                           "host/result-shape",
	"pass-with-severity":                     "host/result-shape",
	"denial-without-message":                 "host/result-shape",
	"denial-without-severity":                "host/result-shape",
	"nested":                                 "host/result-shape",
	"lie-unmodified":                         "host/result-shape",
	"lie-modified":                           "host/result-shape",
	"no-payload":                             "host/result-shape",
	"unwraps":                                "host/result-wrapped",
	"numbers":                                "host/result-numbers",
	"id-as-string":                           "host/request-id",
	"id-as-number":                           "host/request-id",
	"id-zero-lost":                           "host/request-id",
	"empty-message":                          "host/error-messages",
	"empty-message-of-hooks":                 "host/error-messages",
	"discover-versions":                      "host/discover",
	"schema-keyword":                         "host/descriptors",
	"schema-type":                            "host/descriptors",
	"schema-inside":                          "host/descriptors",
	"priority-large":                         "host/descriptors",
	"priority-fraction":                      "host/descriptors",
	"priority-text":                          "host/descriptors",
	"priority-of-phase":                      "host/descriptors",
	"compat-text":                            "host/descriptors",
	"compat-backwards":                       "host/descriptors",
	"twice-other-type":                       "host/unique-names",
	"null-panics":                            "host/null-payload",
	"null-leaks":                             "host/null-payload",
	"result-type-missing server/discover":    "host/discover",
	"result-type-missing interceptors/list":  "host/list-result-type",
	"result-type-missing interceptor/invoke": "host/result-shape",
	"answers-notifications":                  "host/notification",
	"mixes-up":                               "host/concurrent",
	"duration-text":                          "host/result-shape",
	"message-without-text":                   "host/result-shape",
	"severity-unknown":                       "host/result-shape",
	"mangles-text":                           "host/result-shape",
	// of HTTP alone
	"null-500":              "host/null-payload",
	"origin":                "wire/w15-origin",
	"verbs":                 "wire/w13-verbs",
	"media-type":            "host/speaks",
	"version":               "wire/unknown-version",
	"method-header":         "wire/w04-no-method-header",
	"name-header":           "wire/w05-name-header",
	"meta":                  "wire/w07-meta-capabilities",
	"unknown-method-status": "wire/h30-plural-method",
}

var ofHTTP = map[string]bool{"media-type": true, "null-500": true}

func brokenHost(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "brokenhost")
	if out, err := exec.Command("go", "build", "-o", program, "../testdata/brokenhost").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

func TestRun_NamesEachFault(t *testing.T) {
	program := brokenHost(t)
	for fault, want := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			if got := failed(check(t, onHTTP(t, program, fault))); !slices.Contains(got, want) {
				t.Errorf("over HTTP: failed %q, want %s among them", got, want)
			}
			if strings.HasPrefix(want, "wire/") || ofHTTP[fault] {
				return
			}
			stdio := &hostcheck.Target{Command: []string{program, "-fault", fault}}
			if got := failed(check(t, stdio)); !slices.Contains(got, want) {
				t.Errorf("over stdio: failed %q, want %s among them", got, want)
			}
		})
	}
}

func TestRun_FindsNothingWrongWithAGoodHost(t *testing.T) {
	program := brokenHost(t)
	for name, target := range map[string]*hostcheck.Target{
		"over HTTP":  onHTTP(t, program, ""),
		"over stdio": {Command: []string{program}},
	} {
		r := check(t, target)
		for _, res := range r.Results {
			if res.Status == conformance.Failed {
				t.Errorf("%s: %s: %q", name, res.ID, res.Details)
			}
		}
		if !r.OK() || r.Count(conformance.Passed) < 40 {
			t.Errorf("%s: %d passed", name, r.Count(conformance.Passed))
		}
	}
}

func TestRun_ReportsAServerThatIsNone(t *testing.T) {
	r := check(t, &hostcheck.Target{Command: []string{"go", "version"}})
	if got := failed(r); !slices.Equal(got, []string{"host/speaks"}) || r.OK() {
		t.Errorf("failed %q", got)
	}
}

// onHTTP starts the broken host for the test's time.
func onHTTP(t *testing.T, program, fault string) *hostcheck.Target {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "-http", "127.0.0.1:0", "-fault", fault)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // killed at the test's end
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("read URL: %v", err)
	}
	return &hostcheck.Target{URL: strings.TrimSpace(url)}
}

func check(t *testing.T, target *hostcheck.Target) *conformance.Report {
	t.Helper()
	r, err := hostcheck.Run(t.Context(), target, nil)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return r
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
