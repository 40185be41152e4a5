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
	undolog := mcptest.Build(t, "./cmd/undolog")
	for side, posture := range map[string]string{"agent": "server", "upstream": "client"} {
		t.Run("at the boundary to the "+side, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "report.json")
			out, code := said(t, "conformance", "--quiet", "--patience", "4", "--report", "json", "--output", path,
				"--engine", "--posture", posture, "--engine-config", "undolog", "--engine-limited",
				"--", undolog, "gateway", "--db", "{dir}/log.db", "--chain", "{config}", "--max-result", "1MB", "--upstream", "{upstream}")
			if code != exitOK {
				t.Fatalf("exit code %d: %s", code, out)
			}
			if n := counts(t, path); n["passed"] < 60 || n["failed"] > 0 {
				t.Errorf("counts %v", n)
			}
		})
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
