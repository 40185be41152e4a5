package httpapi_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/httpapi"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(patient{m}) }

// patient gives goroutines that end by themselves longer to do so than goleak does: a browser takes its time.
type patient struct{ *testing.M }

func (p patient) Run() int {
	code := p.M.Run()
	for deadline := time.Now().Add(time.Minute); goleak.Find() != nil && time.Now().Before(deadline); {
	}
	return code
}

const (
	alice = "alices-token-of-test" // of user:alice
	bob   = "bobs-token-of-the-test"
	carol = "carols-token-of-test" // of another tenant
)

// world is a log, and a handler that serves it.
type world struct {
	t      *testing.T
	log    *store.Log
	path   string
	clock  *clock
	server *httptest.Server
	api    *httpapi.Handler
}

// clock is the log's, which a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newWorld(t *testing.T, change ...func(*httpapi.Options)) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "log.db"), clock: &clock{at: time.Date(2026, 5, 4, 9, 0, 0, 0, time.UTC)}}
	w.log = w.open()
	t.Cleanup(func() { _ = w.log.Close() })
	opts := &httpapi.Options{Approvers: approvers(), LookEvery: 5 * time.Millisecond}
	for _, c := range change {
		c(opts)
	}
	var err error
	if w.api, err = httpapi.New(w.log, opts); err != nil {
		t.Fatal(err)
	}
	w.server = httptest.NewServer(w.api)
	t.Cleanup(w.server.Close)
	return w
}

func approvers() []httpapi.Approver {
	return []httpapi.Approver{
		{Name: "user:alice", Key: sha256.Sum256([]byte(alice))},
		{Name: "user:bob", Key: sha256.Sum256([]byte(bob))},
		{Name: "user:carol", Tenant: "other", Key: sha256.Sum256([]byte(carol))},
	}
}

// open opens the log once more, as another process would.
func (w *world) open() *store.Log {
	w.t.Helper()
	driver, err := sqlite.Open(w.t.Context(), w.path, &sqlite.Options{Now: w.clock.now})
	if err != nil {
		w.t.Fatal(err)
	}
	log, err := store.Open(driver, &store.Options{Now: w.clock.now, FlushEvery: time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	return log
}

var asking = effect.Asking{Quorum: 1, DecideFor: 24 * time.Hour, UseFor: time.Hour}

// contract is that of a tool that needs approval.
func contract() *effect.Contract {
	return &effect.Contract{
		Tier: effect.TierIrreversible, Window: time.Hour, Repeat: effect.RepeatReplay, RepeatError: effect.RepeatReplay,
		Lookalike: effect.RepeatRun, OnToolError: effect.StateCommitted, Timeout: time.Minute, Lease: time.Minute,
		Approve: true, Asking: asking, Source: "policy undolog.yaml:7",
	}
}

func (w *world) call(arguments string, change ...func(*effect.Call, *effect.Contract)) *store.Begun {
	w.t.Helper()
	call := &effect.Call{Principal: "agent:ada", Run: "run-7", Server: "payments", Tool: "pay", Arguments: []byte(arguments)}
	c := contract()
	for _, f := range change {
		f(call, c)
	}
	id, err := c.Identify(call)
	if err != nil {
		w.t.Fatal(err)
	}
	begun, err := w.log.Begin(w.t.Context(), &store.BeginParams{Call: call, Identity: id, Contract: c})
	if err != nil {
		w.t.Fatal(err)
	}
	return begun
}

// asked makes a call that waits for approval.
func (w *world) asked(arguments string, change ...func(*effect.Call, *effect.Contract)) *effect.Record {
	w.t.Helper()
	begun := w.call(arguments, change...)
	if begun.Record == nil || begun.Record.State != effect.StateAwaitingApproval {
		w.t.Fatalf("the call is not asked about: %+v", begun.Verdict)
	}
	return begun.Record
}

// lost makes a call whose outcome is lost.
func (w *world) lost(arguments string) *effect.Record {
	w.t.Helper()
	begun := w.call(arguments, func(_ *effect.Call, c *effect.Contract) { c.Approve = false })
	if _, err := w.log.Settle(w.t.Context(), *begun.Claim, contract(), effect.Outcome{Kind: effect.OutcomeLost}); err != nil {
		w.t.Fatal(err)
	}
	return begun.Record
}

// said is an answer of the API.
type said struct {
	Status int
	Header http.Header
	Body   json.RawMessage
}

// do sends a request with a token; with the empty one it shows none.
func (w *world) do(token, method, path, body string) said {
	w.t.Helper()
	return w.send(w.request(token, method, path, body))
}

func (w *world) request(token, method, path, body string) *http.Request {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

func (w *world) send(req *http.Request) said {
	w.t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return said{Status: res.StatusCode, Header: res.Header, Body: data}
}

// read reads an answer of that status into v.
func (w *world) read(s said, status int, v any) {
	w.t.Helper()
	if s.Status != status {
		w.t.Fatalf("status %d, want %d: %s", s.Status, status, s.Body)
	}
	if err := json.Unmarshal(s.Body, v); err != nil {
		w.t.Fatalf("read %s: %v", s.Body, err)
	}
}

// shownEffect is what tests read of an effect.
type shownEffect struct {
	ID        string          `json:"id"`
	State     effect.State    `json:"state"`
	By        string          `json:"by"`
	Reason    string          `json:"reason"`
	Arguments json.RawMessage `json:"arguments"`
	Preview   string          `json:"preview"`
	Text      string          `json:"text"`
	Approval  *shownRequest   `json:"approval"`

	OriginalText string          `json:"originalText"`
	Definition   json.RawMessage `json:"definition"`
	Changed      bool            `json:"definitionChanged"`
	MayDecide    bool            `json:"mayDecide"`
	WhyNot       string          `json:"whyNot"`
	Recent       []shownEffect   `json:"recent"`
}

type shownRequest struct {
	ID       string          `json:"id"`
	Digest   string          `json:"digest"`
	Missing  int             `json:"missing"`
	UseUntil time.Time       `json:"useUntil"`
	Edited   json.RawMessage `json:"edited"`
	Votes    []effect.Vote   `json:"votes"`
}

// problem is what tests read of a refusal.
type problem struct {
	Outcome, Message, Decision, By, Pointer string
	Same                                    bool
	At                                      time.Time
	State                                   effect.State
}

func (w *world) shown(token, id string) shownEffect {
	w.t.Helper()
	var e shownEffect
	w.read(w.do(token, "GET", "/v1/approvals/"+id, ""), http.StatusOK, &e)
	return e
}

func (w *world) refused(s said, status int) problem {
	w.t.Helper()
	var p problem
	w.read(s, status, &p)
	return p
}

func (w *world) effect(id string) *effect.Record {
	w.t.Helper()
	shown, err := w.log.Show(w.t.Context(), effect.DefaultTenant, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return shown.Record
}

// approve approves what is asked about, as it stands.
func (w *world) approve(token, id string) said {
	w.t.Helper()
	return w.do(token, "POST", "/v1/approvals/"+id+"/approve", `{"digest":"`+w.shown(token, id).Approval.Digest+`"}`)
}

// newWorldOn serves the log of another world, with a log and a handler of its own.
func newWorldOn(t *testing.T, other *world) *world {
	t.Helper()
	w := &world{t: t, path: other.path, clock: other.clock}
	w.log = w.open()
	t.Cleanup(func() { _ = w.log.Close() })
	var err error
	if w.api, err = httpapi.New(w.log, &httpapi.Options{Approvers: approvers(), LookEvery: 5 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	w.server = httptest.NewServer(w.api)
	t.Cleanup(w.server.Close)
	return w
}
