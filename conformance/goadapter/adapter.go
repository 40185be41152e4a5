// Package goadapter tries this project's own library: the host of package interceptors and the engine of
// package chain, called directly, or with MCP between the two.
package goadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/behavior"
	"github.com/undolog/undolog/interceptors"
)

// Transport is what is between the engine and its hosts.
type Transport string

const (
	Direct     Transport = "direct"      // function calls
	Memory     Transport = "memory"      // MCP in memory
	Stdio      Transport = "stdio"       // MCP on newline-delimited JSON
	HTTP       Transport = "http"        // Streamable HTTP, 2026-07-28
	HTTPLegacy Transport = "http-legacy" // Streamable HTTP, 2025-11-25
)

// Transports are all of them.
var Transports = []Transport{Direct, Memory, Stdio, HTTP, HTTPLegacy}

// Adapter is a conformance.Adapter over one transport.
type Adapter struct {
	Transport Transport
	// Posture is that of the engine for fixtures of any posture. Defaults to client.
	Posture conformance.Posture
}

var _ conformance.Adapter = (*Adapter)(nil)

// Name implements conformance.Adapter.
func (a *Adapter) Name() string {
	if a.Posture == conformance.PostureServer {
		return "undolog " + string(a.Transport) + " server"
	}
	return "undolog " + string(a.Transport)
}

// Has implements conformance.Adapter.
func (a *Adapter) Has(f conformance.Feature) bool {
	if name, ok := strings.CutPrefix(string(f), "behavior:"); ok {
		return behavior.Known(name)
	}
	switch f {
	case conformance.FeatureHostOptions, conformance.FeatureRequest:
		return a.Transport != Direct
	case conformance.FeatureTenant:
		return a.Transport == Direct // a remote host takes the tenant from its invoker's token
	case conformance.FeatureHTTP:
		return a.Transport == HTTP
	}
	return slices.Contains([]conformance.Feature{
		conformance.FeatureServerPosture, conformance.FeaturePolicy, conformance.FeatureHosts, conformance.FeatureDescriptor,
		conformance.FeatureCalls, conformance.FeatureRecords, conformance.FeatureErrorData, conformance.FeatureEveryEvent,
		conformance.FeatureFromServer, conformance.FeatureChange,
		conformance.FeatureContext, conformance.FeatureProtocol, conformance.FeaturePrincipal, conformance.FeatureExchange,
		conformance.FeatureInvoke, conformance.FeatureAlerts, conformance.FeatureTTL,
	}, f)
}

// CreateSession implements conformance.Adapter.
func (a *Adapter) CreateSession(ctx context.Context, f *conformance.Fixture) (conformance.Session, error) {
	s := &session{transport: a.Transport}
	now := func() time.Time { return time.Now().Add(time.Duration(s.older.Load())) }
	posture := chain.PostureClient
	if f.Posture == conformance.PostureServer || f.Posture == conformance.PostureAny && a.Posture == conformance.PostureServer {
		posture = chain.PostureServer
	}
	s.logger = slog.New(slog.NewTextHandler(&s.alerts, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c, err := chain.New(&chain.Options{Posture: posture, Deadline: milliseconds(f.Policy.DeadlineMs), Now: now, Logger: s.logger})
	if err != nil {
		return nil, err
	}
	s.chain = c
	for _, name := range f.HostNames() {
		if err := s.addHost(ctx, f, name); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

type session struct {
	transport Transport
	chain     *chain.Chain
	hosts     []*host
	log       behavior.Log
	alerts    conformance.AlertLog
	logger    *slog.Logger // of hosts and engine, into alerts
	older     atomic.Int64 // how far the engine's clock is ahead
}

// Change implements conformance.Changer.
func (s *session) Change(_ context.Context, more []conformance.Interceptor) error {
	for i := range more {
		if err := s.hosts[0].Add(&more[i]); err != nil {
			return err
		}
	}
	s.older.Add(int64(time.Hour))
	return nil
}

func (s *session) addHost(ctx context.Context, f *conformance.Fixture, name string) error {
	made, err := behavior.NewHost(&behavior.HostParams{Fixture: f, Name: name, Log: &s.log, Logger: s.logger})
	if err != nil {
		return err
	}
	h := &host{Host: made, name: name}
	var reached chain.Host
	if slices.Contains(f.Host.Down, name) {
		reached = gone{name}
	} else if reached, err = h.reach(ctx, s.transport, f.Policy.Strict); err != nil {
		return err
	}
	s.hosts = append(s.hosts, h)
	policy, err := h.policy(f)
	if err != nil {
		return err
	}
	return s.chain.Use(reached, policy)
}

// gone is a host that nobody can reach.
type gone struct{ name string }

func (g gone) Name() string { return "host-" + g.name }

func (g gone) List(context.Context) ([]interceptors.Descriptor, error) {
	return nil, errors.New("connection refused")
}

func (g gone) Invoke(context.Context, *interceptors.InvokeParams) (*interceptors.Result, error) {
	return nil, errors.New("connection refused")
}

// policy is what the fixture's policy says about this host's interceptors.
func (h *host) policy(f *conformance.Fixture) (*chain.HostPolicy, error) {
	p := &chain.HostPolicy{MaxPayload: f.Policy.MaxPayload, Overrides: map[string]chain.Override{}, Required: map[string]interceptors.Type{}}
	for name, o := range f.Policy.Overrides {
		if f.HostOf(name) != h.name {
			continue
		}
		override, err := readOverride(&o)
		if err != nil {
			return nil, fmt.Errorf("override of %s: %w", name, err)
		}
		p.Overrides[name] = override
	}
	for name, typ := range f.Policy.Required {
		if f.HostOf(name) == h.name {
			p.Required[name] = interceptors.Type(typ)
		}
	}
	return p, nil
}

func readOverride(o *conformance.Override) (chain.Override, error) {
	out := chain.Override{Mode: interceptors.Mode(o.Mode), FailOpen: o.FailOpen, TimeoutMs: o.TimeoutMs,
		Config: o.Config, Disabled: o.Disabled}
	for _, h := range o.Hooks {
		out.Hooks = append(out.Hooks, interceptors.Hook{Events: h.Events, Phase: interceptors.Phase(h.Phase)})
	}
	if o.PriorityHint != nil {
		out.Priority = new(interceptors.Priority)
		if err := json.Unmarshal(o.PriorityHint, out.Priority); err != nil {
			return out, err
		}
	}
	return out, nil
}

// Calls implements conformance.Counter.
func (s *session) Calls() map[string][]json.RawMessage { return s.log.Calls() }

// Alerts implements conformance.Alerter.
func (s *session) Alerts(ctx context.Context, texts []string) string {
	return s.alerts.Await(ctx, texts)
}

func (s *session) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	errs := []error{s.chain.Drain(ctx), s.log.Idle(ctx)}
	for _, h := range s.hosts {
		errs = append(errs, h.close())
	}
	return errors.Join(errs...)
}
