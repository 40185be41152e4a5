package effect

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/undolog/undolog/internal/yamlfile"
)

// ParsePolicy reads a policy file. name is shown in errors and in Contract.Source. The error joins one
// *PolicyError for everything that is wrong, in the order of the file.
func ParsePolicy(name string, data []byte) (*Policy, error) {
	f, err := yamlfile.Read(name, "policy", data)
	if err != nil {
		return nil, err
	}
	if err := compiledSchema().Check(f); err != nil {
		return nil, err
	}
	var p policyFile
	if err := json.Unmarshal(f.JSON, &p); err != nil {
		return nil, f.Errorf(yamlfile.Place{}, "%v", err)
	}
	if err := checkRules(f, p.Tools); err != nil {
		return nil, err
	}
	sum, err := DigestOf(f.JSON)
	if err != nil {
		return nil, f.Errorf(yamlfile.Place{}, "%v", err)
	}
	return &Policy{Digest: sum.String(), name: filepath.Base(name), servers: p.Servers, tools: p.Tools}, nil
}

// checkRules completes the rules with what the schema cannot read and returns what contradicts itself.
func checkRules(f *yamlfile.File, rules []toolRule) error {
	var found []error
	for i := range rules {
		c := ruleCheck{file: f, rule: &rules[i], location: []string{"tools", strconv.Itoa(i)}}
		rules[i].line = f.Value(c.location...).Line
		c.durations()
		c.contradictions()
		found = append(found, c.found...)
	}
	return yamlfile.InOrder(found)
}

// ruleCheck gathers what is wrong with one rule.
type ruleCheck struct {
	file     *yamlfile.File
	rule     *toolRule
	location []string
	found    []error
}

func (c *ruleCheck) has(field string) bool {
	return c.file.Has(append(slices.Clone(c.location), field)...)
}

func (c *ruleCheck) refuse(field, format string, args ...any) {
	where := c.file.Key(append(slices.Clone(c.location), field)...)
	c.found = append(c.found, c.file.Errorf(where, format, args...))
}

func (c *ruleCheck) durations() {
	c.rule.windowed = c.duration("window", c.rule.Window)
	c.rule.timed = c.duration("timeout", c.rule.Timeout)
	c.rule.leased = c.duration("lease", c.rule.Lease)
	if d := c.rule.timed; d != nil && *d <= 0 {
		c.refuse("timeout", "timeout must be longer than nothing")
	}
	if d := c.rule.leased; d != nil && *d <= 0 {
		c.refuse("lease", "lease must be longer than nothing")
	}
}

func (c *ruleCheck) duration(field, text string) *time.Duration {
	if text == "" {
		return nil
	}
	d, err := parseDuration(text)
	if err != nil {
		c.refuse(field, "%s: %v", field, err)
		return nil
	}
	return &d
}

// meaningless are the fields that do nothing for a tool that only reads: such a call is never claimed.
var meaningless = []string{
	"identity", "volatile", "key", "window", "repeat", "lookalike", "share", "annotate", "lease",
}

func (c *ruleCheck) contradictions() {
	r := c.rule
	if len(r.Identity) > 0 && len(r.Volatile) > 0 {
		c.refuse("volatile", "identity and volatile exclude each other: keep one")
	}
	if slices.Contains(r.Identity, r.Key) {
		c.refuse("key", "%s carries the key and cannot be identity too: take it out of identity", r.Key)
	}
	if slices.Contains(r.Volatile, r.Key) {
		c.refuse("key", "%s carries the key and never counts as identity: take it out of volatile", r.Key)
	}
	switch r.Tier {
	case TierRead:
		for _, field := range meaningless {
			if c.has(field) {
				c.refuse(field, "%s does nothing for tier read, whose calls always run: take it away or give another tier", field)
			}
		}
		if r.Approve == "always" {
			c.refuse("approve", "a call of tier read is never held: take approve away or give another tier")
		}
	case TierIdempotent:
		if r.Repeat == RepeatReplay || r.Repeat == RepeatAsk {
			c.refuse("repeat", "repeat: %s contradicts tier idempotent, which may run again freely: take it away or give another tier", r.Repeat)
		}
	}
}

// Warnings returns what is legal in the policy and probably not meant, each with its line.
func (p *Policy) Warnings() []string {
	var found []string
	for i := range p.tools {
		r := &p.tools[i]
		warn := func(text string) { found = append(found, fmt.Sprintf("%s:%d: %s", p.name, r.line, text)) }
		if r.Tier == TierCompensable {
			warn("compensable counts as irreversible: this version cannot name a compensation")
		}
		if r.Tier != "" && p.refuses(r) {
			warn("calls of these tools are refused, because approvals cannot be given yet: set \"approve: never\" to let them run")
		}
		if earlier := p.shadow(i); earlier > 0 {
			warn(fmt.Sprintf("never used: the rule in line %d names the same tools first", earlier))
		}
	}
	return found
}

func (p *Policy) refuses(r *toolRule) bool { return r.contract(p.name, nil, false).Approve }

// shadow returns the line of an earlier rule that takes every call of rule i; zero when there is none.
func (p *Policy) shadow(i int) int {
	r := &p.tools[i]
	for _, earlier := range p.tools[:i] {
		server := earlier.Server == "" || earlier.Server == "*" || earlier.Server == r.Server
		covered := func(glob string) bool {
			return slices.Contains(earlier.Tool, "*") || slices.Contains(earlier.Tool, glob)
		}
		if server && !slices.ContainsFunc(r.Tool, func(glob string) bool { return !covered(glob) }) {
			return earlier.line
		}
	}
	return 0
}
