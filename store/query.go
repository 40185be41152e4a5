package store

import (
	"context"
	"fmt"

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
