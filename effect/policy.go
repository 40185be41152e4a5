package effect

import (
	"sync"
	"time"
)

// Policy is what a policy file says. It is safe for concurrent use; a changed file is another Policy.
type Policy struct {
	// Digest is of the canonical form of the file: comments and spelling do not count.
	Digest string

	// Retention is how long the log keeps the arguments and answers of what is settled. Zero: for ever, as in
	// shadow.
	Retention time.Duration

	name    string
	servers []serverRule
	tools   []toolRule
	shadow  bool

	mu         sync.Mutex
	candidates map[toolKey]*candidates
}

// InShadow returns the policy with every contract under Contract.Shadow: it holds nothing back.
func (p *Policy) InShadow() *Policy {
	return &Policy{Digest: p.Digest, name: p.name, servers: p.servers, tools: p.tools, shadow: true}
}

// For returns what holds for a call. The first rule that names its tool and whose condition holds decides;
// what the rule does not say is the default of its tier, and a call that no rule takes is irreversible. The
// tier of a rule that has none, and of a call without a rule, is that of call.Annotations when the policy
// trusts the server; trusted says so for the former when the policy does not name the server. The Contract is
// shared: it MUST NOT be changed.
//
// A condition that has no value for the call leaves it open what holds: then nothing may be dispatched, and
// the error is an *InvalidError that names the rule. In shadow it is a contract that denies, and is not
// followed.
func (p *Policy) For(call *Call, trusted bool) (*Contract, error) {
	c, err := p.candidatesFor(call, trusted).choose(call)
	if err == nil || !p.shadow {
		return c, err
	}
	return p.undecided(err), nil
}

// undecided denies, in shadow, what would have been refused.
func (p *Policy) undecided(why error) *Contract {
	c := policyContract(TierIrreversible)
	c.Approve, c.Deny, c.Shadow, c.Source = false, why.Error(), true, "policy "+p.name
	return c
}

// Tool names come from the agent, so that the cache must not grow with them.
const maxCached = 4096

type toolKey struct {
	server, tool       string
	ann                Annotations
	annotated, trusted bool
}

func (p *Policy) candidatesFor(call *Call, trusted bool) *candidates {
	key := toolKey{server: call.Server, tool: call.Tool, annotated: call.Annotations != nil, trusted: trusted}
	if key.annotated {
		key.ann = *call.Annotations
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := p.candidates[key]; found != nil {
		return found
	}
	if p.candidates == nil || len(p.candidates) >= maxCached {
		p.candidates = map[toolKey]*candidates{}
	}
	found := p.findCandidates(call, trusted)
	p.candidates[key] = found
	return found
}

func (p *Policy) trust(server string) (named, trust bool) {
	for _, s := range p.servers {
		if matchGlob(s.Server, server) {
			return true, s.Trust
		}
	}
	return false, false
}

// policyContract returns the defaults of a tier under a policy file: what cannot be undone asks.
func policyContract(tier Tier) *Contract {
	c := tierContract(tier)
	c.Schemas = true
	c.Asking = Asking{Quorum: 1, DecideFor: defaultDecide, UseFor: defaultUse}
	switch tier {
	case TierCompensable:
		c.Repeat = RepeatReplay
	case TierIrreversible:
		c.Repeat = RepeatAsk
		c.Approve = true
	}
	return c
}

const (
	defaultDecide = 24 * time.Hour
	defaultUse    = time.Hour
)
