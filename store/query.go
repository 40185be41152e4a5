package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/undolog/undolog/effect"
)

// List returns effects, newest first; states are those of now (see effect.Record.StateAt).
func (l *Log) List(ctx context.Context, f *Filter) ([]*effect.Record, error) {
	records, err := l.driver.Effects(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("list effects: %w", err)
	}
	return records, nil
}

// Shown is everything the log has of one effect.
type Shown struct {
	Record      *effect.Record
	Transitions []effect.Transition
	Events      []effect.Event // deliveries included
}

// Show returns one effect with its history; ErrNotFound when the tenant has none of that id.
func (l *Log) Show(ctx context.Context, tenant, id string) (*Shown, error) {
	record, err := l.driver.Effect(ctx, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("show effect %s: %w", id, err)
	}
	moves, events, err := l.driver.History(ctx, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("show effect %s: %w", id, err)
	}
	return &Shown{Record: record, Transitions: moves, Events: events}, nil
}

// Waiting selects of what the filter does what waits for somebody: effects in doubt, those waiting for another round,
// and those waiting for approval.
func (f Filter) Waiting() *Filter {
	f.States = []effect.State{effect.StateInDoubt, effect.StateWaiting, effect.StateAwaitingApproval}
	f.Writes = true // a lost read changed nothing
	return &f
}

// Awaiting selects of what the filter does what waits for approval and whose clocks run.
func (f Filter) Awaiting() *Filter {
	f.States = []effect.State{effect.StateAwaitingApproval}
	return &f
}

// Pending returns what waits for somebody: effects in doubt, those waiting for another round, and those
// waiting for approval; newest first.
func (l *Log) Pending(ctx context.Context, tenant string, limit int) ([]*effect.Record, error) {
	records, err := l.driver.Effects(ctx, Filter{Tenant: tenant, Limit: limit}.Waiting())
	if err != nil {
		return nil, fmt.Errorf("list pending effects: %w", err)
	}
	return records, nil
}

// Events returns events that moved no state, oldest first, with Seq above after.
func (l *Log) Events(ctx context.Context, tenant string, after int64, limit int) ([]effect.Event, error) {
	events, err := l.driver.Events(ctx, tenant, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return events, nil
}

// maxLateness is more than an event is written after it happened, by a process that waits for its log.
const maxLateness = time.Hour

// EventsSince tells each of the events that happened since a time, and others, page by page: the last that were written
// first, so that a log of any length is read no further than it must. each returns since when the rest is wanted, which
// may be later than before.
func (l *Log) EventsSince(ctx context.Context, tenant string, since time.Time, each func(page []effect.Event) (since time.Time)) error {
	for before := int64(0); ; {
		page, err := l.driver.LastEvents(ctx, tenant, before, eventPage)
		if err != nil {
			return fmt.Errorf("list events since %s: %w", since.Format(time.RFC3339), err)
		}
		if len(page) > 0 {
			since = each(page)
		}
		mayHaveMore := func(ev effect.Event) bool { return !ev.At.Before(since.Add(-maxLateness)) }
		if len(page) < eventPage || !slices.ContainsFunc(page, mayHaveMore) {
			return nil
		}
		before = page[len(page)-1].Seq
	}
}

const eventPage = 1000

// LearnTool keeps a tool's definition. It reports whether another one was known; the event of that is
// then already recorded.
func (l *Log) LearnTool(ctx context.Context, t *Tool) (changed bool, err error) {
	changed, err = l.driver.LearnTool(ctx, t)
	if err != nil {
		return false, fmt.Errorf("learn tool %s of %s: %w", t.Name, t.Server, err)
	}
	return changed, nil
}

// Tools returns the last known definition of each tool of a server.
func (l *Log) Tools(ctx context.Context, tenant, server string) ([]Tool, error) {
	tools, err := l.driver.Tools(ctx, tenant, server)
	if err != nil {
		return nil, fmt.Errorf("list tools of %s: %w", server, err)
	}
	return tools, nil
}
