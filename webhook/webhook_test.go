package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
	"github.com/undolog/undolog/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var secret = []byte("a secret of sixteen bytes or more")

// message is what tests read of one.
type message struct {
	ID, Type string
	Data     struct {
		Effect, State, URL, Principal string
		Request                       struct {
			Digest string
			Last   *effect.Vote
		}
	}
}

// endpoint takes messages, or does not.
type endpoint struct {
	t      *testing.T
	server *httptest.Server
	taken  chan message

	mu     sync.Mutex
	status []int // of the next answers; then 204
	bodies []string
}

func newEndpoint(t *testing.T, status ...int) *endpoint {
	t.Helper()
	e := &endpoint{t: t, taken: make(chan message, 100), status: status}
	e.server = httptest.NewServer(e)
	t.Cleanup(e.server.Close)
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		e.t.Error(err)
	}
	e.check(r.Header, body)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bodies = append(e.bodies, string(body))
	status := http.StatusNoContent
	if len(e.status) > 0 {
		status, e.status = e.status[0], e.status[1:]
	}
	if status == http.StatusFound {
		w.Header().Set("Location", "/elsewhere")
	}
	w.WriteHeader(status)
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		e.t.Error(err)
	}
	if status == http.StatusNoContent {
		e.taken <- m
	}
}

// check verifies the signature as an endpoint does.
func (e *endpoint) check(h http.Header, body []byte) {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(h.Get("webhook-id") + "." + h.Get("webhook-timestamp") + "." + string(body)))
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); h.Get("webhook-signature") != want {
		e.t.Errorf("signature %q, want %q", h.Get("webhook-signature"), want)
	}
	if !strings.Contains(string(body), h.Get("webhook-id")) {
		e.t.Errorf("the body does not have the id %q: %s", h.Get("webhook-id"), body)
	}
}

func (e *endpoint) next() message {
	e.t.Helper()
	select {
	case m := <-e.taken:
		return m
	case <-time.After(20 * time.Second):
		e.t.Fatal("no message came")
		return message{}
	}
}

// world is a log with a clock that a test moves.
type world struct {
	t    *testing.T
	path string
	log  *store.Log
	mu   sync.Mutex
	at   time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "log.db"), at: time.Date(2026, 5, 4, 9, 0, 0, 0, time.UTC)}
	w.log = w.open()
	return w
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = w.at.Add(d)
}

func (w *world) open() *store.Log {
	w.t.Helper()
	driver, err := sqlite.Open(w.t.Context(), w.path, &sqlite.Options{Now: w.now})
	if err != nil {
		w.t.Fatal(err)
	}
	log, err := store.Open(driver, &store.Options{Now: w.now, FlushEvery: time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = log.Close() })
	return log
}

// tells runs a teller, on a log of its own, until the test or what is returned ends it.
func (w *world) tells(e *endpoint, change ...func(*webhook.Options)) (end func() error) {
	w.t.Helper()
	opts := &webhook.Options{
		URL: e.server.URL, Secret: secret, LookEvery: 5 * time.Millisecond, RetryAfter: time.Millisecond,
		Link: func(id string) string { return "https://approve.example/approvals/" + id },
	}
	for _, c := range change {
		c(opts)
	}
	log := w.open()
	teller, err := webhook.New(log, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- teller.Run(ctx) }()
	end = sync.OnceValue(func() error {
		cancel()
		err := <-done
		if closed := log.Close(); closed != nil {
			w.t.Error(closed)
		}
		return err
	})
	w.t.Cleanup(func() { _ = end() })
	return end
}

func contract() *effect.Contract {
	return &effect.Contract{
		Tier: effect.TierIrreversible, Window: time.Hour, Repeat: effect.RepeatReplay, RepeatError: effect.RepeatReplay,
		Lookalike: effect.RepeatRun, OnToolError: effect.StateCommitted, Timeout: time.Minute, Lease: time.Minute,
		Approve: true, Asking: effect.Asking{Quorum: 1, DecideFor: 10 * time.Hour, UseFor: time.Hour},
	}
}

