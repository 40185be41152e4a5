package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
)

// The load: whole effects, begun and settled, with 1 KiB of arguments and 1 KiB of answer.
var (
	padding = strings.Repeat("x", 1000)
	answer  = effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{
		Kind: effect.AnswerResult, Body: []byte(`{"content":[{"type":"text","text":"` + padding + `"}]}`),
	}}
	irreversible = &effect.Contract{
		Tier: effect.TierIrreversible, Window: 10 * 60e9, Repeat: effect.RepeatRun, RepeatError: effect.RepeatReplay,
		Lookalike: effect.RepeatRun, OnToolError: effect.StateCommitted, Timeout: 10 * 60e9, Lease: 5 * 60e9,
	}
)

func BenchmarkEffects(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l := openLog(b, pgtest.New(b).URL)
			calls := beginParams(b, 0, b.N)
			warm(b, l)
			b.ResetTimer()
			share(b.N, callers, func(i int) { wholeEffect(b, l, calls[i]) })
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "effects/s")
		})
	}
}

func BenchmarkReplays(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l := openLog(b, pgtest.New(b).URL)
			calls := beginParams(b, 0, 1000)
			share(len(calls), 64, func(i int) { wholeEffect(b, l, calls[i]) })
			b.ResetTimer()
			share(b.N, callers, func(i int) {
				begun, err := l.Begin(b.Context(), calls[i%len(calls)])
				if err != nil || begun.Verdict.Action != effect.ActReplay {
					b.Errorf("Begin = %+v, %v", begun, err)
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "replays/s")
		})
	}
}

// warm has statements prepared and plans made before anything is measured.
func warm(b *testing.B, l *store.Log) {
	calls := beginParams(b, 1<<30, 200)
	share(len(calls), 64, func(i int) { wholeEffect(b, l, calls[i]) })
}

func wholeEffect(tb testing.TB, l *store.Log, p *store.BeginParams) {
	begun, err := l.Begin(tb.Context(), p)
	if err != nil || begun.Claim == nil {
		tb.Errorf("Begin = %+v, %v", begun, err)
		return
	}
	if _, err := l.Settle(tb.Context(), *begun.Claim, irreversible, answer); err != nil {
		tb.Error(err)
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

func openLog(tb testing.TB, url string) *store.Log {
	tb.Helper()
	d, err := postgres.Open(tb.Context(), url, nil)
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

// beginParams are different calls, identified beforehand: hashing is measured in package effect.
func beginParams(tb testing.TB, first, n int) []*store.BeginParams {
	tb.Helper()
	all := make([]*store.BeginParams, n)
	for i := range all {
		call := &effect.Call{
			Principal: "agent:bench", Server: "payments", Tool: "charge",
			Arguments: fmt.Appendf(nil, `{"amount":%d,"note":"%s"}`, first+i, padding),
		}
		id, err := irreversible.Identify(call)
		if err != nil {
			tb.Fatal(err)
		}
		all[i] = &store.BeginParams{Call: call, Identity: id, Contract: irreversible}
	}
	return all
}
