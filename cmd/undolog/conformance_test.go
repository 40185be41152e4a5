package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

func TestConformance_Refuses(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"two subjects":         {[]string{"--target", "http://x", "--", "y"}, "give one"},
		"two kinds":            {[]string{"--adapter", "--engine", "--", "y"}, "one of them"},
		"no adapter":           {[]string{"--adapter"}, "name the program"},
		"a report of no kind":  {[]string{"--report", "pdf"}, "want text, json or junit"},
		"engine's flags alone": {[]string{"--engine-alerts", "--", "y"}, "are for --engine"},
		"a token on streams":   {[]string{"--engine", "--engine-token", "a=b", "--", "y"}, "is for --engine-url"},
		"a posture of no kind": {[]string{"--posture", "both"}, "want client or server"},
		"no fixtures":          {[]string{"--fixtures", dir}, "there are none"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := said(t, append([]string{"conformance", "--quiet"}, c.args...)...)
			if code != exitUsage || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %d; said %q, want in it %q", code, exitUsage, out, c.want)
			}
		})
	}
}

// counts are the counts of a JSON report.
func counts(t *testing.T, path string) map[string]int {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Counts map[string]int `json:"counts"`
	}
	if err := json.Unmarshal(raw, &report); err != nil {
		t.Fatalf("read report: %v", err)
	}
	return report.Counts
}

func TestConformance_OfOurServer(t *testing.T) {
	undolog, dir := mcptest.Build(t, "./cmd/undolog"), t.TempDir()
	path := filepath.Join(dir, "report.json")
	out, code := said(t, "conformance", "--quiet", "--report", "json", "--output", path,
		"--", undolog, "serve", "--stdio", "--db", filepath.Join(dir, "log.db"))
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if n := counts(t, path); n["passed"] < 40 || n["failed"] > 0 {
		t.Errorf("counts %v", n)
	}
}

func TestConformance_OfOurGateway(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	list := "- {token: token-of-alice-123456, principal: alice}\n- {token: token-of-bob-12345678, principal: bob}\n"
	if err := os.WriteFile(tokens, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	agents := map[string]struct{ runner, gateway []string }{
		"on standard streams": {},
		"over HTTP": {
			[]string{"--engine-url", "http://{listen}/mcp", "--engine-token", "alice=token-of-alice-123456,bob=token-of-bob-12345678"},
			[]string{"--http", "{listen}", "--tokens", tokens},
		},
	}
	for side, posture := range map[string]string{"agent": "server", "upstream": "client"} {
		for name, agent := range agents {
			t.Run("at the boundary to the "+side+", agents "+name, func(t *testing.T) {
				checkGateway(t, posture, agent.runner, agent.gateway)
			})
		}
	}
}

// checkGateway checks our gateway at one boundary, with more flags of the runner and of the gateway.
func checkGateway(t *testing.T, posture string, runner, gateway []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	args := []string{"conformance", "--quiet", "--patience", "4", "--report", "json", "--output", path,
		"--engine", "--posture", posture, "--engine-config", "undolog", "--engine-limited", "--engine-alerts"}
	args = append(append(args, runner...), "--", mcptest.Build(t, "./cmd/undolog"), "gateway", "--db", "{dir}/log.db",
		"--chain", "{config}", "--max-result", "1MB", "--upstream", "{upstream}")
	out, code := said(t, append(args, gateway...)...)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if n := counts(t, path); n["passed"] < 85 || n["failed"] > 0 {
		t.Errorf("counts %v", n)
	}
}

func TestConformance_ExpectedFailuresMustShrink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "expected.yaml")
	if err := os.WriteFile(path, []byte("- host/h01-hook-event\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"conformance", "--quiet", "--only", "host/h01"}
	if out, code := said(t, args...); code != exitOK {
		t.Fatalf("exit code %d: %s", code, out)
	}
	out, code := said(t, append(args, "--expected-failures", path)...)
	if code != exitFailed || !strings.Contains(out, "PASSED, BUT THE EXPECTED-FAILURES FILE NAMES IT") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestConformance_FixturesOfADirectory(t *testing.T) {
	out, code := said(t, "conformance", "--quiet", "--no-suite", "--only", "protocol/plain-", "--fixtures", "../../conformance/cases")
	if code != exitOK || !strings.Contains(out, "60 passed, 0 failed") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// Fixtures of others, in the directory that UNDOLOG_FIXTURES names: all pass and none is skipped.
func TestConformance_FixturesOfOthers(t *testing.T) {
	dir := os.Getenv("UNDOLOG_FIXTURES")
	if dir == "" {
		t.Skip("UNDOLOG_FIXTURES names no directory of fixtures")
	}
	out, code := said(t, "conformance", "--quiet", "--no-suite", "--fixtures", dir)
	if code != exitOK || !strings.Contains(out, " passed, 0 failed, 0 expected failures, 0 skipped") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
