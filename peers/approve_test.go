//go:build peers

package peers_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/undolog/undolog/examples/payments/ledger"
	"github.com/undolog/undolog/internal/mcptest"
)

// TestGateway_AsksPeople has the official TypeScript clients make a call that waits for a person, on each
// transport and in each way that a client can ask its user.
func TestGateway_AsksPeople(t *testing.T) {
	for _, sdk := range []string{"v1", "v2"} {
		for _, overHTTP := range []bool{false, true} {
			for _, way := range []string{"none", "url", "form"} {
				t.Run(sdk+"/"+transportName(overHTTP)+"/"+way, func(t *testing.T) {
					t.Parallel()
					newApproval(t).run(sdk, way, overHTTP)
				})
			}
		}
	}
}

// approval is a payments server behind a gateway whose policy asks.
type approval struct {
	t                       *testing.T
	undolog, db, policy, to string
	server                  []string
}

func newApproval(t *testing.T) *approval {
	t.Helper()
	dir := t.TempDir()
	a := &approval{
		t: t, undolog: gatewayProgram(t), db: filepath.Join(dir, "effects.db"), policy: filepath.Join(dir, "policy.yaml"),
		to: filepath.Join(dir, "ledger.jsonl"),
	}
	a.server = []string{mcptest.Build(t, "./examples/payments"), "--ledger", a.to}
	return a
}

func (a *approval) run(sdk, way string, overHTTP bool) {
	a.t.Helper()
	rule := "version: 1\ntools:\n  - {tool: \"*\", tier: irreversible}\n"
	if way == "form" {
		rule = strings.Replace(rule, "irreversible", "irreversible, elicitation: true", 1)
	}
	if err := os.WriteFile(a.policy, []byte(rule), 0o600); err != nil {
		a.t.Fatal(err)
	}
	outcome, errs := make(chan approved, 1), &askedWatch{asked: make(chan struct{})}
	go func() { outcome <- a.call(sdk, way, a.gateway(overHTTP), errs) }()
	if way == "url" { // a decision that comes before would make the question needless
		select {
		case <-errs.asked:
		case got := <-outcome:
			a.t.Fatalf("the call has ended before its user was asked: %+v", got)
		}
	}
	if way != "form" {
		a.approve(a.pending())
	}
	got := <-outcome
	if got.Error != "" || got.Result == nil {
		a.t.Fatalf("the call did not run: %+v", got)
	}
	if wantEra := map[string]string{"v1": "legacy", "v2": "modern"}[sdk]; got.Era != wantEra {
		a.t.Errorf("the client settled on the %s era, want %s", got.Era, wantEra)
	}
	entries, err := ledger.Read(a.to)
	if err != nil || len(ledger.Of(entries, "charge")) != 1 {
		a.t.Errorf("%d effects, want 1 (%v)", len(ledger.Of(entries, "charge")), err)
	}
	switch {
	case way == "none" && len(got.Asked) > 0, way != "none" && (len(got.Asked) != 1 || got.Asked[0].Mode != way):
		a.t.Errorf("a client that can ask by %s was asked %+v", way, got.Asked)
	case way == "url" && !strings.HasPrefix(got.Asked[0].URL, "https://approve.test/a/"):
		a.t.Errorf("the user is sent to %s", got.Asked[0].URL)
	}
}

// approved is what approve.mjs prints.
type approved struct {
	Era   string `json:"era"`
	Asked []struct {
		Mode string `json:"mode"`
		URL  string `json:"url"`
	} `json:"asked"`
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`
}

func (a *approval) gateway(overHTTP bool) []string {
	args := []string{a.undolog, "gateway", "--db", a.db, "--policy", a.policy, "--approval-url", "https://approve.test/a"}
	if !overHTTP {
		return append(append([]string{"--"}, append(args, "--")...), a.server...)
	}
	args = append(append(args, "--http", "127.0.0.1:0", "--"), a.server...)
	return []string{"--url", mcptest.StartHTTP(a.t, exec.Command(args[0], args[1:]...))}
}

// askedWatch keeps what a client says on its standard error, and tells when that is that its user is asked.
type askedWatch struct {
	mu    sync.Mutex
	text  bytes.Buffer
	asked chan struct{} // closed then
	told  bool
}

func (w *askedWatch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if !w.told && bytes.Contains(w.text.Bytes(), []byte("the user is asked\n")) {
		w.told = true
		close(w.asked)
	}
	return len(p), nil
}

func (w *askedWatch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (a *approval) call(sdk, way string, target []string, errs *askedWatch) (got approved) {
	args := append([]string{"approve.mjs", sdk, way, "charge", `{"account":"alice","amount":10}`}, target...)
	cmd := exec.CommandContext(a.t.Context(), "node", args...)
	cmd.Stderr = errs
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		got.Error = err.Error() + ": " + errs.String()
	}
	return got
}

// pending waits for the call that waits for a person.
func (a *approval) pending() (id string) {
	a.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		out, err := exec.Command(a.undolog, "--db", a.db, "log", "--json").Output()
		var e struct{ ID, State string }
		if err == nil && json.Unmarshal(out, &e) == nil && e.State == "awaiting_approval" {
			return e.ID
		}
		<-tick.C
	}
	a.t.Fatal("no call waits for a person")
	return ""
}

func (a *approval) approve(id string) {
	a.t.Helper()
	if out, err := exec.Command(a.undolog, "--db", a.db, "approve", id).CombinedOutput(); err != nil {
		a.t.Fatalf("approve: %v\n%s", err, out)
	}
}
