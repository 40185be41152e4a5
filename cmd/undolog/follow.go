package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// followEvery is how often log --follow looks for news.
const followEvery = 500 * time.Millisecond

// follower finds what happens in the log from a moment on: new effects, and those it has seen open that
// move on.
type follower struct {
	log    *store.Log
	states []effect.State
	next   store.Filter            // the effects that are newer than those seen
	open   map[string]effect.State // by id
}

// follow prints a list, oldest first, and then what the filter selects of the news until ctx ends.
func follow(ctx context.Context, log *store.Log, filter *store.Filter, list []*effect.Record, p *logPrinter) error {
	f := &follower{log: log, states: filter.States, next: *filter, open: map[string]effect.State{}}
	f.next.States, f.next.Since, f.next.Limit = nil, time.Time{}, 1000
	slices.Reverse(list)
	if err := p.print(list); err != nil {
		return err
	}
	if err := f.begin(ctx, list); err != nil {
		return err
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		news, err := f.news(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.print(f.selected(news)); err != nil {
			return err
		}
	}
}

// begin takes what was printed for seen; when nothing was, whatever the log has now.
func (f *follower) begin(ctx context.Context, printed []*effect.Record) error {
	f.see(printed)
	if f.next.After > 0 {
		return nil
	}
	newest, err := f.log.List(ctx, &store.Filter{Tenant: f.next.Tenant, Limit: 1})
	f.see(newest)
	return err
}

func (f *follower) see(list []*effect.Record) {
	for _, r := range list {
		f.next.After = max(f.next.After, r.Seq)
		if state := r.StateAt(time.Now()); state.IsOpen() {
			f.open[r.ID] = state
		} else {
			delete(f.open, r.ID)
		}
	}
}

func (f *follower) news(ctx context.Context) ([]*effect.Record, error) {
	news, err := f.log.List(ctx, &f.next)
	if err != nil {
		return nil, err
	}
	slices.Reverse(news)
	for _, id := range slices.Sorted(maps.Keys(f.open)) {
		shown, err := f.log.Show(ctx, f.next.Tenant, id)
		if err != nil {
			return nil, err
		}
		if shown.Record.StateAt(time.Now()) != f.open[id] {
			news = append(news, shown.Record)
		}
	}
	f.see(news)
	return news, nil
}

// selected are those in the states that are wanted, all of them when no state is named.
func (f *follower) selected(list []*effect.Record) []*effect.Record {
	if len(f.states) == 0 {
		return list
	}
	now := time.Now()
	return slices.DeleteFunc(list, func(r *effect.Record) bool { return !slices.Contains(f.states, r.StateAt(now)) })
}
