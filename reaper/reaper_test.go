package reaper_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/reaper"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

// clock is a time that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is a log on disk whose clock stands still.
type world struct {
	t     *testing.T
	path  string
	clock *clock
	log   *store.Log
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, path: filepath.Join(t.TempDir(), "log.db"), clock: &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}}
	w.log = w.open()
	return w
}

// open opens the log as another process would.
func (w *world) open() *store.Log {
	w.t.Helper()
	driver, err := sqlite.Open(w.t.Context(), w.path, &sqlite.Options{Now: w.clock.Now})
	if err != nil {
		w.t.Fatal(err)
	}
	log, err := store.Open(driver, &store.Options{Now: w.clock.Now, TTL: 10 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = log.Close() })
	return log
}

func (w *world) begin(log *store.Log, tenant, amount string, approve bool) *store.Begun {
	w.t.Helper()
	c := effect.DefaultContract(nil, false)
	c.Approve = approve
	c.Asking = effect.Asking{Quorum: 1, DecideFor: 10 * time.Hour, UseFor: time.Hour}
	call := &effect.Call{Tenant: tenant, Principal: "agent:ada", Server: "bank", Tool: "pay", Arguments: json.RawMessage(`{"amount":` + amount + `}`)}
	id, err := c.Identify(call)
	if err != nil {
		w.t.Fatal(err)
	}
	begun, err := log.Begin(w.t.Context(), &store.BeginParams{Call: call, Identity: id, Contract: c})
	if err != nil {
		w.t.Fatal(err)
	}
	return begun
}

