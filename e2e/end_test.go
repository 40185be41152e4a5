package e2e_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/internal/mcptest"
)

// A gateway that is told to end awaits what it has claimed, records it, and takes its server with it.
func TestEnd_drainsOnSIGTERM(t *testing.T) {
	w := newWorld(t)
	hold := w.dir + "/go"
	w.faults(faults.Set{"charge": {WaitAfter: hold, Times: 1}})
	agent := w.agent()
	agent.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	w.awaitEffects("charge", 1)
	agent.Signal(syscall.SIGTERM)
	touch(t, hold)
	if code := agent.Wait(); code != 0 {
		t.Errorf("the gateway exited with %d", code)
	}
	if e := w.only("charge"); e.State != "committed" {
		t.Errorf("state = %s, want committed", e.State)
	}
	w.eventually("the server to be gone", func() bool { return !serverRuns(w) })
}

// What is not answered within --drain is in doubt, and the gateway ends all the same.
func TestEnd_drainIsBounded(t *testing.T) {
	w := newWorld(t)
	w.faults(faults.Set{"charge": {After: faults.Drop}})
	agent := w.agent("--drain", "200ms")
	agent.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	w.awaitEffects("charge", 1)
	agent.CloseStdin()
	agent.Wait()
	w.eventually("the effect to be in doubt", func() bool { return w.only("charge").State == "in_doubt" })
	w.eventually("the server to be gone", func() bool { return !serverRuns(w) })
	wantOutcome(t, w.agent().Call("2", "charge", charge10), "in_doubt")
	w.wantEffects("charge", 1)
}

// An upstream that cannot be started, a log that cannot be opened: said in a sentence, with exit code 1.
func TestEnd_startUpErrors(t *testing.T) {
	w := newWorld(t)
	for name, args := range map[string][]string{
		"no such program":   {"gateway", "--", "no-such-program-anywhere"},
		"no such policy":    {"gateway", "--policy", "/nowhere/policy.yaml", "--", "true"},
		"log is a folder":   {"--db", w.dir, "log"},
		"log is not SQLite": {"--db", w.notSQLite(), "log"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := w.command(args...)
			cmd.Stdin = nil
			out, err := cmd.CombinedOutput()
			if err == nil || cmd.ProcessState.ExitCode() != 1 || len(out) == 0 {
				t.Errorf("%v: %v, exit code %d, said %s", args, err, cmd.ProcessState.ExitCode(), out)
			}
		})
	}
	for name, args := range map[string][]string{
		"no server named":      {"gateway"},
		"two servers named":    {"gateway", "--upstream", "http://127.0.0.1:1", "--", "true"},
		"open to the network":  {"gateway", "--http", "0.0.0.0:0", "--", "true"},
		"unknown flag":         {"log", "--no-such-flag"},
		"resolve says nothing": {"resolve", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := w.command(args...)
			out, _ := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != 2 {
				t.Errorf("%v: exit code %d, want 2: %s", args, cmd.ProcessState.ExitCode(), out)
			}
		})
	}
	cmd := w.command("show", "0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42")
	if _, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("show of nothing: exit code %d, want 3", cmd.ProcessState.ExitCode())
	}
}

func (w *world) notSQLite() string {
	path := w.dir + "/text"
	if err := os.WriteFile(path, []byte("this is not a database, and it is long enough to have a header of one"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}
