package enginecheck

import (
	"net/http/httptest"
	"slices"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/behavior"
)

// startHosts serves the fixture's hosts, each at a URL of its own; at that of one which is down, nobody
// answers.
func (s *session) startHosts(f *conformance.Fixture) error {
	s.urls = map[string]string{}
	for _, name := range f.HostNames() {
		host, err := behavior.NewHost(f, name, &s.log, s.counts)
		if err != nil {
			return err
		}
		handler, err := host.Handler()
		if err != nil {
			return err
		}
		server := httptest.NewServer(handler)
		s.urls[name] = server.URL
		if slices.Contains(f.Host.Down, name) {
			server.Close()
			continue
		}
		s.servers = append(s.servers, server)
	}
	return nil
}
