package chaos_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// load is many callers who make calls, new ones and ones that others make or have made, through any replica.
type load struct {
	t        *testing.T
	tool     *tool
	replicas []*replica

	numbers atomic.Int64
	callers sync.WaitGroup
	stop    context.CancelFunc

	mu   sync.Mutex
	told []told
}

func startLoad(t *testing.T, callers int, tl *tool, replicas ...*replica) *load {
	ctx, stop := context.WithCancel(t.Context())
	l := &load{t: t, tool: tl, replicas: replicas, stop: stop}
	for range callers {
		l.callers.Go(func() {
			for ctx.Err() == nil {
				l.call(l.next())
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

// next is a new number, or one of the last.
func (l *load) next() int {
	if last := l.numbers.Load(); last > 0 && rand.N(3) == 0 {
		return int(last - rand.N(min(last, 100)))
	}
	return int(l.numbers.Add(1))
}

func (l *load) call(n int) { l.callOn(l.replicas[rand.N(len(l.replicas))], n) }

// callOn makes a call and sees its end: a load that ends waits for it.
func (l *load) callOn(r *replica, n int) told {
	got := r.charge(context.WithoutCancel(l.t.Context()), n, l.tool)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, got)
	return got
}

func (l *load) end() {
	l.stop()
	l.callers.Wait()
}

// answered is how many calls have had an answer of the tool.
func (l *load) answered() int { return l.count(wasCharged) + l.count(wasRefused) }

// count is how many calls came to an outcome.
func (l *load) count(outcome string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, got := range l.told {
		if got.outcome == outcome {
			n++
		}
	}
	return n
}

// unsent is how often calls that did not get to their tool were told what.
func (l *load) unsent() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]int{}
	for _, got := range l.told {
		if got.end == "" {
			counts[got.outcome]++
		}
	}
	return counts
}

// reckon ends the load and compares what callers were told, what the log says and what the tool did. Then it
// makes every call once more, and compares again.
func (l *load) reckon() {
	t := l.t
	t.Helper()
	l.end()
	if t.Failed() || t.Context().Err() != nil {
		return
	}
	log := l.replicas[0].log
	eventually(t, time.Minute, "settled log", func() bool { return len(l.unsettled(records(t, log))) == 0 })
	l.compare(records(t, log))
	lost := l.lost()
	l.again()
	l.compareAgain(lost, records(t, log))
}

func (l *load) again() {
	last := l.numbers.Load()
	var next atomic.Int64
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for n := next.Add(1); n <= last; n = next.Add(1) {
				l.call(int(n))
			}
		})
	}
	callers.Wait()
}

// unsettled are the effects whose end is known to a replica that lives, and not yet to the log.
func (l *load) unsettled(all []*effect.Record) (open []*effect.Record) {
	for _, r := range all {
		switch r.StateAt(time.Now()) {
		case effect.StateClaimed:
			open = append(open, r)
		case effect.StateInDoubt:
			if l.hasEnded(numberOf(l.t, r.Arguments), chain.Answered) {
				open = append(open, r)
			}
		}
	}
	return open
}

func (l *load) hasEnded(n int, kind chain.AnswerKind) bool {
	for _, k := range l.tool.endsOf(n) {
		if k == kind {
			return true
		}
	}
	return false
}

// records are all effects in the log. Reading them takes its time on a busy machine, whatever the patience.
func records(t *testing.T, log *store.Log) (all []*effect.Record) {
	t.Helper()
	eventually(t, time.Minute, "list of effects", func() bool {
		var err error
		all, err = log.List(t.Context(), &store.Filter{Tenant: effect.DefaultTenant, Limit: 1 << 30})
		if err != nil && !errors.Is(err, store.ErrUnreachable) {
			t.Fatal(err)
		}
		return err == nil
	})
	return all
}
