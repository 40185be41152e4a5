package effectchain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectchain"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

// asking is a world whose policy asks a person, and lets the host's user be one.
func asking(t *testing.T, opts effectchain.Options) *world {
	t.Helper()
	policy, err := effect.ParsePolicy("undolog.yaml", []byte("version: 1\ntools:\n  - {tool: pay, tier: irreversible, elicitation: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	driver, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Open(driver, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts.Server = "bank"
	c, err := effectchain.New(effectinterceptor.New(log, &effectinterceptor.Options{Policy: policy, Delivery: true}), &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Drain(context.Background()), log.Close()); err != nil {
			t.Error(err)
		}
	})
	return &world{log, c}
}

// approvePending waits for a call that waits for a person, and approves it.
func (w *world) approvePending(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		pending, err := w.log.Awaiting(t.Context(), effect.DefaultTenant, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(pending) > 0 {
			_, err := w.log.Decide(t.Context(), &store.DecideParams{
				Tenant: effect.DefaultTenant, ID: pending[0].ID, Decision: effect.Decision{Kind: effect.DecideApprove, By: "user:ann"}})
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		<-tick.C
	}
}

func TestNew_holdsACallUntilItIsApproved(t *testing.T) {
	w := asking(t, effectchain.Options{Hold: time.Minute})
	done := make(chan *chain.Reply, 1)
	go func() { done <- w.pay(t, true, paid) }()
	w.approvePending(t)
	if reply := <-done; !bytes.Equal(reply.Result, paid.Result) {
		t.Errorf("answered %s", reply.Error)
	}
}

func TestNew_withoutAHoldTheCallIsAnswered(t *testing.T) {
	w := asking(t, effectchain.Options{})
	reply := w.pay(t, true, paid)
	if reply.Pause == nil || reply.Pause.Handle == "" || !reply.Pause.Host || reply.Pause.WaitMs <= 0 {
		t.Errorf("the engine learns %+v", reply.Pause)
	}
	if bytes.Contains(reply.Error, []byte(reply.Pause.Handle)) {
		t.Errorf("the requester learns %s", reply.Error)
	}
}

func TestObserver_takesWhatTheHostsUserDecides(t *testing.T) {
	w := asking(t, effectchain.Options{})
	reply := w.chain.Do(t.Context(), &chain.Request{
		Event:     "tools/call",
		Params:    json.RawMessage(`{"name":"pay","arguments":{"cents":5}}`),
		Principal: &interceptors.Principal{Type: "service", ID: "agent:a"},
		Pause: func(ctx context.Context, x *chain.Exchange, p *chain.Pause) bool {
			if err := w.chain.Decide(ctx, x, p, &chain.Decision{Approve: true, Reason: "mine"}); err != nil {
				t.Error(err)
			}
			return true
		},
	}, func(context.Context, json.RawMessage) chain.Answer { return paid })
	if !bytes.Equal(reply.Result, paid.Result) {
		t.Fatalf("answered %s", reply.Error)
	}
	list, err := w.log.List(t.Context(), &store.Filter{Tenant: effect.DefaultTenant})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d effects, %v", len(list), err)
	}
	if votes := list[0].Approval.Votes; len(votes) != 1 || votes[0].By != "user:a" || votes[0].Via != effect.ViaElicitation {
		t.Errorf("votes %+v", votes)
	}
}
