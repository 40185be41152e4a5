package e2e_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// touch creates a file that the payments server waits for.
func touch(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// serverRuns reports whether a payments server of this world is still running.
func serverRuns(w *world) bool {
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, d := range dirs {
		line, err := os.ReadFile(d)
		if err == nil && bytes.Contains(line, []byte(w.ledger)) && bytes.HasPrefix(line, []byte(w.server[0])) {
			return true
		}
	}
	return false
}
