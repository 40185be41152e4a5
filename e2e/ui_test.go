package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

// hook is an endpoint of a webhook.
type hook struct {
	server *httptest.Server
	mu     sync.Mutex
	bodies []byte
	types  []string
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{}
	h.server = httptest.NewServer(h)
	t.Cleanup(h.server.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var m struct{ Type string }
	if err != nil || json.Unmarshal(body, &m) != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bodies = append(h.bodies, body...)
	h.types = append(h.types, m.Type)
}

func (h *hook) heard(kind string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Contains(strings.Join(h.types, " "), kind)
}

// approver asks the API of "undolog ui" as the holder of a token.
type approver struct {
	t           testing.TB
	base, token string
	read        bytes.Buffer // all that was answered
}

func (a *approver) ask(method, path, body string) (status int, answer json.RawMessage) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.base+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	a.read.Write(data)
	return res.StatusCode, data
}

// digest is that of the arguments that wait for approval.
func (a *approver) digest(id string) string {
	a.t.Helper()
	var e struct{ Approval struct{ Digest string } }
	if status, body := a.ask("GET", "/v1/approvals/"+id, ""); status != http.StatusOK || json.Unmarshal(body, &e) != nil {
		a.t.Fatalf("status %d: %s", status, body)
	}
	return e.Approval.Digest
}

const uiSecret = "canary-5f1e"

// An agent's held call runs once a person has approved it over HTTP, and a webhook is told of both. What the
// policy redacts is in nothing that people are shown or told.
func TestUI_decidesOnAHeldCall(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) { decidesOnAHeldCall(t, newWorld(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { decidesOnAHeldCall(t, newWorld(t).onPostgres()) })
}

func decidesOnAHeldCall(t *testing.T, w *world) {
	w.withPolicy(askAll(", redact: [reference]"))
	h := newHook(t)
	tokens := filepath.Join(w.dir, "approvers.yaml")
	writeFile(t, tokens, "- {token: alices-token-of-test, principal: user:alice}\n")
	ui := w.command("ui", "--listen", "127.0.0.1:0", "--tokens", tokens)
	alice := &approver{t: t, base: mcptest.StartHTTP(t, ui), token: "alices-token-of-test"}

	gateway := w.command(w.gatewayArgs("--webhook", h.server.URL, "--webhook-secret", "env:HOOK_SECRET", "--approval-url", alice.base+"/approvals")...)
	gateway.Env = append(gateway.Environ(), "HOOK_SECRET=0123456789abcdef0123")
	agent := mcptest.StartCommand(t, gateway)
	agent.Initialize(protocol)
	agent.MustSend(mcptest.ToolCall("1", "charge", `{"account":"alice","amount":10,"reference":"`+uiSecret+`"}`, ""))
	id := w.awaitPending(1)[0]
	w.eventually("the request to be told", func() bool { return h.heard("approval.requested") })
	body := `{"digest":"` + alice.digest(id) + `"}`
	if status, said := alice.ask("POST", "/v1/approvals/"+id+"/approve", body); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, said)
	}
	wantPaid(t, agent.Response("1"))
	w.wantEffects("charge", 1)
	if got := w.entries("charge")[0]; !strings.Contains(string(mustJSON(t, got)), uiSecret) {
		t.Errorf("the tool got %+v", got)
	}
	w.eventually("the decision to be told", func() bool { return h.heard("approval.decided") })
	if status, said := alice.ask("POST", "/v1/approvals/"+id+"/approve", body); status != http.StatusConflict || !bytes.Contains(said, []byte("already approved by user:alice")) {
		t.Errorf("a late click: status %d: %s", status, said)
	}
	alice.ask("GET", "/v1/effects/"+id, "")
	alice.ask("GET", "/v1/effects", "")
	h.mu.Lock()
	defer h.mu.Unlock()
	if bytes.Contains(alice.read.Bytes(), []byte(uiSecret)) || bytes.Contains(h.bodies, []byte(uiSecret)) {
		t.Error("a secret is shown or told")
	}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A decision is on record for all when the page's program is killed right after it was made, and SIGTERM ends
// that program well although a stream is open.
func TestUI_comesAndGoes(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	tokens := filepath.Join(w.dir, "approvers.yaml")
	writeFile(t, tokens, "- {token: alices-token-of-test, principal: user:alice}\n")
	agent := w.agent("--hold", "0")
	wantOutcome(t, agent.Call("1", "charge", charge10), "approval_required")
	id := w.awaitPending(1)[0]
	first := w.command("ui", "--listen", "127.0.0.1:0", "--tokens", tokens)
	alice := &approver{t: t, base: mcptest.StartHTTP(t, first), token: "alices-token-of-test"}
	if status, said := alice.ask("POST", "/v1/approvals/"+id+"/approve", `{"digest":"`+alice.digest(id)+`"}`); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, said)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wantPaid(t, agent.Call("2", "charge", charge10))
	w.wantEffects("charge", 1)

	second := w.command("ui", "--listen", "127.0.0.1:0", "--tokens", tokens)
	alice.base = mcptest.StartHTTP(t, second)
	req, err := http.NewRequestWithContext(t.Context(), "GET", alice.base+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+alice.token)
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil { // not with the error of one that would have waited for the stream in vain
		t.Errorf("ended with %v", err)
	}
}
