package effectchain_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectchain"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
)

// discard is a driver that keeps nothing: what a durable claim costs, benchmarks of the store measure.
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

// BenchmarkCall is one call of a write with 1 KiB of arguments through both phases. The difference between
// the rows is what the effect interceptors add.
func BenchmarkCall(b *testing.B) {
	b.Run("none", func(b *testing.B) {
		c, err := chain.New(nil)
		if err != nil {
			b.Fatal(err)
		}
		benchCall(b, c)
	})
	b.Run("ours", func(b *testing.B) {
		log, err := store.Open(discard{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		ei := effectinterceptor.New(log, &effectinterceptor.Options{Delivery: true})
		c, err := effectchain.New(ei, &effectchain.Options{Server: "bank"})
		if err != nil {
			b.Fatal(err)
		}
		benchCall(b, c)
		if err := log.Close(); err != nil {
			b.Error(err)
		}
	})
}

func benchCall(b *testing.B, c *chain.Chain) {
	request := &chain.Request{
		Event: "tools/call",
		Params: json.RawMessage(`{"name":"pay","arguments":{"account":"DE02120300000000202051","amount":1250.50,"lines":[1,2,3],"note":"` +
			strings.Repeat("x", 900) + `"},"_meta":{"progressToken":1}}`),
		Principal: &interceptors.Principal{Type: "service", ID: "agent:bench"},
	}
	answer := json.RawMessage(`{"content":[{"type":"text","text":"` + strings.Repeat("y", 900) + `"}]}`)
	var asked time.Duration
	b.ReportAllocs()
	for b.Loop() {
		var sent time.Time
		start := time.Now()
		reply := c.Do(context.Background(), request, func(context.Context, json.RawMessage) chain.Answer {
			sent = time.Now()
			return chain.Answer{Kind: chain.Answered, Result: answer}
		})
		if reply.Error != nil {
			b.Fatal(string(reply.Error))
		}
		reply.Delivered(true)
		asked += sent.Sub(start)
	}
	b.ReportMetric(float64(asked.Nanoseconds())/float64(b.N), "request-ns/op")
}
