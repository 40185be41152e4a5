package main_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

// The figures of so short a run mean nothing; that every one of them is taken is what is tested. DBOS is left
// out: its modules are not among ours.
func TestBench(t *testing.T) {
	cmd := exec.Command(mcptest.Build(t, "./bench/pg"), "-callers", "1", "-duration", "1s", "-rounds", "1", "-dbos=false", "-rows", "1000")
	var messages strings.Builder
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &messages)
	}
	for _, want := range []string{
		"fsync on, ", "synchronous_commit on", "CALLERS: 1 ", "pgbench: one insert, 100 B", "pgx: twice BEGIN", "pgx: two inserts",
		"UndoLog: effect ", "UndoLog: effect, through PgBouncer", "UndoLog: effect, on SQLite", "  begin", "  settle",
		"UndoLog: replay ", "UndoLog: replay, through PgBouncer", "UndoLog: effect, empty log", "UndoLog: effect, 1,000 effects", "UndoLog: replay, 1,000 effects",
		"decoding publication all", "decoding publication moves",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
