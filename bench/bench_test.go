package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

// The figures of so short a run mean nothing; that every one of them is taken is what is tested.
func TestBench(t *testing.T) {
	bin := t.TempDir()
	for _, pkg := range []string{"./cmd/undolog", "./examples/payments"} {
		if err := os.Symlink(mcptest.Build(t, pkg), filepath.Join(bin, filepath.Base(pkg))); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(mcptest.Build(t, "./bench"), "-bin", bin, "-duration", "20ms", "-heap-calls", "200")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	var messages strings.Builder
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &messages)
	}
	for _, want := range []string{
		"request phase", "response phase", "allocations of a whole call", "200 rules", "of a read, stdio", "of a write, stdio",
		"what the log adds", "callers: 1 ", "callers: 8 ", "callers: 64 ", "20 calls", "100 calls", "200 calls",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no row %q in\n%s", want, out)
		}
	}
	if goals := strings.Count(string(out), ": reached") + strings.Count(string(out), ": missed"); goals != 7 {
		t.Errorf("%d goals are judged, want 7:\n%s", goals, out)
	}
}
