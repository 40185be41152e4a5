package effectinterceptor

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/undolog/undolog/effect"
)

// scope is a tenant's server.
type scope struct{ tenant, server string }

// SetPolicy puts another policy in force, nil for none: a call that begins later is judged by it whole. Then it
// ends the pending requests that it denies, of the servers whose calls this process has put to people; others
// end when their call comes.
func (i *Interceptors) SetPolicy(ctx context.Context, p *effect.Policy) {
	i.policy.Store(p)
	if p == nil {
		return
	}
	byTenant := map[string]map[string]bool{}
	i.asked.Range(func(key, _ any) bool {
		s := key.(scope)
		if byTenant[s.tenant] == nil {
			byTenant[s.tenant] = map[string]bool{}
		}
		byTenant[s.tenant][s.server] = true
		return true
	})
	for tenant, servers := range byTenant {
		if err := i.voidDenied(ctx, p, tenant, servers); err != nil {
			i.opts.Logger.WarnContext(ctx, "requests that the policy denies were not looked for", slog.Any("error", err))
		}
	}
}

// pendingMost is how many of a tenant's pending requests are looked at, the newest first.
const pendingMost = 1000

func (i *Interceptors) voidDenied(ctx context.Context, p *effect.Policy, tenant string, servers map[string]bool) error {
	pending, err := i.log.Awaiting(ctx, tenant, pendingMost)
	if err != nil {
		return fmt.Errorf("list requests of %s: %w", tenant, err)
	}
	for _, r := range pending {
		if !servers[r.Server] {
			continue
		}
		c, err := i.contractOf(ctx, p, callOf(r))
		if err != nil || c.Deny == "" { // what cannot be judged is refused when it comes
			continue
		}
		i.void(ctx, r, c.Deny)
	}
	return nil
}

// callOf is the recorded call, as a policy judges it.
func callOf(r *effect.Record) *effect.Call {
	return &effect.Call{
		Tenant: r.Tenant, Principal: r.Principal, Server: r.Server, Tool: r.Tool, Arguments: r.Executed(),
		Key: r.Key, Run: r.Run, Occurrence: r.Occurrence,
	}
}
