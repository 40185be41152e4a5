package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

func TestSmoke(t *testing.T) {
	d, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a b?#%c", "log.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := store.Open(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &effect.Contract{Tier: effect.TierIrreversible, Window: time.Minute, Repeat: effect.RepeatRun, RepeatError: effect.RepeatReplay, Lookalike: effect.RepeatRun, OnToolError: effect.StateCommitted, Timeout: time.Minute, Lease: time.Minute}
	call := &effect.Call{Principal: "agent:a", Server: "s", Tool: "t", Arguments: []byte(`{"a":1}`)}
	id, err := c.Identify(call)
	if err != nil {
		t.Fatal(err)
	}
	p := &store.BeginParams{Call: call, Identity: id, Contract: c}
	b, err := l.Begin(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", b)
	r, err := l.Settle(t.Context(), *b.Claim, c, effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerResult, Body: []byte(`{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	b, err = l.Begin(t.Context(), p)
	t.Logf("%+v %v", b, err)
	l.Delivered("default", r.ID)
	b, err = l.Begin(t.Context(), p)
	t.Logf("%+v %v", b, err)
	t.Log(l.Show(t.Context(), "default", r.ID))
	t.Log(l.List(t.Context(), &store.Filter{Tenant: "default", Tool: "*", States: []effect.State{effect.StateCommitted}}))
	t.Log(l.Pending(t.Context(), "default", 10))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
