package e2e_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
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

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// lockedOutput collects what a process prints while the test looks at it.
type lockedOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *lockedOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *lockedOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
