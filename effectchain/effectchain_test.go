package effectchain_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectchain"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

type world struct {
	log   *store.Log
	chain *chain.Chain
}

func newWorld(t *testing.T) *world { return newWorldAt(t, chain.PostureServer) }

func newWorldAt(t *testing.T, posture chain.Posture) *world {
	t.Helper()
	driver, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Open(driver, nil)
	if err != nil {
		t.Fatal(err)
	}
	ei := effectinterceptor.New(log, &effectinterceptor.Options{Delivery: true})
	c, err := effectchain.New(ei, &effectchain.Options{Server: "bank", Posture: posture})
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

// pay makes the one call of these tests, which is answered as given.
func (w *world) pay(t *testing.T, delivered bool, a chain.Answer) *chain.Reply {
	t.Helper()
	reply := w.chain.Do(t.Context(), &chain.Request{
		Event:     "tools/call",
		Params:    json.RawMessage(`{"name":"pay","arguments":{"cents":5}}`),
		Principal: &interceptors.Principal{Type: "service", ID: "agent:a"},
	}, func(context.Context, json.RawMessage) chain.Answer { return a })
	reply.Delivered(delivered)
	return reply
}

// effects are the states in the log, newest first.
func (w *world) effects(t *testing.T) []effect.State {
	t.Helper()
	list, err := w.log.List(t.Context(), &store.Filter{Tenant: effect.DefaultTenant, Server: "bank"})
	if err != nil {
		t.Fatal(err)
	}
	states := []effect.State{}
	for _, r := range list {
		states = append(states, r.State)
	}
	return states
}

var (
	paid      = chain.Answer{Kind: chain.Answered, Result: json.RawMessage(`{"content":[]}`)}
	errBroken = errors.New("broken pipe")
)

func TestNew_everyEndIsRecorded(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  chain.Answer
		want effect.State
	}{
		{"a result", paid, effect.StateCommitted},
		{"an error of the target, on which no response phase runs", chain.Answer{Kind: chain.Answered, Error: json.RawMessage(`{"code":-32602,"message":"no such tool"}`)}, effect.StateFailed},
		{"a call that was not sent", chain.Answer{Kind: chain.Unsent, Cause: errBroken}, effect.StateReleased},
		{"a lost answer", chain.Answer{Kind: chain.Lost, Cause: errBroken}, effect.StateInDoubt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pay(t, true, tt.end)
			if diff := cmp.Diff([]effect.State{tt.want}, w.effects(t)); diff != "" {
				t.Errorf("effects (-want +got)\n%s", diff)
			}
		})
	}
}

func TestNew_taskIsSettledWhenItEnds(t *testing.T) {
	for _, delivered := range []bool{true, false} {
		w := newWorld(t)
		first := w.pay(t, delivered, chain.Answer{Kind: chain.Answered, Result: json.RawMessage(`{"resultType":"task","taskId":"1"}`)})
		if diff := cmp.Diff([]effect.State{effect.StateWaiting}, w.effects(t)); diff != "" {
			t.Errorf("effects of a task under way (-want +got)\n%s", diff)
		}
		last := w.chain.Resume(t.Context(), first.Exchange(), paid)
		last.Delivered(true)
		if diff := cmp.Diff([]effect.State{effect.StateCommitted}, w.effects(t)); diff != "" {
			t.Errorf("effects of a task that ended, its handle delivered: %t (-want +got)\n%s", delivered, diff)
		}
		if string(last.Result) != string(paid.Result) {
			t.Errorf("result %s", last.Result)
		}
	}
}

func TestNew_deliveryDecidesWhatTheSameCallIs(t *testing.T) {
	for _, tt := range []struct {
		name      string
		delivered bool
		want      []effect.State
	}{
		{"a retry where the answer did not arrive", false, []effect.State{effect.StateCommitted}},
		{"a new call where it did", true, []effect.State{effect.StateCommitted, effect.StateCommitted}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pay(t, tt.delivered, paid)
			w.pay(t, true, paid)
			if diff := cmp.Diff(tt.want, w.effects(t)); diff != "" {
				t.Errorf("effects (-want +got)\n%s", diff)
			}
		})
	}
}

