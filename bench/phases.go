package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effectchain"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
)

// The laps of a chain; those of the chain of none come after.
const (
	requestPhase = iota
	responsePhase
	wholeCall
	phaseLaps
)

// phases compares a chain with our interceptors in process, over a log that keeps nothing, with a chain
// of none. What durable writes cost is measured elsewhere. A whole call is dispatched and delivered besides:
// what a write needs that outlives its caller, a goroutine, is in it.
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
	with, without := &passes{chain: ours, ei: ei}, &passes{chain: none, ei: ei}
	laps := append(with.laps(ctx), without.laps(ctx)...)
	if err := byTurns(ctx, laps, 2*b.duration); err != nil {
		return err
	}
	b.reportPhases(laps)
	return errors.Join(b.allocations(ctx, with, without), log.Close())
}

func (b *bench) reportPhases(laps []lap) {
	for i, what := range []string{"request phase: identify, claim, stamp, median", "response phase: settle, strip, median"} {
		with, without := laps[i].median(), laps[phaseLaps+i].median()
		b.table.add(row{
			what: what, figure: micros(with), baseline: micros(without) + " without", ratio: ratio(with, without),
			goal: goal("+"+micros(with-without)+", ≤ 30 µs", with-without <= 30*time.Microsecond),
		})
	}
	with, without := laps[wholeCall].median(), laps[phaseLaps+wholeCall].median()
	b.table.add(row{"whole call, both phases and dispatch, median", micros(with), micros(without) + " without", ratio(with, without), ""})
}

func (b *bench) allocations(ctx context.Context, with, without *passes) error {
	ours, err := with.allocations(ctx)
	if err != nil {
		return err
	}
	none, err := without.allocations(ctx)
	if err != nil {
		return err
	}
	perPhase := (ours - none) / 2
	b.table.add(row{
		what:   "allocations of a whole call",
		figure: fmt.Sprintf("%.0f", ours), baseline: fmt.Sprintf("%.0f without", none), ratio: ours / none,
		goal: goal(fmt.Sprintf("%+.0f a phase, ≤ 60", perPhase), perPhase <= 60),
	})
	return nil
}

// passes are calls through one chain.
type passes struct {
	chain *chain.Chain
	ei    *effectinterceptor.Interceptors
	made  int
}

func (p *passes) laps(ctx context.Context) []lap {
	laps := make([]lap, phaseLaps)
	laps[requestPhase].run = func(int) (time.Duration, error) { return p.phase(ctx, requestPhase) }
	laps[responsePhase].run = func(int) (time.Duration, error) { return p.phase(ctx, responsePhase) }
	laps[wholeCall].run = func(int) (time.Duration, error) { return p.whole(ctx) }
	return laps
}

// phase runs both phases and says how long one of them took. The second settles what the first has claimed.
func (p *passes) phase(ctx context.Context, measured int) (took time.Duration, err error) {
	p.made++
	exchange := strconv.Itoa(p.made)
	request := toolCall(0)
	for i, of := range []chain.PhaseParams{
		{Phase: interceptors.PhaseRequest, Payload: request.Params},
		{Phase: interceptors.PhaseResponse, Payload: answer},
	} {
		of.Event, of.Request, of.Exchange = request.Event, request, exchange
		begun := time.Now()
		out := p.chain.Execute(ctx, &of)
		if i == measured {
			took = time.Since(begun)
		}
		if out.Abort != nil {
			return 0, fmt.Errorf("%s phase: stopped: %s", of.Phase, out.Abort.Reason)
		}
	}
	p.ei.Delivered(exchange, time.Now(), true)
	return took, nil
}

func (p *passes) whole(ctx context.Context) (time.Duration, error) {
	request := toolCall(0)
	begun := time.Now()
	reply := p.chain.Do(ctx, request, func(context.Context, json.RawMessage) chain.Answer {
		return chain.Answer{Kind: chain.Answered, Result: answer}
	})
	reply.Delivered(true)
	took := time.Since(begun)
	if reply.Error != nil {
		return 0, fmt.Errorf("call through chain: %s", reply.Error)
	}
	return took, nil
}

// allocations returns how many a whole call makes.
func (p *passes) allocations(ctx context.Context) (float64, error) {
	const calls = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		if _, err := p.whole(ctx); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / calls, nil
}

func toolCall(i int) *chain.Request {
	return &chain.Request{
		Event:     "tools/call",
		Params:    json.RawMessage(`{"name":"charge","arguments":` + arguments(i) + `,"_meta":{"progressToken":1}}`),
		Principal: &interceptors.Principal{Type: "service", ID: "agent:bench"},
	}
}
