package sqlite_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/barewriter"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

// The load: whole effects, begun and settled, with 1 KiB of arguments and 1 KiB of answer.
var (
	padding = strings.Repeat("x", 1000)
	answer  = effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{
		Kind: effect.AnswerResult, Body: []byte(`{"content":[{"type":"text","text":"` + padding + `"}]}`),
	}}
	irreversible = &effect.Contract{
		Tier: effect.TierIrreversible, Window: 10 * time.Minute, Repeat: effect.RepeatRun, RepeatError: effect.RepeatReplay,
		Lookalike: effect.RepeatRun, OnToolError: effect.StateCommitted, Timeout: 10 * time.Minute, Lease: 5 * time.Minute,
	}
)

func BenchmarkEffects(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("log/callers=%d", callers), func(b *testing.B) { benchmarkLog(b, callers) })
		b.Run(fmt.Sprintf("bare/callers=%d", callers), func(b *testing.B) { benchmarkBare(b, callers) })
	}
}

// benchmarkLog identifies its calls beforehand: hashing is measured in package effect.
func benchmarkLog(b *testing.B, callers int) {
	l := openLog(b, filepath.Join(b.TempDir(), "log.db"))
	params := make([]*store.BeginParams, b.N)
	for i := range params {
		params[i] = beginParams(b, irreversible, i)
	}
	b.ResetTimer()
	share(b.N, callers, func(i int) {
		begun, err := l.Begin(b.Context(), params[i])
		if err != nil || begun.Claim == nil {
			b.Errorf("Begin = %+v, %v", begun, err)
			return
		}
		if _, err := l.Settle(b.Context(), *begun.Claim, irreversible, answer); err != nil {
			b.Error(err)
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "effects/s")
}

// benchmarkBare writes the same two rows with the same durability and decides nothing.
func benchmarkBare(b *testing.B, callers int) {
	w, err := barewriter.Open(b.Context(), filepath.Join(b.TempDir(), "bare.db"))
	if err != nil {
		b.Fatal(err)
	}
	params := make([]*store.BeginParams, b.N)
	for i := range params {
		params[i] = beginParams(b, irreversible, i)
	}
	b.ResetTimer()
	share(b.N, callers, func(i int) {
		if err := w.Effect(params[i], answer.Answer.Body); err != nil {
			b.Error(err)
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "effects/s")
	if err := w.Close(); err != nil {
		b.Error(err)
	}
}

// share runs n pieces of work among a number of callers.
func share(n, callers int, work func(i int)) {
	var next atomic.Int64
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	running.Wait()
}

func openLog(tb testing.TB, path string) *store.Log {
	tb.Helper()
	d, err := sqlite.Open(tb.Context(), path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := store.Open(d, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

func beginParams(tb testing.TB, c *effect.Contract, i int) *store.BeginParams {
	tb.Helper()
	call := &effect.Call{
		Principal: "agent:bench", Server: "payments", Tool: "charge",
		Arguments: fmt.Appendf(nil, `{"amount":%d,"note":"%s"}`, i, padding),
	}
	id, err := c.Identify(call)
	if err != nil {
		tb.Fatal(err)
	}
	return &store.BeginParams{Call: call, Identity: id, Contract: c}
}
