package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/examples/payments/ledger"
)

// tool is the target of every call: an irreversible one, whose ledger is the truth. The number of a call
// says how it ends there.
type tool struct {
	ledger *ledger.Ledger
	work   func(context.Context) // what takes it its time

	mu   sync.Mutex
	ends map[int][]chain.AnswerKind // of the dispatches, by the number of the call
}

func newTool(t *testing.T, work func(context.Context)) *tool {
	t.Helper()
	l, err := ledger.Open(filepath.Join(t.TempDir(), "ledger.jsonl"), &ledger.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &tool{ledger: l, work: work, ends: map[int][]chain.AnswerKind{}}
}

// briefly is the time of most tools here.
func briefly(ctx context.Context) { rest(ctx, 10*time.Millisecond+rand.N(50*time.Millisecond)) }

// The numbers of calls that do not end as they should: one in sixteen each.
const (
	refused        = iota // an error that says that nothing was done
	notReached            // the first time nothing is sent
	lostAfterwards        // done, and the answer lost
	lostBefore            // not done, and nobody knows
)

var errLost = errors.New("connection reset")

// call is the way to the tool of call number n.
func (tl *tool) call(n int) chain.Upstream {
	return func(ctx context.Context, params json.RawMessage) chain.Answer {
		tl.work(ctx)
		a := tl.answer(n, params)
		tl.mu.Lock()
		defer tl.mu.Unlock()
		tl.ends[n] = append(tl.ends[n], a.Kind)
		return a
	}
}

func (tl *tool) answer(n int, params json.RawMessage) chain.Answer {
	switch n % 16 {
	case refused:
		return chain.Answer{Kind: chain.Answered, Error: json.RawMessage(`{"code":-32602,"message":"no such account"}`)}
	case notReached:
		if len(tl.endsOf(n)) == 0 {
			return chain.Answer{Kind: chain.Unsent, Cause: errLost}
		}
	case lostBefore:
		return chain.Answer{Kind: chain.Lost, Cause: errLost}
	}
	done, _, err := tl.ledger.Append(ledger.Entry{Tool: "charge", Arguments: params}, "ch")
	if err != nil || n%16 == lostAfterwards {
		return chain.Answer{Kind: chain.Lost, Cause: errors.Join(errLost, err)}
	}
	return chain.Answer{Kind: chain.Answered, Result: fmt.Appendf(nil, `{"content":[{"type":"text","text":%q}]}`, done.ID)}
}

func (tl *tool) endsOf(n int) []chain.AnswerKind {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	return tl.ends[n]
}

// charges are the ids of what the tool did, by the number of the call.
func (tl *tool) charges(t *testing.T) map[int][]string {
	t.Helper()
	entries, err := tl.ledger.Entries()
	if err != nil {
		t.Fatal(err)
	}
	charges := map[int][]string{}
	for _, e := range entries {
		n := numberOf(t, e.Arguments)
		charges[n] = append(charges[n], e.ID)
	}
	return charges
}

// numberOf reads the number of a call in its params or its arguments.
func numberOf(t *testing.T, params json.RawMessage) int {
	t.Helper()
	var p struct {
		N         *int
		Arguments struct{ N *int }
	}
	if err := json.Unmarshal(params, &p); err != nil {
		t.Fatalf("read %s: %v", params, err)
	}
	for _, n := range []*int{p.N, p.Arguments.N} {
		if n != nil {
			return *n
		}
	}
	t.Fatalf("no number in %s", params)
	return 0
}
