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
	for _, c := range []struct {
		name, run, respond string
		sent               string
		refused            int
	}{
		{"the letter that is sent again is sent once", "first", "true", "letters sent: 2", 0},
		{"another process of the same run sends none", "first", "true", "letters sent: 0", 0},
		{"another run sends its own", "second", "true", "letters sent: 2", 0},
		{"an engine that takes no answers blocks the repeated letter", "third", "false", "letters sent: 2", 1},
		{"and all of them in another process", "third", "false", "letters sent: 0", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := exec.Command(mcptest.Build(t, "./examples/sidecar"), "--undolog", url, "--run", c.run, "--respond="+c.respond).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !strings.Contains(string(out), c.sent) {
				t.Errorf("want %q in\n%s", c.sent, out)
			}
			if refused := strings.Count(string(out), ": refused: "); refused != c.refused {
				t.Errorf("%d letters were refused, want %d:\n%s", refused, c.refused, out)
			}
		})
	}
}