func (w *world) call(arguments string, c *effect.Contract) *store.Begun {
	w.t.Helper()
	call := &effect.Call{Principal: "agent:ada", Server: "payments", Tool: "pay", Arguments: []byte(arguments)}
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

func (w *world) asked(arguments string) string {
	w.t.Helper()
	return w.call(arguments, contract()).Record.ID
}

func (w *world) decide(id string, kind effect.DecisionKind) {
	w.t.Helper()
	_, err := w.log.Decide(w.t.Context(), &store.DecideParams{Tenant: effect.DefaultTenant, ID: id, Decision: effect.Decision{
		Kind: kind, By: "user:alice", Reason: "because",
	}})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestTeller_tells(t *testing.T) {
	t.Run("of a request, of the time that runs out, and of its end", func(t *testing.T) {
		w, e := newWorld(t), newEndpoint(t)
		w.tells(e)
		id := w.asked(`{"card":"4111-1111"}`)
		m := e.next()
		if m.Type != "approval.requested" || m.Data.Effect != id || m.Data.Principal != "agent:ada" || m.Data.URL != "https://approve.example/approvals/"+id {
			t.Errorf("first message: %+v", m)
		}
		w.pass(8 * time.Hour)
		if m := e.next(); m.Type != "approval.reminder" {
			t.Errorf("second message: %+v", m)
		}
		w.pass(3 * time.Hour)
		if m := e.next(); m.Type != "approval.expired" || m.Data.State != "expired" {
			t.Errorf("third message: %+v", m)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if i := slices.IndexFunc(e.bodies, func(b string) bool { return strings.Contains(b, "4111") }); i >= 0 {
			t.Errorf("a message has arguments: %s", e.bodies[i])
		}
	})
	t.Run("of decisions, with who and why", func(t *testing.T) {
		w, e := newWorld(t), newEndpoint(t)
		w.tells(e)
		approved, denied := w.asked(`{"n":1}`), w.asked(`{"n":2}`)
		e.next()
		e.next()
		w.decide(approved, effect.DecideApprove)
		if m := e.next(); m.Type != "approval.decided" || m.Data.Effect != approved || m.Data.Request.Last.Kind != effect.DecideApprove {
			t.Errorf("approved: %+v", m)
		}
		w.decide(denied, effect.DecideDeny)
		m := e.next()
		if m.Data.Effect != denied || m.Data.State != "denied" || m.Data.Request.Last.By != "user:alice" || m.Data.Request.Last.Reason != "because" {
			t.Errorf("denied: %+v", m)
		}
	})
	t.Run("of a lost outcome", func(t *testing.T) {
		w, e := newWorld(t), newEndpoint(t)
		w.tells(e)
		c := contract()
		c.Approve = false
		begun := w.call(`{"n":1}`, c)
		if _, err := w.log.Settle(t.Context(), *begun.Claim, c, effect.Outcome{Kind: effect.OutcomeLost}); err != nil {
			t.Fatal(err)
		}
		if m := e.next(); m.Type != "effect.in_doubt" || m.Data.Effect != begun.Record.ID {
			t.Errorf("message: %+v", m)
		}
	})
}

func TestTeller_triesAgain(t *testing.T) {
	w := newWorld(t)
	e := newEndpoint(t, 500, 302, 404, 429, 503)
	w.tells(e)
	w.asked(`{"n":1}`)
	first := e.next()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.bodies) != 6 {
		t.Errorf("%d tries, want 6", len(e.bodies))
	}
	for _, body := range e.bodies {
		if !strings.Contains(body, first.ID) {
			t.Errorf("a try has another id: %s", body)
		}
	}
}

func TestTeller_goesOnWhereAnotherEnded(t *testing.T) {
	t.Run("with what that one has not told, and nothing else", func(t *testing.T) {
		w, e := newWorld(t), newEndpoint(t)
		end := w.tells(e)
		first, second := w.asked(`{"n":1}`), w.asked(`{"n":2}`)
		e.next()
		e.next()
		w.noted(2)
		if err := end(); err != nil {
			t.Fatal(err)
		}
		third := w.asked(`{"n":3}`)
		w.pass(time.Minute)
		w.decide(first, effect.DecideDeny)
		w.pass(time.Minute)
		w.decide(second, effect.DecideApprove)
		w.tells(e)
		var got []string
		for range 3 {
			m := e.next()
			got = append(got, m.Type+" "+m.Data.Effect)
		}
		slices.Sort(got)
		want := []string{"approval.decided " + first, "approval.decided " + second, "approval.requested " + third}
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("told (-want +got)\n%s", diff)
		}
		e.nothingMore(w)
	})
	t.Run("also of what was being told when it ended", func(t *testing.T) {
		w, e := newWorld(t), newEndpoint(t)
		end := w.tells(e)
		id := w.asked(`{"n":1}`)
		e.next()
		if err := end(); err != nil {
			t.Fatal(err)
		}
		w.decide(id, effect.DecideDeny)
		w.tells(e)
		for e.next().Type != "approval.decided" { // the request may be told twice
		}
	})
	t.Run("also of what was over before anything was taken", func(t *testing.T) {
		w, e := newWorld(t), newEndpoint(t, http.StatusInternalServerError)
		end := w.tells(e, func(o *webhook.Options) { o.RetryAfter = time.Hour })
		id := w.asked(`{"n":1}`)
		e.tried(1)
		if err := end(); err != nil {
			t.Fatal(err)
		}
		w.decide(id, effect.DecideDeny)
		w.tells(e)
		if m := e.next(); m.Type != "approval.requested" {
			t.Errorf("first: %+v", m)
		}
		if m := e.next(); m.Type != "approval.decided" || m.Data.Effect != id {
			t.Errorf("then: %+v", m)
		}
	})
}

// noted waits until the log says of so many messages that they were taken.
func (w *world) noted(n int) {
	w.t.Helper()
	eventually(w.t, "messages to be noted", func() bool {
		events, err := w.log.Events(w.t.Context(), effect.DefaultTenant, 0, 1000)
		if err != nil {
			w.t.Fatal(err)
		}
		return len(slices.DeleteFunc(events, func(ev effect.Event) bool { return ev.Kind != effect.EventTold })) >= n
	})
}

// tried waits until the endpoint was tried so often.
func (e *endpoint) tried(n int) {
	e.t.Helper()
	eventually(e.t, "tries", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.bodies) >= n
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// nothingMore asks about another call, of which is told next.
func (e *endpoint) nothingMore(w *world) {
	e.t.Helper()
	last := w.asked(`{"n":"last"}`)
	if m := e.next(); m.Data.Effect != last {
		e.t.Errorf("something more was told: %+v", m)
	}
}

func TestTeller_endsWhenTheEndpointIsGone(t *testing.T) {
	w, e := newWorld(t), newEndpoint(t, http.StatusGone)
	log := w.open()
	teller, err := webhook.New(log, &webhook.Options{URL: e.server.URL, Secret: secret, LookEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w.asked(`{"n":1}`)
	if err := teller.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "410") {
		t.Errorf("ended with %v", err)
	}
}

func TestNew_refusesWhatCannotTell(t *testing.T) {
	for name, opts := range map[string]*webhook.Options{
		"no URL":       {Secret: secret},
		"another kind": {URL: "ftp://x/y", Secret: secret},
		"no host":      {URL: "https:///y", Secret: secret},
		"no secret":    {URL: "https://x/y"},
	} {
		if _, err := webhook.New(nil, opts); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestParseSecret(t *testing.T) {
	got, err := webhook.ParseSecret("whsec_" + base64.StdEncoding.EncodeToString(secret))
	if err != nil || string(got) != string(secret) {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := webhook.ParseSecret("sixteen bytes at least"); err != nil || string(got) != "sixteen bytes at least" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"", "short", "whsec_", "whsec_!!!!", "whsec_c2hvcnQ="} {
		if _, err := webhook.ParseSecret(bad); err == nil || strings.Contains(err.Error(), "!!!!") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