func (w *world) round(r *reaper.Reaper, want reaper.Done) {
	w.t.Helper()
	done, err := r.Round(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(want, done); diff != "" {
		w.t.Errorf("Round (-want +got)\n%s", diff)
	}
}

func (w *world) recorded(tenant, id string) effect.State {
	w.t.Helper()
	shown, err := w.log.Show(w.t.Context(), tenant, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return shown.Record.State
}

func TestRound_endsRequestsOfEveryTenantWhoseClockIsOver(t *testing.T) {
	w := newWorld(t)
	undecided := w.begin(w.log, "acme", "1", true).Record
	unused := w.begin(w.log, "zeta", "2", true).Record
	w.approve(unused)
	r := reaper.New(w.log, nil)
	w.round(r, reaper.Done{})
	w.clock.pass(8*time.Hour + time.Minute)
	w.round(r, reaper.Done{Void: 1, Reminded: 1})
	w.round(r, reaper.Done{})
	w.clock.pass(2 * time.Hour)
	w.round(reaper.New(w.open(), nil), reaper.Done{Expired: 1})
	if got := w.recorded("acme", undecided.ID); got != effect.StateExpired {
		t.Errorf("undecided request is recorded as %s", got)
	}
	if got := w.recorded("zeta", unused.ID); got != effect.StateVoid {
		t.Errorf("unused approval is recorded as %s", got)
	}
}

func (w *world) approve(r *effect.Record) {
	w.t.Helper()
	_, err := w.log.Decide(w.t.Context(), &store.DecideParams{
		Tenant: r.Tenant, ID: r.ID, Decision: effect.Decision{Kind: effect.DecideApprove, By: "user:bob"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestRound_recordsAClaimWhoseTimeIsOverAndALateAnswerStillSettlesIt(t *testing.T) {
	w := newWorld(t)
	begun := w.begin(w.log, "acme", "1", false)
	w.clock.pass(11 * time.Minute) // past the tool's time-out
	w.round(reaper.New(w.open(), nil), reaper.Done{InDoubt: 1})
	if got := w.recorded("acme", begun.Record.ID); got != effect.StateInDoubt {
		t.Fatalf("claim is recorded as %s", got)
	}
	answer := effect.Answer{Kind: effect.AnswerResult, Body: json.RawMessage(`{"content":[]}`)}
	settled, err := w.log.Settle(t.Context(), *begun.Claim, effect.DefaultContract(nil, false), effect.Outcome{Kind: effect.OutcomeAnswered, Answer: answer})
	if err != nil || settled.State != effect.StateCommitted {
		t.Errorf("late answer = %v, %v; want it to settle the effect", settled, err)
	}
}

// However many processes reap one log, each thing is done once.
func TestRound_manyAtOnceDoEachThingOnce(t *testing.T) {
	w := newWorld(t)
	for _, amount := range []string{"1", "2", "3", "4", "5"} {
		w.begin(w.log, "acme", amount, true)
	}
	w.clock.pass(11 * time.Hour)
	var all sync.WaitGroup
	expired := make([]int, 4)
	for i := range expired {
		r := reaper.New(w.open(), nil)
		all.Go(func() {
			done, err := r.Round(t.Context())
			if err != nil {
				t.Error(err)
			}
			expired[i] = done.Expired
		})
	}
	all.Wait()
	sum := 0
	for _, n := range expired {
		sum += n
	}
	if sum != 5 {
		t.Errorf("%v requests were ended, want 5 in all", expired)
	}
}

// A probe that can say nothing is asked again, more and more rarely; one that can settles the effect.
func TestRound_probesWhatIsInDoubt(t *testing.T) {
	w := newWorld(t)
	w.begin(w.log, "acme", "1", false)
	w.clock.pass(11 * time.Minute)
	var asked int
	answer := errors.New("bank does not answer")
	r := reaper.New(w.log, &reaper.Options{ProbeEvery: time.Minute, Probe: func(ctx context.Context, e *effect.Record) (bool, error) {
		if asked++; asked < 3 {
			return false, nil
		}
		if asked == 3 {
			return false, answer
		}
		_, err := w.log.Resolve(ctx, store.ResolveParams{Tenant: e.Tenant, ID: e.ID, To: effect.StateCommitted, By: "probe:pay_status"})
		return err == nil, err
	}})
	w.round(r, reaper.Done{InDoubt: 1, Unknown: 1})
	w.round(r, reaper.Done{})
	w.clock.pass(time.Minute)
	w.round(r, reaper.Done{Unknown: 1})
	w.clock.pass(2 * time.Minute)
	if _, err := r.Round(t.Context()); !errors.Is(err, answer) {
		t.Errorf("Round = %v, want the probe's error", err)
	}
	w.clock.pass(4 * time.Minute)
	w.round(r, reaper.Done{Settled: 1})
	w.clock.pass(time.Hour)
	w.round(r, reaper.Done{})
}

// What is kept is counted from the settling, and what is open is kept.
func TestRound_prunesWhatWasKeptForLongEnough(t *testing.T) {
	w := newWorld(t)
	settled, open := w.begin(w.log, "acme", "1", false), w.begin(w.log, "other", "2", true)
	answer := effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerResult, Body: json.RawMessage(`{"paid":true}`)}}
	if _, err := w.log.Settle(t.Context(), *settled.Claim, effect.DefaultContract(nil, false), answer); err != nil {
		t.Fatal(err)
	}
	keep := time.Duration(0)
	r := reaper.New(w.log, &reaper.Options{Retention: func() time.Duration { return keep }})
	w.clock.pass(5 * time.Hour)
	w.round(r, reaper.Done{})
	keep = 6 * time.Hour
	w.round(r, reaper.Done{})
	w.clock.pass(time.Hour + time.Minute)
	w.round(r, reaper.Done{Pruned: 1})
	for id, want := range map[string]string{settled.Record.ID: "", open.Record.ID: `{"amount":2}`} {
		tenant := map[bool]string{true: "acme", false: "other"}[id == settled.Record.ID]
		shown, err := w.log.Show(t.Context(), tenant, id)
		if err != nil || string(shown.Record.Arguments) != want {
			t.Errorf("arguments of %s are %s (%v), want %s", id, shown.Record.Arguments, err, want)
		}
	}
}

// What was open when the log was looked through, and what failed, lost its payloads and was then begun again, is come
// back to.
func TestRound_prunesWhatItHadToLeaveBefore(t *testing.T) {
	w := newWorld(t)
	settle := func(begun *store.Begun, answer effect.Answer) {
		t.Helper()
		o := effect.Outcome{Kind: effect.OutcomeAnswered, Answer: answer}
		if _, err := w.log.Settle(t.Context(), *begun.Claim, effect.DefaultContract(nil, false), o); err != nil {
			t.Fatal(err)
		}
	}
	paid := effect.Answer{Kind: effect.AnswerResult, Body: json.RawMessage(`{"paid":true}`)}
	open := w.begin(w.log, "acme", "1", false)
	failed := w.begin(w.log, "acme", "2", false)
	settle(failed, effect.Answer{Kind: effect.AnswerError, Body: json.RawMessage(`{"code":-32602,"message":"x"}`)})
	r := reaper.New(w.log, &reaper.Options{Retention: func() time.Duration { return 6 * time.Hour }})
	w.clock.pass(7 * time.Hour)
	w.round(r, reaper.Done{InDoubt: 1, Pruned: 1})
	settle(open, paid)
	settle(w.begin(w.log, "acme", "2", false), paid)
	w.clock.pass(time.Hour)
	w.round(r, reaper.Done{})
	w.clock.pass(5*time.Hour + time.Minute)
	w.round(r, reaper.Done{Pruned: 2})
	w.clock.pass(time.Hour)
	w.round(r, reaper.Done{})
}
