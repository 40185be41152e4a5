package store_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

// watched is a log with a clock of its own, and somebody who watches it.
type watched struct {
	t     *testing.T
	log   *store.Log
	now   time.Time
	watch *store.Watcher
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{t: t, now: time.Date(2026, 5, 4, 9, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return w.now }
	d, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), &sqlite.Options{Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	if w.log, err = store.Open(d, &store.Options{Now: clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.log.Close() })
	w.watch = w.log.Watch(effect.DefaultTenant)
	return w
}

// begin makes a call; asked about, unless free.
func (w *watched) begin(arguments string, free bool) *store.Begun {
	w.t.Helper()
	c := *contract
	c.Approve, c.Asking = !free, effect.Asking{Quorum: 1, DecideFor: 10 * time.Hour, UseFor: time.Hour}
	call := &effect.Call{Principal: "agent:a", Server: "payments", Tool: "charge", Arguments: []byte(arguments)}
	id, err := c.Identify(call)
	if err != nil {
		w.t.Fatal(err)
	}
	begun, err := w.log.Begin(w.t.Context(), &store.BeginParams{Call: call, Identity: id, Contract: &c})
	if err != nil {
		w.t.Fatal(err)
	}
	return begun
}

func (w *watched) decide(id string, d effect.Decision) {
	w.t.Helper()
	d.By = "user:alice"
	if _, err := w.log.Decide(w.t.Context(), &store.DecideParams{Tenant: effect.DefaultTenant, ID: id, Decision: d}); err != nil {
		w.t.Fatal(err)
	}
}

// sees looks and compares what has changed.
func (w *watched) sees(want ...store.ChangeKind) {
	w.t.Helper()
	changes, err := w.watch.Look(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var kinds []store.ChangeKind
	for _, c := range changes {
		kinds = append(kinds, c.Kind)
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		w.t.Errorf("changes (-want +got)\n%s", diff)
	}
}

func TestWatcher_Look(t *testing.T) {
	t.Run("tells each change once, from request to end", func(t *testing.T) {
		w := newWatched(t)
		w.sees()
		r := w.begin(`{"n":1}`, false).Record
		w.sees(store.ChangeRequested)
		w.sees()
		w.now = w.now.Add(8 * time.Hour)
		w.sees(store.ChangeReminder)
		w.decide(r.ID, effect.Decision{Kind: effect.DecideExtend, Extend: 10 * time.Hour})
		w.sees(store.ChangeUpdated)
		w.decide(r.ID, effect.Decision{Kind: effect.DecideApprove})
		w.sees(store.ChangeDecided)
		claim := w.begin(`{"n":1}`, false).Claim
		w.sees(store.ChangeRunning)
		if _, err := w.log.Settle(t.Context(), *claim, contract, answered); err != nil {
			t.Fatal(err)
		}
		w.sees(store.ChangeEnded)
		w.sees()
	})
	t.Run("tells of a request that is over by its clock", func(t *testing.T) {
		w := newWatched(t)
		w.begin(`{"n":1}`, false)
		w.sees(store.ChangeRequested)
		w.now = w.now.Add(10 * time.Hour)
		w.sees(store.ChangeExpired, store.ChangeEnded)
		w.begin(`{"n":1}`, false)
		w.sees(store.ChangeRequested)
	})
	t.Run("tells of an approval that was not used", func(t *testing.T) {
		w := newWatched(t)
		r := w.begin(`{"n":1}`, false).Record
		w.decide(r.ID, effect.Decision{Kind: effect.DecideApprove})
		w.sees(store.ChangeRequested, store.ChangeDecided)
		w.now = w.now.Add(time.Hour)
		w.sees(store.ChangeExpired, store.ChangeEnded)
	})
	t.Run("tells of a denial, and of its reopening", func(t *testing.T) {
		w := newWatched(t)
		r := w.begin(`{"n":1}`, false).Record
		w.sees(store.ChangeRequested)
		w.now = w.now.Add(time.Minute)
		w.decide(r.ID, effect.Decision{Kind: effect.DecideDeny, Reason: "no"})
		w.sees(store.ChangeDecided, store.ChangeEnded)
		w.now = w.now.Add(time.Minute)
		w.decide(r.ID, effect.Decision{Kind: effect.DecideReopen})
		w.sees(store.ChangeRequested)
	})
	t.Run("tells of a lost outcome, and of who settles it", func(t *testing.T) {
		w := newWatched(t)
		begun := w.begin(`{"n":1}`, true)
		w.sees()
		if _, err := w.log.Settle(t.Context(), *begun.Claim, contract, effect.Outcome{Kind: effect.OutcomeLost}); err != nil {
			t.Fatal(err)
		}
		w.sees(store.ChangeInDoubt)
		_, err := w.log.Resolve(t.Context(), store.ResolveParams{
			Tenant: effect.DefaultTenant, ID: begun.Record.ID, To: effect.StateCommitted, By: "user:alice",
		})
		if err != nil {
			t.Fatal(err)
		}
		w.sees(store.ChangeEnded)
	})
}

func TestChanges_haveTheSameKeysWhoeverLooks(t *testing.T) {
	w := newWatched(t)
	w.begin(`{"n":1}`, false)
	first, err := w.watch.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.log.Watch(effect.DefaultTenant).Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != 1 || len(second) != 1 || first[0].Key != second[0].Key {
		t.Errorf("keys differ: %v, %v", first, second)
	}
}
