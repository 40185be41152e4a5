package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

const racers = 64

// race runs racers goroutines at once, each on one of the processes.
func race(processes []*process, work func(p *process, i int)) {
	var start, end sync.WaitGroup
	start.Add(1)
	for i := range racers {
		end.Go(func() {
			start.Wait()
			work(processes[i%len(processes)], i)
		})
	}
	start.Done()
	end.Wait()
}

func testRace(t *testing.T, h Harness) {
	t.Run("of many identical calls one is claimed", func(t *testing.T) {
		w := newWorld(t, h)
		processes := []*process{w.process(), w.process()}
		bp := params(t, charge(), contract())
		var claims, joins atomic.Int32
		race(processes, func(p *process, _ int) {
			begun, err := p.Begin(context.Background(), bp)
			switch {
			case err != nil:
				t.Errorf("Begin: %v", err)
			case begun.Claim != nil:
				claims.Add(1)
			case begun.Verdict.Action == effect.ActJoin:
				joins.Add(1)
			}
		})
		if claims.Load() != 1 || joins.Load() != racers-1 {
			t.Errorf("%d claims and %d joins", claims.Load(), joins.Load())
		}
	})
	t.Run("of many next generations one is claimed", func(t *testing.T) {
		w := newWorld(t, h)
		c := contract(repeat(effect.RepeatRun))
		p, q := w.process(), w.process()
		r := p.done(charge(), c)
		p.Delivered(r.Tenant, r.ID)
		p.flushed(w)
		bp := params(t, charge(), c)
		var claims atomic.Int32
		race([]*process{p, q}, func(p *process, _ int) {
			begun, err := p.Begin(context.Background(), bp)
			if err != nil {
				t.Errorf("Begin: %v", err)
			} else if begun.Claim != nil {
				claims.Add(1)
				if begun.Record.Generation != 2 {
					t.Errorf("generation %d", begun.Record.Generation)
				}
			}
		})
		if claims.Load() != 1 {
			t.Errorf("%d claims", claims.Load())
		}
	})
	t.Run("of many next attempts one is claimed", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		p.settle(p.begin(charge(), contract()).Claim, contract(), unsent)
		bp := params(t, charge(), contract())
		var claims atomic.Int32
		race([]*process{p, q}, func(p *process, _ int) {
			if begun, err := p.Begin(context.Background(), bp); err != nil {
				t.Errorf("Begin: %v", err)
			} else if begun.Claim != nil {
				claims.Add(1)
			}
		})
		if claims.Load() != 1 {
			t.Errorf("%d claims", claims.Load())
		}
	})
	t.Run("of many who resolve one wins", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		claim := p.begin(charge(), contract()).Claim
		p.settle(claim, contract(), lost)
		var won, told atomic.Int32
		race([]*process{p, q}, func(p *process, i int) {
			_, err := p.Resolve(context.Background(), store.ResolveParams{
				Tenant: "default", ID: claim.Effect, To: effect.StateCommitted, By: fmt.Sprintf("user:%d", i),
			})
			conflict, isConflict := errors.AsType[*store.ConflictError](err)
			switch {
			case err == nil:
				won.Add(1)
			case isConflict && conflict.Record.By != "":
				told.Add(1)
			default:
				t.Errorf("Resolve: %v", err)
			}
		})
		if won.Load() != 1 || told.Load() != racers-1 {
			t.Errorf("%d won and %d were told by whom", won.Load(), told.Load())
		}
	})
	t.Run("different calls all run", func(t *testing.T) {
		w := newWorld(t, h)
		processes := []*process{w.process(), w.process()}
		race(processes, func(p *process, i int) {
			for n := range 4 {
				p.done(charge(args(fmt.Sprintf(`{"racer":%d,"n":%d}`, i, n))), contract())
			}
		})
		records := processes[0].list(&store.Filter{Tenant: "default", Limit: 1000, States: []effect.State{effect.StateCommitted}})
		if len(records) != 4*racers {
			t.Errorf("%d effects committed, want %d", len(records), 4*racers)
		}
	})
}

func testWait(t *testing.T, h Harness) {
	type waited struct {
		record *effect.Record
		err    error
	}
	wait := func(p *process, id string) <-chan waited {
		c := make(chan waited, 1)
		go func() {
			r, err := p.Wait(context.Background(), "default", id)
			c <- waited{r, err}
		}()
		return c
	}
	t.Run("who joins gets the owner's outcome, here and in another process", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		claim := p.begin(charge(), contract()).Claim
		here, there := wait(p, claim.Effect), wait(q, claim.Effect)
		p.settle(claim, contract(), result(`{"a":1}`))
		for _, c := range []<-chan waited{here, there} {
			if got := <-c; got.err != nil || string(got.record.Answer.Body) != `{"a":1}` {
				t.Errorf("Wait = %+v, %v", got.record, got.err)
			}
		}
	})
	t.Run("a lease that ends ends the wait", func(t *testing.T) {
		w := newWorld(t, h)
		claim := w.process().begin(charge(), contract()).Claim
		c := wait(w.process(), claim.Effect)
		w.clock.advance(ttl)
		if got := <-c; got.err != nil || got.record.StateAt(w.clock.Now()) != effect.StateInDoubt {
			t.Errorf("Wait = %+v, %v", got.record, got.err)
		}
	})
	t.Run("the caller's context and Close end it", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		claim := p.begin(charge(), contract()).Claim
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := p.Wait(ctx, "default", claim.Effect); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait = %v, want DeadlineExceeded", err)
		}
		q := w.process()
		c := wait(q, claim.Effect)
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if got := <-c; got.err == nil {
			t.Error("Wait on a closed log returned no error")
		}
		if _, err := p.Wait(t.Context(), "default", "nothing"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Wait for nothing = %v, want ErrNotFound", err)
		}
	})
}
