package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/examples/payments/ledger"
	"github.com/undolog/undolog/internal/mcptest"
)

const protocol = "2025-11-25"

// world is one user's machine: an effect log, and a payments server with its ledger.
type world struct {
	t       testing.TB
	dir     string
	db      string
	undolog string
	server  []string // command line of the payments server
	ledger  string
	control string // fault control file of the payments server
	policy  string // policy file; empty: none
}

func newWorld(t testing.TB, tags ...string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{
		t: t, dir: dir,
		db:      filepath.Join(dir, "state", "undolog.db"),
		undolog: mcptest.Build(t, "./cmd/undolog", tags...),
		ledger:  filepath.Join(dir, "ledger.jsonl"),
		control: filepath.Join(dir, "faults.json"),
	}
	w.server = []string{mcptest.Build(t, "./examples/payments"), "--ledger", w.ledger, "--faults", w.control}
	return w
}

// withPolicy gives the world a policy file.
func (w *world) withPolicy(yaml string) *world {
	w.policy = filepath.Join(w.dir, "policy.yaml")
	if err := os.WriteFile(w.policy, []byte(yaml), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return w
}

// faults sets how the payments server misbehaves from now on.
func (w *world) faults(set faults.Set) {
	w.t.Helper()
	if err := faults.Write(w.control, set); err != nil {
		w.t.Fatal(err)
	}
}

// command is undolog with the world's log.
func (w *world) command(args ...string) *exec.Cmd {
	return exec.Command(w.undolog, append([]string{"--db", w.db}, args...)...)
}

// gatewayArgs is the command line of a gateway in front of the payments server. Where one dies and its claims are to
// be in doubt, the flags say how soon: a heart that a busy machine does not let beat for as long sends nothing.
func (w *world) gatewayArgs(flags ...string) []string {
	args := append([]string{"gateway", "--heartbeat", "30s"}, flags...)
	if w.policy != "" {
		args = append(args, "--policy", w.policy)
	}
	return append(append(args, "--"), w.server...)
}

// agent starts a gateway and initializes a session through it on stdio.
func (w *world) agent(flags ...string) *mcptest.Stdio {
	w.t.Helper()
	c := mcptest.StartCommand(w.t, w.command(w.gatewayArgs(flags...)...))
	c.Initialize(protocol)
	return c
}

// ran runs undolog to its end and returns its output, and behind it what it says beside it.
func (w *world) ran(args ...string) string {
	w.t.Helper()
	cmd := w.command(args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("undolog %s: %v\n%s%s", strings.Join(args, " "), err, out, said.String())
	}
	return string(out) + said.String()
}

// effects counts what a tool has done, at the tool.
func (w *world) effects(tool string) int {
	w.t.Helper()
	return len(w.entries(tool))
}

func (w *world) entries(tool string) []ledger.Entry {
	w.t.Helper()
	entries, err := ledger.Read(w.ledger)
	if err != nil {
		w.t.Fatal(err)
	}
	return ledger.Of(entries, tool)
}

// wantEffects fails unless the tool has had exactly n effects.
func (w *world) wantEffects(tool string, n int) {
	w.t.Helper()
	if got := w.effects(tool); got != n {
		w.t.Errorf("%s took effect %d times, want %d", tool, got, n)
	}
}

// awaitEffects waits until the tool has had at least n effects.
func (w *world) awaitEffects(tool string, n int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d effects of %s", n, tool), func() bool { return w.effects(tool) >= n })
}

// eventually polls for something that another process does. A look that takes its time, because it starts a program,
// is taken more seldom: what is waited for needs the machine too.
func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	deadline := time.After(time.Minute)
	for {
		begun := time.Now()
		if is() {
			return
		}
		select {
		case <-deadline:
			w.t.Fatalf("waited a minute for %s", what)
		case <-time.After(5*time.Millisecond + 2*time.Since(begun)):
		}
	}
}

// logged is an effect as `undolog log --json` prints it.
type logged struct {
	ID        string          `json:"id"`
	State     string          `json:"state"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Tier      string          `json:"tier"`
	Identity  string          `json:"identity"`
	Tenant    string          `json:"tenant"`
	Principal string          `json:"principal"`
	Attempt   int             `json:"attempt"`
	Delivered bool            `json:"delivered"`
	Arguments json.RawMessage `json:"arguments"`
	Answer    *struct {
		Kind    string          `json:"kind"`
		IsError bool            `json:"isError"`
		Body    json.RawMessage `json:"body"`
	} `json:"answer"`
}

// log reads the log, newest first.
func (w *world) log(flags ...string) []logged {
	w.t.Helper()
	out, err := w.command(append([]string{"log", "--json", "--limit", "100000"}, flags...)...).Output()
	if err != nil {
		w.t.Fatalf("undolog log: %v", err)
	}
	var all []logged
	for line := range bytes.Lines(out) {
		var e logged
		if err := json.Unmarshal(line, &e); err != nil {
			w.t.Fatalf("read log line %s: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// only is the one logged effect of a tool.
func (w *world) only(tool string) logged {
	w.t.Helper()
	all := w.log("--tool", tool)
	if len(all) != 1 {
		w.t.Fatalf("the log has %d effects of %s, want 1: %+v", len(all), tool, all)
	}
	return all[0]
}

// replayed reports whether an answer carries our mark.
func replayed(t testing.TB, m mcptest.Message) bool {
	t.Helper()
	r, err := m.Tool()
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Meta["dev.undolog/replayed"]) == "true"
}

// wantReplay fails unless again is the answer first with our mark and nothing else.
func wantReplay(t testing.TB, first, again mcptest.Message) {
	t.Helper()
	if !replayed(t, again) {
		t.Errorf("the second answer is not marked as a replay: %s", again.Raw)
	}
	if a, b := unmarked(t, first.Result), unmarked(t, again.Result); a != b {
		t.Errorf("the replayed answer differs:\n first %s\nsecond %s", a, b)
	}
}

// unmarked is a result without our members of _meta, every other byte as it came.
func unmarked(t testing.TB, result json.RawMessage) string {
	t.Helper()
	s := string(result)
	at := strings.Index(s, `,"_meta":{"dev.undolog/replayed":true,"dev.undolog/effect":{`)
	if at < 0 {
		return s
	}
	end := strings.Index(s[at:], "}}")
	return s[:at] + s[at+end+2:]
}

// outcomeOf is the typed outcome of a call that was stopped.
func outcomeOf(t testing.TB, m mcptest.Message) (outcome, reason string) {
	t.Helper()
	e, err := m.Err()
	if err != nil {
		t.Fatalf("want an error: %v", err)
	}
	var data struct {
		Effect struct {
			Outcome string `json:"outcome"`
		} `json:"dev.undolog/effect"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatalf("read error data %s: %v", e.Data, err)
	}
	return data.Effect.Outcome, e.Message
}

func wantOutcome(t testing.TB, m mcptest.Message, want string) {
	t.Helper()
	if got, reason := outcomeOf(t, m); got != want {
		t.Errorf("outcome = %q (%s), want %q", got, reason, want)
	}
}
