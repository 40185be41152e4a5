package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/reaper"
	"github.com/undolog/undolog/store"
)

// reapProber is what the policy of "undolog reap" wants: it looks up what is in doubt, and remembers what it could not
// look up and why.
type reapProber struct {
	ei      *effectinterceptor.Interceptors // nil: there is no policy
	probes  *prober
	policy  *effect.Policy // nil: there is none
	noProbe int            // effects in doubt for which the policy has no probe, or there is no policy
	unasked map[string]int // effects in doubt by the server that was not named
}

func newReapProber(cmd *cobra.Command, log *store.Log, policyFile string, servers []string) (*reapProber, error) {
	p := &reapProber{unasked: map[string]int{}, probes: &prober{}}
	policy, err := loadPolicy(policyFile)
	if err != nil || policy == nil {
		return p, err
	}
	logger, err := newLogger(cmd)
	if err != nil {
		return nil, err
	}
	others, err := parseProbeServers(servers, logger)
	if err != nil {
		return nil, err
	}
	p.policy = policy
	p.ei = effectinterceptor.New(log, &effectinterceptor.Options{
		Policy: policy, Tenant: tenantFlag(cmd), Logger: logger, ProbeServers: others.asides(),
	})
	p.probes = &prober{ei: p.ei, others: others}
	return p, nil
}

// retention is how long payloads are kept by the policy; 0 is for ever.
func (p *reapProber) retention() time.Duration {
	if p.policy == nil {
		return 0
	}
	return p.policy.Retention
}

// probe is a reaper.Options.Probe.
func (p *reapProber) probe(ctx context.Context, r *effect.Record) (bool, error) {
	if p.ei == nil {
		p.noProbe++
		return false, reaper.ErrNoProbe
	}
	server, err := p.ei.ProbedOn(ctx, r)
	switch {
	case errors.Is(err, effectinterceptor.ErrNoProbe):
		p.noProbe++
		return false, reaper.ErrNoProbe
	case err == nil && p.probes.others[server] == nil:
		p.unasked[server]++
		return false, reaper.ErrNoProbe
	}
	return p.probes.probe(ctx, r)
}

// tell says what stays in doubt because nothing could be asked.
func (p *reapProber) tell(w io.Writer) {
	for _, server := range slices.Sorted(maps.Keys(p.unasked)) {
		fmt.Fprintf(w, "undolog: %d in doubt not looked up: their probe asks %s; name it with --probe-server %s=URL or =COMMAND\n",
			p.unasked[server], printable(server), printable(server))
	}
	switch {
	case p.noProbe > 0 && p.ei == nil:
		fmt.Fprintf(w, "undolog: %d in doubt not looked up: probes are the policy's, give --policy FILE; or see \"undolog pending\"\n", p.noProbe)
	case p.noProbe > 0:
		fmt.Fprintf(w, "undolog: %d in doubt that the policy has no probe for: see \"undolog pending\"\n", p.noProbe)
	}
}
