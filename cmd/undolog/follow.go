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
	ahead  map[string]bool         // by id: printed already, and yet to come as news
	open   map[string]effect.State // by id
}

// follow prints what the filter selects, oldest first, and then what it selects of the news until ctx ends.
func follow(ctx context.Context, log *store.Log, filter *store.Filter, p *logPrinter) error {
	f := &follower{log: log, states: filter.States, next: *filter, ahead: map[string]bool{}, open: map[string]effect.State{}}
	f.next.States, f.next.Since, f.next.Limit, f.next.Ordered = nil, time.Time{}, 1000, true
	list, err := f.begin(ctx, filter)
	if err != nil {
		return err
	}
	if err := p.print(list); err != nil {
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

// begin takes its place in the log, and then lists what is there by then, oldest first: what is written in
// between is in both.
func (f *follower) begin(ctx context.Context, filter *store.Filter) ([]*effect.Record, error) {
	last, err := f.log.List(ctx, &store.Filter{Tenant: f.next.Tenant, Limit: 1, Ordered: true})
	if err != nil {
		return nil, err
	}
	for _, r := range last {
		f.next.After = r.Seq
	}
	list, err := newest(ctx, f.log, filter)
	slices.Reverse(list)
	for _, r := range list {
		f.ahead[r.ID] = r.Seq > f.next.After
		f.watch(r)
	}
	return list, err
}

// watch remembers an effect for as long as it is open.
func (f *follower) watch(r *effect.Record) {
	if state := r.StateAt(f.log.Now()); state.IsOpen() {
		f.open[r.ID] = state
	} else {
		delete(f.open, r.ID)
	}
}

func (f *follower) news(ctx context.Context) ([]*effect.Record, error) {
	news, err := f.log.List(ctx, &f.next)
	if err != nil {
		return nil, err
	}
	for _, r := range news {
		f.next.After = max(f.next.After, r.Seq)
	}
	slices.Reverse(news)
	news = slices.DeleteFunc(news, func(r *effect.Record) bool { return f.ahead[r.ID] })
	for _, id := range slices.Sorted(maps.Keys(f.open)) {
		shown, err := f.log.Show(ctx, f.next.Tenant, id)
		if err != nil {
			return nil, err
		}
		if shown.Record.StateAt(f.log.Now()) != f.open[id] {
			news = append(news, shown.Record)
		}
	}
	for _, r := range news {
		f.watch(r)
	}
	return news, nil
}

// selected are those in the states that are wanted, all of them when no state is named.
func (f *follower) selected(list []*effect.Record) []*effect.Record {
	if len(f.states) == 0 {
		return list
	}
	now := f.log.Now()
	return slices.DeleteFunc(list, func(r *effect.Record) bool { return !slices.Contains(f.states, r.StateAt(now)) })
}
