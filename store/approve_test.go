package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

var asking = &effect.Contract{
	Tier: effect.TierIrreversible, Window: time.Minute, Repeat: effect.RepeatReplay, RepeatError: effect.RepeatReplay,
	Lookalike: effect.RepeatRun, OnToolError: effect.StateCommitted, Timeout: time.Minute, Lease: time.Minute,
	Approve: true, Asking: effect.Asking{Quorum: 1, DecideFor: time.Hour, UseFor: time.Minute},
}

// crossed is a driver to whose effects something happens each time after they were read.
type crossed struct {
	store.Driver
	between func()
}

func (d *crossed) Effect(ctx context.Context, tenant, id string) (*effect.Record, error) {
	r, err := d.Driver.Effect(ctx, tenant, id)
	if between := d.between; between != nil {
		d.between = nil
		between()
	}
	return r, err
}

// crossedLogs are two logs of one file; what is given to the first's driver happens between its looking and
// its writing.
func crossedLogs(t *testing.T) (l *store.Log, d *crossed, other *store.Log) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log.db")
	other, _ = open(t, path, 0, nil)
	inner, driver := open(t, path, 0, nil)
	t.Cleanup(func() { inner.Close() })
	d = &crossed{Driver: driver}
	l, err := store.Open(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, d, other
}

func beginAsking(t *testing.T, l *store.Log) *store.Begun {
	t.Helper()
	call := &effect.Call{Principal: "agent:a", Server: "payments", Tool: "charge"}
	id, err := asking.Identify(call)
	if err != nil {
		t.Fatal(err)
	}
	begun, err := l.Begin(t.Context(), &store.BeginParams{Call: call, Identity: id, Contract: asking})
	if err != nil {
		t.Fatal(err)
	}
	return begun
}

func decision(id string, kind effect.DecisionKind, by string) *store.DecideParams {
	return &store.DecideParams{Tenant: effect.DefaultTenant, ID: id, Decision: effect.Decision{
		Kind: kind, By: by, Reason: "because", Extend: 2 * time.Hour,
	}}
}

func decide(t *testing.T, l *store.Log, dp *store.DecideParams) *effect.Record {
	t.Helper()
	r, err := l.Decide(t.Context(), dp)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLog_Decide(t *testing.T) {
	t.Run("what another left undecided is decided on as it is then", func(t *testing.T) {
		l, d, other := crossedLogs(t)
		id := beginAsking(t, l).Record.ID
		d.between = func() { decide(t, other, decision(id, effect.DecideExtend, "user:other")) }
		r := decide(t, l, decision(id, effect.DecideApprove, "user:u"))
		if r.Ordinal != 2 || r.Approval.DecideUntil.Sub(r.Approval.RequestedAt) < 2*time.Hour || r.Approval.Votes[0].By != "user:u" {
			t.Errorf("ordinal %d, approval %+v", r.Ordinal, r.Approval)
		}
	})
	t.Run("what another decided is told", func(t *testing.T) {
		l, d, other := crossedLogs(t)
		id := beginAsking(t, l).Record.ID
		d.between = func() { decide(t, other, decision(id, effect.DecideDeny, "user:other")) }
		_, err := l.Decide(t.Context(), decision(id, effect.DecideApprove, "user:u"))
		decided, ok := errors.AsType[*effect.DecidedError](err)
		if !ok || decided.By != "user:other" || decided.Kind != effect.DecideDeny || decided.Same {
			t.Errorf("Decide = %v", err)
		}
	})
	t.Run("a call that used the approval first keeps it", func(t *testing.T) {
		l, d, other := crossedLogs(t)
		id := beginAsking(t, l).Record.ID
		decide(t, l, decision(id, effect.DecideApprove, "user:u"))
		d.between = func() { beginAsking(t, other) }
		_, err := l.Decide(t.Context(), decision(id, effect.DecideWithdraw, "user:u"))
		decided, ok := errors.AsType[*effect.DecidedError](err)
		if !ok || decided.State != effect.StateClaimed {
			t.Errorf("Decide = %v", err)
		}
	})
	t.Run("a request that another ended does not expire twice", func(t *testing.T) {
		l, d, other := crossedLogs(t)
		id := beginAsking(t, l).Record.ID
		d.between = func() { decide(t, other, decision(id, effect.DecideDeny, "user:other")) }
		_, err := l.Void(t.Context(), effect.DefaultTenant, id, "forbidden")
		if conflict, ok := errors.AsType[*store.ConflictError](err); !ok || conflict.Record.State != effect.StateDenied {
			t.Errorf("Void = %v", err)
		}
	})
	t.Run("an effect that is not there is not found", func(t *testing.T) {
		l, _, _ := crossedLogs(t)
		if _, err := l.Decide(t.Context(), decision("nothing", effect.DecideApprove, "user:u")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Decide = %v, want ErrNotFound", err)
		}
	})
}

func TestLog_AwaitDecision(t *testing.T) {
	t.Run("a vote of several does not end it", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log.db")
		l, _ := open(t, path, 0, nil)
		two := *asking
		two.Asking.Quorum = 2
		call := &effect.Call{Principal: "agent:a", Server: "payments", Tool: "charge"}
		id, err := two.Identify(call)
		if err != nil {
			t.Fatal(err)
		}
		begun, err := l.Begin(t.Context(), &store.BeginParams{Call: call, Identity: id, Contract: &two})
		if err != nil {
			t.Fatal(err)
		}
		heard := make(chan *effect.Record, 1)
		go func() {
			r, _ := l.AwaitDecision(context.Background(), effect.DefaultTenant, begun.Record.ID)
			heard <- r
		}()
		decide(t, l, decision(begun.Record.ID, effect.DecideApprove, "user:u"))
		decide(t, l, decision(begun.Record.ID, effect.DecideApprove, "user:v"))
		if r := <-heard; r == nil || len(r.Approval.Votes) != 2 {
			t.Errorf("heard %+v", r)
		}
	})
	t.Run("the caller's context and Close end it", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log.db")
		l, _ := open(t, path, 0, nil)
		other, _ := open(t, path, 0, nil)
		id := beginAsking(t, l).Record.ID
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := l.AwaitDecision(ctx, effect.DefaultTenant, id); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("AwaitDecision = %v, want DeadlineExceeded", err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := other.AwaitDecision(context.Background(), effect.DefaultTenant, id)
			ended <- err
		}()
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil {
			t.Error("AwaitDecision on a closed log returned no error")
		}
	})
}
