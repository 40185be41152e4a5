package mcptest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// built holds one builder for each program that this process has asked for.
var built sync.Map

// Build compiles the main package pkg, a path below the module's root such as "./cmd/undolog", once a
// test process and returns the program's path.
func Build(t testing.TB, pkg string, tags ...string) string {
	t.Helper()
	key := pkg + " " + strings.Join(tags, ",")
	build, _ := built.LoadOrStore(key, sync.OnceValues(func() (string, error) { return compile(pkg, tags) }))
	path, err := build.(func() (string, error))()
	if err != nil {
		t.Fatalf("build %s: %v", pkg, err)
	}
	return path
}

func compile(pkg string, tags []string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := programDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-tags", strings.Join(tags, ","), "-ldflags=-w", "-o", path, pkg) // links faster
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

// programDir makes a directory beside the test binary where that is a temporary place, so that go test
// removes it, and in the system's otherwise.
func programDir() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	parent := filepath.Dir(self)
	if !strings.HasPrefix(parent, filepath.Clean(os.TempDir())+string(filepath.Separator)) {
		parent = ""
	}
	return os.MkdirTemp(parent, "programs")
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
