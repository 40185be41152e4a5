package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effectchain"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
)

// cost is what calls through a chain have cost so far.
type cost struct {
	calls             int
	request, response time.Duration
	mallocs           uint64
}

func (c *cost) each(d time.Duration) time.Duration { return d / time.Duration(c.calls) }
func (c *cost) allocs() float64                    { return float64(c.mallocs) / float64(c.calls) }

// phases compares a chain with our interceptors in process, over a log that keeps nothing, with a chain
// of none. What durable writes cost is measured elsewhere.
func (b *bench) phases(ctx context.Context) error {
	log, err := store.Open(discard{}, nil)
	if err != nil {
		return err
	}
	ei := effectinterceptor.New(log, &effectinterceptor.Options{Delivery: true})
	ours, err := effectchain.New(ei, &effectchain.Options{Server: "payments"})
	if err != nil {
		return err
	}
	none, err := chain.New(nil)
	if err != nil {
		return err
	}
	var with, without cost
	const slices = 10
	for range slices {
		if err := errors.Join(with.measure(ctx, ours, b.duration/slices), without.measure(ctx, none, b.duration/slices)); err != nil {
			return err
		}
	}
	b.phase("request phase: identify, claim, stamp", with.each(with.request), without.each(without.request))
	b.phase("response phase: settle, strip", with.each(with.response), without.each(without.response))
	perPhase := (with.allocs() - without.allocs()) / 2
	b.table.add(row{
		what:   "allocations of a call, both phases",
		figure: fmt.Sprintf("%.0f", with.allocs()), baseline: fmt.Sprintf("%.0f without", without.allocs()),
		ratio: with.allocs() / without.allocs(),
		goal:  goal(fmt.Sprintf("%+.0f a phase, ≤ 60", perPhase), perPhase <= 60),
	})
	return log.Close()
}

func (b *bench) phase(what string, with, without time.Duration) {
	added := with - without
	b.table.add(row{
		what: what, figure: micros(with), baseline: micros(without) + " without", ratio: ratio(with, without),
		goal: goal("+"+micros(added)+", ≤ 30 µs", added <= 30*time.Microsecond),
	})
}

func (c *cost) measure(ctx context.Context, ch *chain.Chain, d time.Duration) error {
	req := toolCall(0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for begun := time.Now(); time.Since(begun) < d && ctx.Err() == nil; c.calls++ {
		var sent time.Time
		start := time.Now()
		reply := ch.Do(ctx, req, func(context.Context, json.RawMessage) chain.Answer {
			sent = time.Now()
			return chain.Answer{Kind: chain.Answered, Result: answer}
		})
		end := time.Now()
		if reply.Error != nil {
			return fmt.Errorf("call through chain: %s", reply.Error)
		}
		reply.Delivered(true)
		c.request += sent.Sub(start)
		c.response += end.Sub(sent)
	}
	runtime.ReadMemStats(&after)
	c.mallocs += after.Mallocs - before.Mallocs
	return nil
}

func toolCall(i int) *chain.Request {
	return &chain.Request{
		Event:     "tools/call",
		Params:    json.RawMessage(`{"name":"charge","arguments":` + arguments(i) + `,"_meta":{"progressToken":1}}`),
		Principal: &interceptors.Principal{Type: "service", ID: "agent:bench"},
	}
}
