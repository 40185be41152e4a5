package main

import (
	"context"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// discard is a backend that lets every call run and keeps nothing, so that what remains to be measured is
// the interceptors. The methods that a call does not need are left out.
type discard struct {
	store.Driver
	tools []store.Tool // as if they had been learned
}

func (discard) Begin(_ context.Context, p *store.Begin) (*store.Begun, error) {
	r := &effect.Record{
		ID: p.ID, Tenant: p.Call.Tenant, Principal: p.Call.Principal, Server: p.Call.Server, Tool: p.Call.Tool,
		Rule: p.Identity.Rule, Signature: p.Identity.Signature, Generation: 1, Attempt: 1, State: effect.StateClaimed, Owner: p.Owner,
	}
	return &store.Begun{
		Verdict: effect.Verdict{Action: effect.ActInsert, Generation: 1}, Record: r,
		Claim: &effect.Claim{Effect: r.ID, Tenant: r.Tenant, Attempt: 1, Owner: p.Owner},
	}, nil
}

func (discard) Append(_ context.Context, tenant string, t *effect.Transition) (*effect.Record, error) {
	return &effect.Record{ID: t.Effect, Tenant: tenant, State: t.State, Attempt: t.Attempt, Ordinal: t.Ordinal}, nil
}

func (d discard) Tools(context.Context, string, string) ([]store.Tool, error) { return d.tools, nil }

func (discard) Write(context.Context, *store.Notes) error               { return nil }
func (discard) Beat(_ context.Context, _ string, _ time.Duration) error { return nil }
func (discard) End(context.Context, string) error                       { return nil }
func (discard) Close() error                                            { return nil }
