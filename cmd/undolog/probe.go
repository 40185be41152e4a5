package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/gateway"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/reaper"
)

// probeServer is a server that probes ask on a connection of their own, which is open while there is something
// to ask and for a while after.
type probeServer struct {
	opts gateway.AskerOptions
	idle time.Duration

	mu    sync.Mutex
	asker *gateway.Asker // nil: none is open
	users int
	timer *time.Timer
}

// probeIdle is how long the connection is kept that nobody asks on.
const probeIdle = 30 * time.Second

func newProbeServer(opts gateway.AskerOptions) *probeServer {
	opts.Version = programVersion()
	return &probeServer{opts: opts, idle: probeIdle}
}

// ask is an interceptors.Aside.
func (s *probeServer) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	defer s.release()
	return s.acquire().Ask(ctx, method, params)
}

func (s *probeServer) name(ctx context.Context) (string, error) {
	if s.opts.Name != "" {
		return s.opts.Name, nil
	}
	defer s.release()
	return s.acquire().Server(ctx)
}

func (s *probeServer) acquire() *gateway.Asker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.users++; s.asker == nil {
		s.asker = gateway.NewAsker(&s.opts)
	}
	return s.asker
}

func (s *probeServer) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		s.timer = time.AfterFunc(s.idle, s.close)
	}
}

// close ends the connection unless somebody asks on it.
func (s *probeServer) close() {
	s.mu.Lock()
	asker := s.asker
	if s.users > 0 {
		asker = nil
	} else {
		s.asker = nil
	}
	s.mu.Unlock()
	if asker != nil {
		asker.Close()
	}
}

// probeServers are those of --probe-server, by name.
type probeServers map[string]*probeServer

// parseProbeServers reads NAME=URL and NAME=COMMAND.
func parseProbeServers(specs []string, logger *slog.Logger) (probeServers, error) {
	servers := probeServers{}
	for _, spec := range specs {
		name, target, ok := strings.Cut(spec, "=")
		if words := strings.Fields(target); !ok || name == "" || len(words) == 0 {
			return nil, usagef("--probe-server %s: want NAME=URL or NAME=COMMAND", spec)
		}
		up := &upstream{url: target, logger: logger}
		if !isEndpoint(target) {
			up = &upstream{command: strings.Fields(target), logger: logger}
		}
		servers[name] = newProbeServer(gateway.AskerOptions{
			Dial: up.dial, Target: up.target(), Label: up.label(), Name: name, Logger: logger,
		})
	}
	return servers, nil
}

func (s probeServers) asides() map[string]interceptors.Aside {
	asides := make(map[string]interceptors.Aside, len(s))
	for name, server := range s {
		asides[name] = server.ask
	}
	return asides
}

func (s probeServers) close() {
	for _, server := range s {
		server.close()
	}
}

// prober looks up what is in doubt, for the reaper.
type prober struct {
	ei     *effectinterceptor.Interceptors
	others probeServers
	own    *probeServer // the gateway's upstream; nil: there is none
}

// probe is a reaper.Options.Probe. What another process's server has to tell is left to that process.
func (p *prober) probe(ctx context.Context, r *effect.Record) (settled bool, err error) {
	server, err := p.ei.ProbedOn(ctx, r)
	if errors.Is(err, effectinterceptor.ErrNoProbe) {
		return false, reaper.ErrNoProbe
	}
	if err != nil {
		return false, err
	}
	var target interceptors.Aside
	if p.others[server] == nil {
		if p.own == nil || server != r.Server {
			return false, reaper.ErrNoProbe
		}
		name, err := p.own.name(ctx)
		if err != nil {
			return false, err
		}
		if name != server {
			return false, reaper.ErrNoProbe
		}
		target = p.own.ask
	}
	said, err := p.ei.Probe(ctx, r, target)
	if err != nil {
		return false, err
	}
	return said.Settled, nil
}

func (p *prober) close() {
	p.others.close()
	if p.own != nil {
		p.own.close()
	}
}
