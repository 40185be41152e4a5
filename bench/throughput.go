package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/barewriter"
	"github.com/undolog/undolog/store"
)

// throughput compares whole effects, begun and settled, with the same rows written without a decision.
// Identities are made beforehand: hashing belongs to the request phase.
func (b *bench) throughput(ctx context.Context) error {
	for _, callers := range []int{1, 8, 64} {
		if err := b.effects(ctx, callers); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) effects(ctx context.Context, callers int) error {
	log, err := b.openLog(ctx, fmt.Sprintf("effects-%d.db", callers))
	if err != nil {
		return err
	}
	bare, err := barewriter.Open(ctx, filepath.Join(b.dir, fmt.Sprintf("bare-%d.db", callers)))
	if err != nil {
		return err
	}
	r := &race{callers: callers, size: 400 * min(callers, 16), contract: irreversible()}
	logged, written, err := r.run(ctx, 2*b.duration,
		func(p *store.BeginParams) error { return wholeEffect(ctx, log, p) },
		func(p *store.BeginParams) error { return bare.Effect(p, answer) })
	if err != nil {
		return err
	}
	result := row{
		what:     fmt.Sprintf("effects a second, SQLite, callers: %d", callers),
		figure:   fmt.Sprintf("%.0f", logged),
		baseline: fmt.Sprintf("%.0f bare writer", written),
		ratio:    logged / written,
	}
	if callers == 64 {
		result.goal = goal("≥ 0.7 ×", result.ratio >= 0.7)
	}
	b.table.add(result)
	return errors.Join(log.Close(), bare.Close())
}

func wholeEffect(ctx context.Context, log *store.Log, p *store.BeginParams) error {
	begun, err := log.Begin(ctx, p)
	if err != nil {
		return err
	}
	if begun.Claim == nil {
		return fmt.Errorf("begin effect: not claimed: %s", begun.Verdict.Action)
	}
	_, err = log.Settle(ctx, *begun.Claim, p.Contract, effect.Outcome{
		Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerResult, Body: answer},
	})
	return err
}

// race lets two ways of doing the same work take turns.
type race struct {
	callers  int
	size     int // effects a turn
	contract *effect.Contract
	made     int
}

// run returns how many effects a second each way made.
func (r *race) run(ctx context.Context, d time.Duration, ways ...func(*store.BeginParams) error) (a, b float64, err error) {
	var took [2]time.Duration
	turns := 0
	for ; took[0]+took[1] < d && ctx.Err() == nil; turns++ {
		for i, way := range ways {
			t, err := r.turn(way)
			if err != nil {
				return 0, 0, err
			}
			took[i] += t
		}
	}
	effects := float64(turns * r.size)
	return effects / took[0].Seconds(), effects / took[1].Seconds(), nil
}

func (r *race) turn(way func(*store.BeginParams) error) (time.Duration, error) {
	params := make([]*store.BeginParams, r.size)
	for i := range params {
		var err error
		if params[i], err = beginParams(r.contract, r.made); err != nil {
			return 0, err
		}
		r.made++
	}
	begun := time.Now()
	err := share(len(params), r.callers, func(i int) error { return way(params[i]) })
	return time.Since(begun), err
}

// share runs n pieces of work among callers and returns the first error.
func share(n, callers int, work func(i int) error) error {
	var next atomic.Int64
	var running sync.WaitGroup
	var failed atomic.Pointer[error]
	for range callers {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := work(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
