package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/mcptest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

func writeTokens(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUI_refusesWhatWouldNotBeSafe(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	t.Setenv("SHORT_SECRET", "short")
	people := writeTokens(t, 0o600, "- {token: alices-token-of-test, principal: user:alice}\n")
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"beyond loopback without tokens": {[]string{"--listen", "0.0.0.0:0"}, exitUsage, "give --tokens FILE"},
		"no port":                        {[]string{"--listen", "localhost"}, exitUsage, "want HOST:PORT"},
		"an agent among the approvers": {
			[]string{"--tokens", writeTokens(t, 0o600, "- {token: 0123456789abcdef, principal: agent:ada}\n")}, exitFailed, "user:NAME"},
		"tokens that others can read": {
			[]string{"--tokens", writeTokens(t, 0o644, "- {token: 0123456789abcdef, principal: user:ada}\n")}, exitFailed, "chmod 600"},
		"a token that an agent has too": {
			[]string{"--tokens", people, "--agent-tokens", writeTokens(t, 0o600, "- {token: alices-token-of-test, principal: agent:ada}\n")},
			exitFailed, "the token of user:alice"},
		"agents' tokens and no approvers'": {[]string{"--agent-tokens", people}, exitUsage, "--agent-tokens is for --tokens"},
		"a URL with a path":                {[]string{"--listen", "127.0.0.1:0", "--url", "https://a.example/x"}, exitUsage, "want no path"},
		"a URL that is none":               {[]string{"--url", "a.example"}, exitUsage, "--url a.example"},
		"a webhook without a secret":       {[]string{"--webhook", "https://a.example/x"}, exitUsage, "--webhook-secret env:VAR"},
		"a secret without a webhook":       {[]string{"--webhook-secret", "env:X"}, exitUsage, "is for --webhook"},
		"a secret on the command line":     {[]string{"--webhook", "https://a.example/x", "--webhook-secret", "swordfish"}, exitUsage, "want env:VAR"},
		"a secret that is not set":         {[]string{"--listen", "127.0.0.1:0", "--webhook", "https://a.example/x", "--webhook-secret", "env:NO_SUCH"}, exitUsage, "NO_SUCH is not set"},
		"a secret that is too short":       {[]string{"--listen", "127.0.0.1:0", "--webhook", "https://a.example/x", "--webhook-secret", "env:SHORT_SECRET"}, exitUsage, "16 or more"},
		"an argument":                      {[]string{"now"}, exitUsage, "no arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := said(t, append([]string{"--db", db, "ui"}, c.args...)...)
			if code != c.code || !strings.Contains(out, c.want) || strings.Contains(out, "swordfish") {
				t.Errorf("exit code %d, want %d; said %q, want in it %q", code, c.code, out, c.want)
			}
		})
	}
}

// servedUI is "undolog ui" while it runs.
type servedUI struct {
	t    *testing.T
	out  *lockedBuffer
	base string
	end  func() int
}

var listensAt = regexp.MustCompile(`listening on (http://\S+)\n`)

func serveUI(t *testing.T, args ...string) *servedUI {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &servedUI{t: t, out: &lockedBuffer{}}
	done := make(chan int, 1)
	go func() { done <- run(ctx, args, strings.NewReader(""), s.out, s.out) }()
	s.end = func() int { cancel(); return <-done }
	s.base = s.says(listensAt)
	return s
}

// says waits for what the program prints and returns the group of it.
func (s *servedUI) says(what *regexp.Regexp) string {
	s.t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		if found := what.FindAllStringSubmatch(s.out.String(), -1); found != nil {
			return found[len(found)-1][1]
		}
		select {
		case <-deadline:
			s.t.Fatalf("it said only %q", s.out.String())
		case <-tick.C:
		}
	}
}

// ask sends a request and returns the status, the body and the cookie.
func (s *servedUI) ask(method, path, body string, change func(*http.Request)) (int, string, *http.Cookie) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", s.base)
	if change != nil {
		change(req)
	}
	client := &http.Client{}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	cookie, _ := http.ParseSetCookie(res.Header.Get("Set-Cookie")) // nil when there is none
	return res.StatusCode, string(data), cookie
}

var loginCode = regexp.MustCompile(`#login=(\S+)`)

