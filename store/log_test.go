package store_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var contract = &effect.Contract{
	Tier: effect.TierIrreversible, Window: time.Minute, Repeat: effect.RepeatRun, RepeatError: effect.RepeatReplay,
	Lookalike: effect.RepeatRun, OnToolError: effect.StateCommitted, Timeout: time.Minute, Lease: time.Minute,
}

var answered = effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerResult, Body: []byte(`{"ok":1}`)}}

func open(t *testing.T, path string, busy time.Duration, opts *store.Options) (*store.Log, store.Driver) {
	t.Helper()
	d, err := sqlite.Open(t.Context(), path, &sqlite.Options{BusyTimeout: busy})
	if err != nil {
		t.Fatal(err)
	}
	l, err := store.Open(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, d
}

func begin(t *testing.T, l *store.Log, arguments string) *store.Begun {
	t.Helper()
	call := &effect.Call{Principal: "agent:a", Server: "payments", Tool: "charge", Arguments: []byte(arguments)}
	id, err := contract.Identify(call)
	if err != nil {
		t.Fatal(err)
	}
	begun, err := l.Begin(t.Context(), &store.BeginParams{Call: call, Identity: id, Contract: contract})
	if err != nil {
		t.Fatal(err)
	}
	return begun
}

func TestLog_Heart(t *testing.T) {
	t.Run("beats while a claim is held, and not afterwards", func(t *testing.T) {
		l, d := open(t, filepath.Join(t.TempDir(), "log.db"), 0, &store.Options{TTL: 900 * time.Millisecond})
		claim := begin(t, l, `{}`).Claim
		first := ownerUntil(t, d, claim.Effect)
		within(t, 30*time.Second, "two beats", func() bool {
			return ownerUntil(t, d, claim.Effect).Sub(first) > 450*time.Millisecond
		})
		if _, err := l.Settle(t.Context(), *claim, contract, answered); err != nil {
			t.Fatal(err)
		}
		within(t, 30*time.Second, "the heart to stop", func() bool { return time.Now().After(ownerUntil(t, d, claim.Effect)) })
	})
	t.Run("beats again for a claim made after it stopped", func(t *testing.T) {
		l, d := open(t, filepath.Join(t.TempDir(), "log.db"), 0, &store.Options{TTL: 300 * time.Millisecond})
		claim := begin(t, l, `{}`).Claim
		if _, err := l.Settle(t.Context(), *claim, contract, answered); err != nil {
			t.Fatal(err)
		}
		within(t, 30*time.Second, "the heart to stop", func() bool { return time.Now().After(ownerUntil(t, d, claim.Effect)) })
		claim = begin(t, l, `{"n":2}`).Claim
		first := ownerUntil(t, d, claim.Effect)
		within(t, 30*time.Second, "a beat", func() bool { return ownerUntil(t, d, claim.Effect).After(first) })
	})
}

// The file is locked by another program for longer than we wait: the outcome is not lost, and the claim
// is not given up.
func TestLog_SettleWhileBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	open(t, path, 0, nil) // the schema is made without hurry
	l, _ := open(t, path, 20*time.Millisecond, nil)
	claim := begin(t, l, `{}`).Claim
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	execute(t, db, `BEGIN IMMEDIATE`)
	if _, err := l.Settle(t.Context(), *claim, contract, answered); !errors.Is(err, store.ErrBusy) {
		t.Errorf("Settle = %v, want ErrBusy", err)
	}
	execute(t, db, `ROLLBACK`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := l.Wait(ctx, effect.DefaultTenant, claim.Effect)
	if err != nil || r.State != effect.StateCommitted || string(r.Answer.Body) != `{"ok":1}` {
		t.Errorf("Wait = %+v, %v", r, err)
	}
}

// A begin that fails keeps what it knew of deliveries for the next.
func TestLog_DeliveryOutlivesFailedBegin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	l, _ := open(t, path, 0, &store.Options{FlushEvery: time.Hour})
	r, err := l.Settle(t.Context(), *begin(t, l, `{}`).Claim, contract, answered)
	if err != nil {
		t.Fatal(err)
	}
	l.Delivered(r.Tenant, r.ID, time.Now())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	call := &effect.Call{Principal: "agent:a", Server: "payments", Tool: "charge", Arguments: []byte(`{"n":2}`)}
	id, err := contract.Identify(call)
	if err != nil {
		t.Fatal(err)
	}
	// Whether it is done or dropped, the next begin knows of the delivery.
	begun, err := l.Begin(ended, &store.BeginParams{Call: call, Identity: id, Contract: contract})
	if err == nil {
		if _, err := l.Settle(t.Context(), *begun.Claim, contract, answered); err != nil {
			t.Fatal(err)
		}
	}
	if begun := begin(t, l, `{}`); begun.Verdict.Action != effect.ActInsert {
		t.Errorf("Begin = %s (%s), want a new run of a delivered call", begun.Verdict.Action, begun.Verdict.Reason)
	}
}

func ownerUntil(t *testing.T, d store.Driver, id string) time.Time {
	t.Helper()
	r, err := d.Effect(t.Context(), effect.DefaultTenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return r.OwnerUntil
}

// within asks again and again; each question is a query, which is pause enough.
func within(t *testing.T, limit time.Duration, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !happened(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s", limit, what)
		}
	}
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
