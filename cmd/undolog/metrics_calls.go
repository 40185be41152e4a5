package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/store"
)

// callMetrics are what calls have come to in this process.
func callMetrics(c effectinterceptor.Counts) []metric {
	var list []metric
	for _, came := range slices.Sorted(maps.Keys(c.Calls)) {
		list = append(list, metric{
			name: "undolog_calls_total", help: "Tool calls that this process was asked for, by what they came to.", kind: counter,
			label: "outcome", of: came, value: float64(c.Calls[came]),
		})
	}
	for _, reason := range slices.Sorted(maps.Keys(c.Refused)) {
		list = append(list, metric{
			name: "undolog_refused_calls_total", help: "Tool calls that were not made, by the outcome that the caller was told.", kind: counter,
			label: "reason", of: reason, value: float64(c.Refused[reason]),
		})
	}
	return list
}

// standing counts what waits in the log, of every tenant, for whoever asks often.
type standing struct {
	log *store.Log

	mu   sync.Mutex
	at   time.Time // when they were asked for; zero: never
	last []metric
}

const (
	// standingFor is how long a count of what waits is told: to count is to read it.
	standingFor = 10 * time.Second
	// standingMost is how many are counted of each kind.
	standingMost = 10_000
	standingPage = 1000
)

// metrics are the counts; none when the log does not say in time.
func (s *standing) metrics(ctx context.Context) []metric {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && time.Since(s.at) < standingFor {
		return s.last
	}
	s.at, s.last = time.Now(), nil                                              // a log that does not say is not asked by everybody either
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout) // others are told the same
	defer cancel()
	approvals, err := s.count(ctx, store.Filter.Awaiting)
	if err != nil {
		return nil
	}
	lost, err := s.count(ctx, func(f store.Filter) *store.Filter {
		f.States, f.Writes = []effect.State{effect.StateInDoubt}, true
		return &f
	})
	if err != nil {
		return nil
	}
	s.last = []metric{
		{name: "undolog_approvals_waiting", help: "Calls in the log that wait for approval, or whose approval is not used yet; 10000 is that or more.", kind: gauge, value: float64(approvals)},
		{name: "undolog_effects_in_doubt", help: "Calls in the log whose outcome is lost and not settled; 10000 is that or more.", kind: gauge, value: float64(lost)},
	}
	return s.last
}

func (s *standing) count(ctx context.Context, of func(store.Filter) *store.Filter) (n int, err error) {
	tenants, err := s.log.Tenants(ctx)
	if err != nil {
		return 0, err
	}
	for _, tenant := range tenants {
		for f := of(store.Filter{Tenant: tenant, Brief: true, Limit: standingPage}); n < standingMost; {
			list, err := s.log.List(ctx, f)
			if err != nil {
				return 0, err
			}
			if n += len(list); len(list) < standingPage {
				break
			}
			f.Before = list[len(list)-1].Seq
		}
	}
	return min(n, standingMost), nil
}