// A call that is stopped behind the claim was never sent: its claim is given back.
func TestNew_aCallThatAnotherHostStopsIsReleased(t *testing.T) {
	w := newWorldAt(t, chain.PostureGateway)
	gate := interceptors.NewServer(nil)
	if err := gate.Add(&interceptors.Validator{
		Descriptor: interceptors.Descriptor{Name: "gate/last", Hooks: onCalls},
		Validate: func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
			return interceptors.Deny("not today"), nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.chain.Use(chain.Local("gate", gate), &chain.HostPolicy{Side: chain.SideUpstream}); err != nil {
		t.Fatal(err)
	}
	if reply := w.pay(t, true, paid); reply.Error == nil {
		t.Fatalf("the call was made: %s", reply.Result)
	}
	if diff := cmp.Diff([]effect.State{effect.StateReleased}, w.effects(t)); diff != "" {
		t.Errorf("effects (-want +got)\n%s", diff)
	}
}

var onCalls = []interceptors.Hook{{Events: []string{"tools/call"}, Phase: interceptors.PhaseRequest}}

// Whatever priority somebody else's mutator claims, what is recorded is what goes out.
func TestNew_recordsTheFinalArguments(t *testing.T) {
	for _, posture := range []chain.Posture{chain.PostureServer, chain.PostureGateway} {
		t.Run(string(posture), func(t *testing.T) {
			w := newWorldAt(t, posture)
			other := interceptors.NewServer(nil)
			if err := other.Add(&interceptors.Mutator{
				Descriptor: interceptors.Descriptor{Name: "zz", Hooks: onCalls, PriorityHint: &interceptors.Priority{Request: 2147483647}},
				Mutate: func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
					return &interceptors.Change{Payload: json.RawMessage(`{"name":"pay","arguments":{"cents":6}}`)}, nil
				},
			}); err != nil {
				t.Fatal(err)
			}
			if err := w.chain.Use(chain.Local("other", other), &chain.HostPolicy{Side: chain.SideUpstream}); err != nil {
				t.Fatal(err)
			}
			w.pay(t, true, paid)
			list, err := w.log.List(t.Context(), &store.Filter{Tenant: effect.DefaultTenant, Server: "bank"})
			if err != nil || len(list) != 1 || string(list[0].Arguments) != `{"cents":6}` {
				t.Errorf("effects %+v (%v)", list, err)
			}
		})
	}
}

func TestNew_aLostAnswerIsExplained(t *testing.T) {
	reply := newWorld(t).pay(t, false, chain.Answer{Kind: chain.Lost, Cause: errBroken})
	var e struct {
		Data struct {
			Effect struct {
				Outcome string `json:"outcome"`
			} `json:"dev.undolog/effect"`
		} `json:"data"`
	}
	if err := json.Unmarshal(reply.Error, &e); err != nil || e.Data.Effect.Outcome != "in_doubt" {
		t.Errorf("want the outcome in_doubt in %s (%v)", reply.Error, err)
	}
}

// What a target answers is its own: odd bytes are recorded, given and given again.
func TestChain_GivesOddAnswersAsTheyCame(t *testing.T) {
	for name, result := range map[string]string{
		"a member twice":       `{"content":[],"_meta":{"a":1},"_meta":{"b":2}}`,
		"a member twice below": `{"content":[],"structuredContent":{"x":1,"x":2}}`,
		"content of no array":  `{"content":"text"}`,
		"a lone surrogate":     `{"content":[{"type":"text","text":"\ud800"}]}`,
		"null":                 `null`,
		"a list":               `[1]`,
		"a number":             `1.0`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			answer := chain.Answer{Kind: chain.Answered, Result: json.RawMessage(result)}
			if first := w.pay(t, false, answer); string(first.Result) != result {
				t.Errorf("answered %s %s, want the target's bytes", first.Result, first.Error)
			}
			if again := w.pay(t, false, answer); again.Result == nil || result[0] != '{' && string(again.Result) != result {
				t.Errorf("the record was not given again: %s %s", again.Result, again.Error)
			}
			if diff := cmp.Diff([]effect.State{effect.StateCommitted}, w.effects(t)); diff != "" {
				t.Errorf("effects (-want +got)\n%s", diff)
			}
		})
	}
}

func TestNew_WhatIsStoppedNamesServerAndTool(t *testing.T) {
	w := newWorld(t)
	reply := w.chain.Do(t.Context(), &chain.Request{
		Event:     "tools/call",
		Params:    json.RawMessage(`{"name":"pay","arguments":null}`),
		Principal: &interceptors.Principal{Type: "service", ID: "agent:a"},
	}, func(context.Context, json.RawMessage) chain.Answer { return paid })
	reply.Delivered(true)
	if reply.Error == nil {
		t.Fatal("a call without arguments ran")
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var events []effect.Event
	for len(events) == 0 { // it is noted a moment later
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the stop was not noted within a minute")
		}
		var err error
		if events, err = w.log.Events(t.Context(), effect.DefaultTenant, 0, 10); err != nil {
			t.Fatal(err)
		}
	}
	if ev := events[0]; ev.Kind != effect.EventStopped || ev.Server != "bank" || ev.Tool != "pay" || ev.Principal != "agent:a" {
		t.Errorf("event is %+v", ev)
	}
}
