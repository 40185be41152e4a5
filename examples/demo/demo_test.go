package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

func TestDemo(t *testing.T) {
	t.Run("what is promised happens", func(t *testing.T) {
		out, err := demo(t, mcptest.Build(t, "./cmd/undolog"))
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("coloured, although it is no terminal:\n%s", out)
		}
		for _, want := range []string{"ada was charged once", "bob was charged once", "cy was charged once", "dee was charged once", "as promised"} {
			if !strings.Contains(out, want) {
				t.Errorf("want %q in\n%s", want, out)
			}
		}
	})
	t.Run("a gateway that lets repeated calls through is found out", func(t *testing.T) {
		out, err := demo(t, passThrough(t))
		if err == nil {
			t.Fatalf("the demo is content with a gateway that does nothing:\n%s", out)
		}
		if want := "the call was made again"; !strings.Contains(out, want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	})
}

// demo runs the demo with a program in undolog's place and returns what it printed.
func demo(t *testing.T, undolog string) (string, error) {
	t.Helper()
	bin := t.TempDir()
	for name, path := range map[string]string{"undolog": undolog, "payments": mcptest.Build(t, "./examples/payments")} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(mcptest.Build(t, "./examples/demo"), "-bin", bin, "-heartbeat", "6s") // other tests run on the machine
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// passThrough is a gateway that only starts the server that is named behind the dashes.
func passThrough(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "undolog")
	script := "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
