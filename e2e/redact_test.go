package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

// canaries are the secrets of these tests: one with letters that encodings spell otherwise, one that is a
// number, one that is base64 itself, and the one that the parrot makes up.
var canaries = []string{`canary "one" ü/+%7f3a`, "4111222233334444", "Y2FuYXJ5LXR3by1pbi1iYXNlNjQ=", issued}

const redactAll = `version: 1
tools:
  - tool: look
    tier: read
    redact: [password, "/items/*/token", blob]
    redact_result: [session]
  - tool: "*"
    tier: irreversible
    approve: APPROVE
    schemas: check
    redact: [password, "/items/*/token", blob]
    redact_result: [session]
`

func secretArguments(t *testing.T) string {
	t.Helper()
	quoted, err := json.Marshal(canaries[0])
	if err != nil {
		t.Fatal(err)
	}
	return `{"to":"alice","auth":{"password":` + string(quoted) + `},"items":[{"token":` + canaries[1] + `}],"blob":"` + canaries[2] + `","note":` + string(quoted) + `}`
}

// leaks are the canaries that can be read in a text, in the forms in which the parrot says them.
func leaks(text []byte) (found []string) {
	for _, c := range append(slices.Clone(canaries), "canary-two-in-base64") {
		quoted, err := json.Marshal(c)
		if err != nil {
			panic(err) // a string
		}
		inner := strings.Trim(string(quoted), `"`)
		forms := []string{c, inner, url.QueryEscape(c), url.QueryEscape(inner)}
		for shift := range 3 {
			for _, form := range []string{c, inner} {
				coded := base64.StdEncoding.EncodeToString(append(make([]byte, shift), form...))
				coded = coded[4 : len(coded)-4]
				forms = append(forms, coded, strings.NewReplacer("+", "-", "/", "_").Replace(coded))
			}
		}
		for _, form := range forms {
			if bytes.Contains(text, []byte(form)) {
				found = append(found, form)
			}
		}
	}
	return found
}

func (w *world) wantNoLeak(where string, text []byte) {
	w.t.Helper()
	if found := leaks(text); found != nil {
		w.t.Errorf("%s tells %q", where, found)
	}
}

// withParrot is a world whose server is the parrot.
func withParrot(t *testing.T) *world {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.server = []string{"env", parrotEnv + "=1", self}
	return w
}

// What the policy redacts is nowhere but on its way to the tool and back.
func TestRedact_canariesAreNowhere(t *testing.T) {
	t.Parallel()
	w := withParrot(t).withPolicy(strings.Replace(redactAll, "APPROVE", "never", 1))
	arguments := secretArguments(t)
	agent := w.agent("--log-level", "debug")
	for n, tool := range []string{"say", "fail", "wrong", "look", "die"} {
		answer := agent.Call(string(rune('1'+n)), tool, arguments)
		if tool != "die" && leaks(answer.Raw) == nil {
			t.Errorf("%s: the caller itself gets what the tool said: %s", tool, answer.Raw)
		}
	}
	agent.Call("8", "say", strings.Replace(arguments, `"to":"alice",`, "", 1)) // stopped by its schema
	agent.CloseStdin()
	agent.Wait()
	if !strings.Contains(agent.Stderr(), "parrot:") {
		t.Errorf("the gateway's log has no line of the server's standard error: %s", agent.Stderr())
	}
	w.wantNoLeak("the gateway's log", []byte(agent.Stderr()))
	w.wantShownNowhere()
}

// wantShownNowhere looks at the log's files and at all that commands print of it.
func (w *world) wantShownNowhere() {
	w.t.Helper()
	files, err := filepath.Glob(w.db + "*")
	if err != nil || len(files) == 0 {
		w.t.Fatalf("no files of %s: %v", w.db, err)
	}
	for _, file := range files {
		w.wantNoLeak(filepath.Base(file), []byte(readFile(w.t, file)))
	}
	all := w.log()
	if len(all) == 0 {
		w.t.Error("nothing was recorded")
	}
	for _, e := range all {
		w.wantNoLeak("undolog show --json", []byte(w.ran("show", e.ID, "--json")))
		w.wantNoLeak("undolog show", []byte(w.ran("show", e.ID)))
	}
	for _, command := range [][]string{{"log"}, {"log", "--json"}, {"pending"}, {"pending", "--json"}, {"approvals"}, {"approvals", "--json"}, {"report"}} {
		w.wantNoLeak("undolog "+strings.Join(command, " "), []byte(w.ran(command...)))
	}
}

// People see what is kept, and the tool gets what was sent.
func TestRedact_approvedCallsCarryTheirSecrets(t *testing.T) {
	t.Parallel()
	w := withParrot(t).withPolicy(strings.Replace(redactAll, "APPROVE", "always", 1))
	agent := w.agent("--log-level", "debug")
	agent.MustSend(mcptest.ToolCall("1", "say", secretArguments(t), ""))
	id := w.awaitPending(1)[0]
	w.wantNoLeak("undolog approvals", []byte(w.ran("approvals", "--json")))
	w.ran("approve", id)
	if answer := agent.Response("1"); answer.Error != nil || leaks(answer.Raw) == nil {
		t.Errorf("the tool did not get what was sent: %s", answer.Raw)
	}
	agent.CloseStdin()
	agent.Wait()
	w.wantNoLeak("the gateway's log", []byte(agent.Stderr()))
	w.wantShownNowhere()
}

// The key that a target is sent is in the header that the policy names, the same for every attempt.
func TestInject_header(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withPolicy("version: 1\ntools:\n  - {tool: \"*\", tier: idempotent, approve: never, inject: {header: X-Request-Key}}\n")
	var mu sync.Mutex
	var keys []string
	server := httptest.NewServer(parrotHTTP(func(h http.Header) {
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, h.Get("X-Request-Key"))
	}))
	defer server.Close()
	agent := mcptest.StartCommand(t, w.command("gateway", "--policy", w.policy, "--upstream", server.URL))
	agent.Initialize(protocol)
	if answer := agent.Call("1", "say", `{"to":"alice"}`); answer.Error != nil {
		t.Fatalf("the call did not run: %s", answer.Raw)
	}
	effect := w.only("say")
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(keys, []string{effect.ID}) {
		t.Errorf("the target got keys %q, want %q", keys, effect.ID)
	}
}
