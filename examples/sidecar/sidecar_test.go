package main_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

func TestSidecar(t *testing.T) {
	url := mcptest.StartHTTP(t, exec.Command(mcptest.Build(t, "./cmd/undolog"),
		"serve", "--http", "127.0.0.1:0", "--db", filepath.Join(t.TempDir(), "effects.db")))
	for _, c := range []struct{ name, run, want string }{
		{"the letter that is sent again is sent once", "first", "letters sent: 2"},
		{"another process of the same run sends none", "first", "letters sent: 0"},
		{"another run sends its own", "second", "letters sent: 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := exec.Command(mcptest.Build(t, "./examples/sidecar"), "--undolog", url, "--run", c.run).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !strings.Contains(string(out), c.want) {
				t.Errorf("want %q in\n%s", c.want, out)
			}
		})
	}
}
