package effect

import (
	"fmt"
	"slices"
)

// Warnings returns what is legal in the policy and probably not meant, each with its line.
func (p *Policy) Warnings() []string {
	var found []string
	for i := range p.tools {
		r := &p.tools[i]
		for _, text := range []string{r.warnCompensable(), r.warnUnasked(p.name), p.warnProbe(r), p.warnUnused(i)} {
			if text != "" {
				found = append(found, fmt.Sprintf("%s:%d: %s", p.name, r.line, text))
			}
		}
	}
	return found
}

func (r *toolRule) warnCompensable() string {
	if r.Tier != TierCompensable {
		return ""
	}
	return "compensable counts as irreversible: this version cannot name a compensation"
}

// warnUnasked finds approvers of calls that nobody is asked about.
func (r *toolRule) warnUnasked(file string) string {
	if r.Quorum == 0 && len(r.Approvers) == 0 && r.decided == nil && r.usage == nil && !r.Elicitation || r.Tier == "" {
		return ""
	}
	c := r.contract(file, nil)
	if c.Approve || r.asks != nil || !c.Definition.IsZero() || c.Repeat == RepeatAsk || c.RepeatError == RepeatAsk || c.Lookalike == RepeatAsk {
		return ""
	}
	return "nobody is asked about calls of these tools, so that what the rule says about approvals does nothing"
}

// warnProbe finds probes whose tool does more than read: such a probe is not made.
func (p *Policy) warnProbe(r *toolRule) string {
	if r.probe == nil {
		return ""
	}
	server := r.Server
	if r.probe.Server != "" {
		server = r.probe.Server
	}
	for i := range p.tools {
		of := &p.tools[i]
		if !of.matchesServer(server) || !of.matchesTool(r.probe.Tool) {
			continue
		}
		if of.Tier == TierRead || of.Tier == "" {
			return ""
		}
		return fmt.Sprintf("the probe is not made: its tool %s is %s by the rule in line %d, and a probe only reads", r.probe.Tool, of.Tier, of.line)
	}
	return ""
}

func (p *Policy) warnUnused(i int) string {
	if earlier := p.overruled(i); earlier > 0 {
		return fmt.Sprintf("never used: the rule in line %d names the same tools first", earlier)
	}
	return ""
}

// overruled returns the line of an earlier rule that takes every call of rule i; zero when there is none.
func (p *Policy) overruled(i int) int {
	r := &p.tools[i]
	for _, earlier := range p.tools[:i] {
		server := earlier.Server == "" || earlier.Server == "*" || earlier.Server == r.Server
		covered := func(glob string) bool {
			return slices.Contains(earlier.Tool, "*") || slices.Contains(earlier.Tool, glob)
		}
		if server && earlier.When == "" && !slices.ContainsFunc(r.Tool, func(glob string) bool { return !covered(glob) }) {
			return earlier.line
		}
	}
	return 0
}