func TestUI_withoutTokensServesItsUser(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	s := serveUI(t, "--db", db, "ui", "--listen", "127.0.0.1:"+mcptest.FreePort(t))
	code := s.says(loginCode)
	status, _, cookie := s.ask("POST", "/v1/session", `{"token":"`+code+`"}`, nil)
	if status != http.StatusOK || cookie == nil {
		t.Fatalf("the link does not log in: status %d", status)
	}
	if status, _, _ := s.ask("POST", "/v1/session", `{"token":"`+code+`"}`, nil); status != http.StatusUnauthorized {
		t.Errorf("the link logs in twice: status %d", status)
	}
	if next := s.says(loginCode); next == code {
		t.Error("no other link is printed")
	}
	if code := s.end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	info, err := os.Stat(db + "-ui-token")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("what keeps its user logged in: %v, %v", info, err)
	}

	again := serveUI(t, "--db", db, "ui", "--listen", strings.TrimPrefix(s.base, "http://"))
	defer again.end()
	status, body, _ := again.ask("GET", "/v1/session", "", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value}) })
	if status != http.StatusOK || !strings.Contains(body, localUser()) {
		t.Errorf("after a restart: status %d, %s", status, body)
	}
}

// askedIn makes a call that waits for approval in a log.
func askedIn(t *testing.T, db, tenant string) *effect.Record {
	t.Helper()
	driver, err := sqlite.Open(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Open(driver, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	call := &effect.Call{Tenant: tenant, Principal: "agent:ada", Server: "payments", Tool: "pay", Arguments: []byte(`{"amount":10}`)}
	c := &effect.Contract{
		Tier: effect.TierIrreversible, Window: time.Hour, Approve: true,
		Asking: effect.Asking{Quorum: 1, DecideFor: time.Hour, UseFor: time.Hour},
	}
	id, err := c.Identify(call)
	if err != nil {
		t.Fatal(err)
	}
	begun, err := log.Begin(t.Context(), &store.BeginParams{Call: call, Identity: id, Contract: c})
	if err != nil {
		t.Fatal(err)
	}
	return begun.Record
}

func TestUI_tokensSayWhoDecides(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	r := askedIn(t, db, "")
	tokens := writeTokens(t, 0o600, "- {token: alices-token-of-test, principal: user:alice}\n- {token: carols-token-of-test, principal: user:carol, tenant: other}\n")
	agents := writeTokens(t, 0o600, "- {token: adas-token-of-the-test, principal: agent:ada}\n")
	s := serveUI(t, "--db", db, "ui", "--listen", "127.0.0.1:0", "--tokens", tokens, "--agent-tokens", agents)
	defer s.end()
	if strings.Contains(s.out.String(), "#login") {
		t.Errorf("somebody is invited: %s", s.out.String())
	}
	bearer := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	path, body := "/v1/approvals/"+r.ID+"/approve", `{"digest":"`+r.Approval.Complete.String()+`"}`
	if status, _, _ := s.ask("POST", path, body, bearer("adas-token-of-the-test")); status != http.StatusUnauthorized {
		t.Errorf("an agent's token: status %d", status)
	}
	if status, _, _ := s.ask("POST", path, body, bearer("carols-token-of-test")); status != http.StatusNotFound {
		t.Errorf("another tenant's: status %d", status)
	}
	if status, said, _ := s.ask("POST", path, body, bearer("alices-token-of-test")); status != http.StatusOK || !strings.Contains(said, "user:alice") {
		t.Errorf("an approver's: status %d, %s", status, said)
	}
}

func TestUI_tellsAWebhook(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	r := askedIn(t, db, "")
	told := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || req.Header.Get("webhook-signature") == "" {
			t.Errorf("not signed, or not read: %v", err)
		}
		told <- string(body)
	}))
	defer hook.Close()
	t.Setenv("HOOK_SECRET", "0123456789abcdef0123")
	s := serveUI(t, "--db", db, "ui", "--listen", "127.0.0.1:0", "--webhook", hook.URL, "--webhook-secret", "env:HOOK_SECRET")
	defer s.end()
	var m struct {
		Type string
		Data struct{ Effect, URL string }
	}
	select {
	case body := <-told:
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing was told")
	}
	if m.Type != "approval.requested" || m.Data.Effect != r.ID || m.Data.URL != s.base+"/approvals/"+r.ID {
		t.Errorf("told: %+v", m)
	}
	if _, set := os.LookupEnv("HOOK_SECRET"); set {
		t.Error("the secret is still in the environment, for servers to read")
	}
}
