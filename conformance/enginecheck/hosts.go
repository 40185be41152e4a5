package enginecheck

import (
	"context"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/behavior"
)

// startHosts serves the fixture's hosts, each at a URL of its own; at that of one which is down, nobody
// answers.
func (s *session) startHosts(f *conformance.Fixture) error {
	s.urls, s.hosts = map[string]string{}, map[string]*behavior.Host{}
	for _, name := range f.HostNames() {
		host, err := behavior.NewHost(&behavior.HostParams{Fixture: f, Name: name, Log: &s.log, Gate: s.counts})
		if err != nil {
			return err
		}
		handler, err := host.Handler()
		if err != nil {
			return err
		}
		s.hosts[name] = host
		if slices.Contains(f.Host.Down, name) {
			a, err := s.takeAddress()
			if err != nil {
				return err
			}
			s.urls[name] = "http://" + a.String()
			continue
		}
		server := httptest.NewServer(handler)
		s.urls[name] = server.URL
		s.servers = append(s.servers, server)
	}
	return nil
}

// ttlMargin is how much longer than the hosts said an engine may believe a list: clocks and timers are coarse.
const ttlMargin = 300 * time.Millisecond

// Change implements conformance.Changer: the first host gets more interceptors, and the time passes for which
// the hosts have said that their lists hold.
func (s *session) Change(ctx context.Context, more []conformance.Interceptor) error {
	host := s.hosts[s.fixture.HostNames()[0]]
	for i := range more {
		if err := host.Add(&more[i]); err != nil {
			return err
		}
	}
	timer := time.NewTimer(time.Duration(s.fixture.Host.TTLMs)*time.Millisecond + ttlMargin)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
