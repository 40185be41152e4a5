package effect

import "sync"

// Policy is what a policy file says. It is safe for concurrent use; a changed file is another Policy.
type Policy struct {
	// Digest is of the canonical form of the file: comments and spelling do not count.
	Digest string

	name    string
	servers []serverRule
	tools   []toolRule

	mu        sync.Mutex
	contracts map[contractKey]*Contract
}

// Contract returns what holds for a tool. The first rule that names it decides; what the rule does not
// say is the default of its tier, and a tool that no rule names is irreversible. The tier of a rule that
// has none, and of a tool without a rule, is that of the annotations when the policy trusts the server;
// trusted says so for the former when the policy does not name the server. ann may be nil. The Contract is
// shared: it MUST NOT be changed.
func (p *Policy) Contract(server, tool string, ann *Annotations, trusted bool) *Contract {
	key := contractKey{server: server, tool: tool, annotated: ann != nil, trusted: trusted}
	if ann != nil {
		key.ann = *ann
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.contracts[key]; c != nil {
		return c
	}
	if p.contracts == nil || len(p.contracts) >= maxCached {
		p.contracts = map[contractKey]*Contract{}
	}
	c := p.resolve(server, tool, ann, trusted)
	p.contracts[key] = c
	return c
}

// Tool names come from the agent, so that the cache must not grow with them.
const maxCached = 4096

type contractKey struct {
	server, tool       string
	ann                Annotations
	annotated, trusted bool
}

func (p *Policy) resolve(server, tool string, ann *Annotations, trusted bool) *Contract {
	named, trust := p.trust(server)
	rule := p.rule(server, tool)
	if rule == nil {
		tier, source := annotatedTier(ann, named && trust)
		c := policyContract(tier)
		c.Source = "policy " + p.name + " (no rule), " + source
		return c
	}
	if named {
		trusted = trust
	}
	return rule.contract(p.name, ann, trusted)
}

func (p *Policy) trust(server string) (named, trust bool) {
	for _, s := range p.servers {
		if matchGlob(s.Server, server) {
			return true, s.Trust
		}
	}
	return false, false
}

func (p *Policy) rule(server, tool string) *toolRule {
	for i := range p.tools {
		if p.tools[i].matches(server, tool) {
			return &p.tools[i]
		}
	}
	return nil
}

// policyContract returns the defaults of a tier under a policy file: what cannot be undone asks.
func policyContract(tier Tier) *Contract {
	c := tierContract(tier)
	switch tier {
	case TierCompensable:
		c.Repeat = RepeatReplay
	case TierIrreversible:
		c.Repeat = RepeatAsk
		c.Approve = true
	}
	return c
}
