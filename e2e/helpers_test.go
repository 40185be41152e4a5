package e2e_test

import (
	"os"
	"testing"
)

// touch creates a file that the payments server waits for.
func touch(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
