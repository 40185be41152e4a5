package effectinterceptor_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
)

// discard is a driver that keeps nothing, so that benchmarks measure what the interceptors themselves
// cost: a claim is a durable write, which benchmarks of the store measure. Tests of behaviour use a log.
type discard struct{ store.Driver }

func (discard) Begin(_ context.Context, p *store.Begin) (*store.Begun, error) {
	return &store.Begun{
		Verdict: effect.Verdict{Action: effect.ActInsert, Generation: 1},
		Record:  &effect.Record{ID: p.ID, Tenant: p.Call.Tenant, Attempt: 1, Owner: p.Owner},
		Claim:   &effect.Claim{Effect: p.ID, Tenant: p.Call.Tenant, Attempt: 1, Owner: p.Owner},
	}, nil
}

func (discard) Append(_ context.Context, tenant string, t *effect.Transition) (*effect.Record, error) {
	return &effect.Record{ID: t.Effect, Tenant: tenant, State: t.State}, nil
}

func (discard) Effect(context.Context, string, string) (*effect.Record, error) {
	return nil, store.ErrNotFound
}
func (discard) Write(context.Context, *store.Notes) error                   { return nil }
func (discard) Tools(context.Context, string, string) ([]store.Tool, error) { return nil, nil }
func (discard) Beat(context.Context, string, time.Duration) error           { return nil }
func (discard) End(context.Context, string) error                           { return nil }
func (discard) Close() error                                                { return nil }

// BenchmarkPhases is what the two phases cost in process for 1 KiB of arguments and of answer. The
// difference between ours and a mutator that does nothing is what our interceptors add to a phase;
// Settled, which an engine calls between the phases, is measured with the second.
func BenchmarkPhases(b *testing.B) {
	p := newPhases(b)
	request, response := interceptors.PhaseRequest, interceptors.PhaseResponse
	b.Run("request/idle", func(b *testing.B) {
		p.each(b, func() { p.invoke("bench/idle", request, p.params) })
	})
	b.Run("request/ours", func(b *testing.B) {
		p.each(b, func() {
			p.invoke(effectinterceptor.GuardName, request, p.params)
			p.invoke(effectinterceptor.EffectName, request, p.params)
			p.ei.Delivered("X", time.Time{}, false)
		})
	})
	b.Run("both/idle", func(b *testing.B) {
		p.each(b, func() {
			p.invoke("bench/idle", request, p.params)
			p.invoke("bench/idle", response, p.result)
		})
	})
	b.Run("both/ours", func(b *testing.B) {
		p.each(b, func() {
			p.invoke(effectinterceptor.GuardName, request, p.params)
			p.invoke(effectinterceptor.EffectName, request, p.params)
			p.ei.Settled(context.Background(), "X", effectinterceptor.End{Kind: effect.OutcomeAnswered, Result: p.result})
			p.invoke(effectinterceptor.EffectName, response, p.result)
			p.invoke(effectinterceptor.GuardName, response, p.result)
			p.ei.Delivered("X", time.Time{}, false)
		})
	})
}

// phases is a host with our interceptors and an idle one over a log that keeps nothing.
type phases struct {
	b              *testing.B
	ei             *effectinterceptor.Interceptors
	host           *interceptors.Server
	params, result json.RawMessage
	context        *interceptors.Context
}

func newPhases(b *testing.B) *phases {
	b.Helper()
	log, err := store.Open(discard{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	p := &phases{
		b:    b,
		ei:   effectinterceptor.New(log, &effectinterceptor.Options{Delivery: true}),
		host: interceptors.NewServer(nil),
		params: json.RawMessage(`{"name":"pay","arguments":{"account":"DE02120300000000202051","amount":1250.50,"lines":[1,2,3],"note":"` +
			strings.Repeat("x", 950) + `"},"_meta":{"progressToken":1}}`),
		result: json.RawMessage(`{"content":[{"type":"text","text":"` + strings.Repeat("y", 1000) + `"}]}`),
		context: &interceptors.Context{
			Principal: user("alice"), Timestamp: "2026-03-01T12:00:00.123456789Z",
			Extra: map[string]json.RawMessage{"dev.undolog/exchange": json.RawMessage(`"X"`), "dev.undolog/server": json.RawMessage(`"bank"`)},
		},
	}
	b.Cleanup(func() {
		if err := log.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := p.ei.Register(p.host, effectinterceptor.OwnEngine); err != nil {
		b.Fatal(err)
	}
	if err := p.host.Add(idle()); err != nil {
		b.Fatal(err)
	}
	return p
}

func (p *phases) each(b *testing.B, run func()) {
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}

func (p *phases) invoke(name string, phase interceptors.Phase, payload json.RawMessage) {
	_, err := p.host.Invoke(context.Background(), &interceptors.InvokeParams{
		Name: name, Event: "tools/call", Phase: phase, Payload: payload,
		Caller: interceptors.Caller{Local: true}, Context: p.context,
	})
	if err != nil {
		p.b.Fatal(err)
	}
}

// idle is a mutator that changes nothing.
func idle() *interceptors.Mutator {
	return &interceptors.Mutator{
		Descriptor: interceptors.Descriptor{Name: "bench/idle", Hooks: []interceptors.Hook{
			{Events: []string{"tools/call"}, Phase: interceptors.PhaseRequest},
			{Events: []string{"tools/call"}, Phase: interceptors.PhaseResponse},
		}},
		Mutate: func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{}, nil
		},
	}
}
