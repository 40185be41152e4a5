package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/undolog/undolog/conformance"
)

// Our own gateway as an engine under test: what a fixture says about hosts and policy, as a chain file.

type chainFileJSON struct {
	Version int             `json:"version"`
	Hosts   []chainHostJSON `json:"hosts"`
}

type chainHostJSON struct {
	Name         string                          `json:"name"`
	URL          string                          `json:"url"`
	Side         string                          `json:"side"`
	Strict       bool                            `json:"strict,omitempty"`
	MaxPayload   int64                           `json:"max_payload,omitempty"`
	Interceptors map[string]chainInterceptorJSON `json:"interceptors,omitempty"`
}

type chainInterceptorJSON struct {
	Required string             `json:"required,omitempty"`
	Disabled bool               `json:"disabled,omitempty"`
	Mode     string             `json:"mode,omitempty"`
	FailOpen *bool              `json:"fail_open,omitempty"`
	Priority json.RawMessage    `json:"priority,omitempty"`
	Timeout  string             `json:"timeout,omitempty"`
	Hooks    []conformance.Hook `json:"hooks,omitempty"`
	Config   json.RawMessage    `json:"config,omitempty"`
}

// chainFileFor writes the chain file that puts a fixture before the gateway. A gateway is a server toward
// the agent and a client toward the upstream.
func chainFileFor(posture conformance.Posture) func(*conformance.Fixture, map[string]string) (string, error) {
	side := "upstream"
	if posture == conformance.PostureServer {
		side = "agent"
	}
	return func(f *conformance.Fixture, urls map[string]string) (string, error) {
		if f.Policy.DeadlineMs > 0 {
			return "", fmt.Errorf("%w: a chain file has no deadline for a phase", conformance.ErrUnsupported)
		}
		file := chainFileJSON{Version: 1}
		for _, name := range f.HostNames() {
			file.Hosts = append(file.Hosts, chainHostJSON{
				Name: hostName(name), URL: urls[name], Side: side, Strict: f.Policy.Strict, MaxPayload: f.Policy.MaxPayload,
				Interceptors: interceptorsOf(f, name),
			})
		}
		raw, err := json.Marshal(file)
		return string(raw), err
	}
}

// hostName is what fixtures call a host in what the operator is told.
func hostName(name string) string { return "host-" + cmp.Or(name, "main") }

// gatewayArguments are what the gateway takes of a fixture's policy on its command line.
func gatewayArguments(f *conformance.Fixture) []string {
	if f.Policy.ScrubErrors {
		return []string{"--scrub-errors"}
	}
	return nil
}

// interceptorsOf is the fixture's policy about the interceptors of one host.
func interceptorsOf(f *conformance.Fixture, host string) map[string]chainInterceptorJSON {
	all := map[string]chainInterceptorJSON{}
	for name, o := range f.Policy.Overrides {
		if f.HostOf(name) != host {
			continue
		}
		i := chainInterceptorJSON{Disabled: o.Disabled, Mode: o.Mode, FailOpen: o.FailOpen, Priority: o.PriorityHint, Hooks: o.Hooks, Config: o.Config}
		if o.TimeoutMs > 0 {
			i.Timeout = (time.Duration(o.TimeoutMs) * time.Millisecond).String()
		}
		all[name] = i
	}
	for name, typ := range f.Policy.Required {
		if f.HostOf(name) == host {
			i := all[name]
			i.Required = typ
			all[name] = i
		}
	}
	return all
}
