package drivertest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// testWalk prunes in stretches.
func testWalk(t *testing.T, h Harness) {
	const many = 1100 // more than a stretch
	fill := func(w *world, p *process, n int) {
		at := w.clock.Now()
		for range n {
			p.RecordRead(&effect.Record{Tenant: "default", Server: "s", Tool: "t", Rule: effect.RuleNone, State: effect.StateCommitted, CreatedAt: at, ChangedAt: at})
		}
		p.flushed(w)
	}
	prune := func(t *testing.T, p *process, of store.Pruning, want store.Pruned) {
		t.Helper()
		done, err := p.Prune(t.Context(), &of)
		if done.Bytes = 0; err != nil || done != want {
			t.Errorf("Prune = %+v, %v; want %+v", done, err, want)
		}
	}
	t.Run("a stretch is no longer than it is to be, and the next one goes on after it", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		fill(w, p, many)
		w.clock.advance(time.Hour)
		walk, sum, rounds := &store.Walk{}, store.Pruned{}, 0
		for ; !walk.Ended; rounds++ {
			done, err := p.Prune(t.Context(), &store.Pruning{Before: w.clock.Now(), Walk: walk, Limit: 1})
			if err != nil || done.Looked > 1000 || rounds > many {
				t.Fatalf("Prune = %+v, %v in round %d", done, err, rounds)
			}
			sum.Looked, sum.Effects = sum.Looked+done.Looked, sum.Effects+done.Effects
		}
		if want := (store.Pruned{Looked: many, Effects: many}); sum != want || rounds < 2 {
			t.Errorf("pruned %+v in %d stretches, want %+v", sum, rounds, want)
		}
	})
	t.Run("what has nothing left to lose is not looked at again", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		fill(w, p, 50)
		open := p.begin(charge(), contract()).Claim
		fill(w, p, 50)
		w.clock.advance(time.Minute)
		walk := &store.Walk{}
		pruning := func() store.Pruning { return store.Pruning{Before: w.clock.Now(), Walk: walk} }
		prune(t, p, pruning(), store.Pruned{Looked: 101, Effects: 100})
		prune(t, p, pruning(), store.Pruned{}) // it has ended
		walk.Again()
		prune(t, p, pruning(), store.Pruned{Looked: 51}) // from what is open on
		p.settle(open, contract(), result(`{}`))
		w.clock.advance(time.Minute)
		fill(w, p, 10)
		walk.Again()
		prune(t, p, pruning(), store.Pruned{Looked: 51, Effects: 1})
		w.clock.advance(time.Minute)
		walk.Again()
		prune(t, p, pruning(), store.Pruned{Looked: 10, Effects: 10})
		walk.Again()
		prune(t, p, pruning(), store.Pruned{})
		prune(t, p, store.Pruning{Before: w.clock.Now()}, store.Pruned{Looked: 111})
	})
}

// testPruneRace prunes what is begun again and replayed at the same time. What runs is counted where it runs.
func testPruneRace(t *testing.T, h Harness) {
	const keys, callers = 20, 16
	w := newWorld(t, h)
	processes := []*process{w.process(), w.process()}
	call := func(k int) *effect.Call { return charge(key(fmt.Sprint(k)), args(fmt.Sprintf(`{"amount":%d}`, k))) }
	var ran [keys]atomic.Int32
	work := func(p *process, k int) {
		begun, err := p.Begin(context.Background(), params(t, call(k), contract()))
		switch {
		case err != nil:
			t.Errorf("Begin: %v", err)
		case begun.Claim != nil:
			ran[k].Add(1)
			if _, err := p.Settle(context.Background(), *begun.Claim, contract(), result(`{"done":true}`)); err != nil {
				t.Errorf("Settle: %v", err)
			}
		case begun.Verdict.Action != effect.ActReplay && begun.Verdict.Action != effect.ActJoin:
			t.Errorf("Begin = %s (%s)", begun.Verdict.Action, begun.Verdict.Reason)
		}
	}
	// during has all callers make all calls while two processes prune.
	during := func(before time.Time) {
		stop := make(chan struct{})
		var pruners, all sync.WaitGroup
		for _, p := range processes {
			pruners.Go(func() {
				tick := time.NewTicker(2 * time.Millisecond) // a file lets one write at a time
				defer tick.Stop()
				for {
					if _, err := p.Prune(context.Background(), &store.Pruning{Before: before}); err != nil {
						t.Errorf("Prune: %v", err)
					}
					select {
					case <-stop:
						return
					case <-tick.C:
					}
				}
			})
		}
		for i := range callers {
			all.Go(func() {
				for n := range keys {
					work(processes[i%2], (n+i)%keys)
				}
			})
		}
		all.Wait()
		close(stop)
		pruners.Wait()
	}
	answered := func() (kept int) {
		for k := range keys {
			r := processes[0].wants(effect.ActReplay, call(k), contract()).Record
			if !r.Answer.Pruned {
				kept++
			}
			if n := ran[k].Load(); n != 1 {
				t.Errorf("call %d ran %d times", k, n)
			}
		}
		return kept
	}
	for k := range keys {
		processes[0].settle(processes[0].begin(call(k), contract()).Claim, contract(), rpcError(`{"code":-32602,"message":"x"}`))
	}
	w.clock.advance(time.Hour)
	during(w.clock.Now().Add(-time.Minute)) // of what failed
	if kept := answered(); kept != keys {
		t.Errorf("%d of %d answers are kept that are younger than what was pruned", kept, keys)
	}
	w.clock.advance(time.Hour)
	during(w.clock.Now()) // of what is replayed
	if kept := answered(); kept != 0 {
		t.Errorf("%d of %d answers are kept that were pruned", kept, keys)
	}
}
