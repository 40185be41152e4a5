package effect

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// candidates are the rules that may decide on the calls of one tool, resolved, in the order of the file. The
// last has no condition: the first rule without one, else what holds where there is no rule.
type candidates struct {
	file  string
	ann   *Annotations // as conditions see them: nil where nobody vouches for the server
	reads bool         // some rule looks at the call
	list  []candidate
}

type candidate struct {
	rule            *toolRule // nil: no rule names the tool
	asking, letting *Contract // with and without approval; the same where no condition decides on it
}

func (p *Policy) findCandidates(call *Call, trusted bool) *candidates {
	c := &candidates{file: p.name, ann: p.believed(call, trusted)}
	for i := range p.tools {
		rule := &p.tools[i]
		if !rule.matches(call.Server, call.Tool) {
			continue
		}
		c.reads = c.reads || rule.when != nil || rule.asks != nil
		c.list = append(c.list, p.resolve(rule, c.ann))
		if rule.when == nil {
			return c
		}
	}
	c.list = append(c.list, p.unruled(p.believed(call, false)))
	return c
}

// believed is what is known of the call's tool and believed; nil where nobody vouches for its server.
func (p *Policy) believed(call *Call, trusted bool) *Annotations {
	if named, trust := p.trust(call.Server); named {
		trusted = trust
	}
	if !trusted {
		return nil
	}
	return call.Annotations
}

func (p *Policy) resolve(rule *toolRule, ann *Annotations) candidate {
	contract := rule.contract(p.name, ann)
	contract.Shadow = p.shadow
	if rule.asks == nil {
		return candidate{rule, contract, contract}
	}
	asking, letting := *contract, *contract
	asking.Approve, letting.Approve = true, false
	return candidate{rule, &asking, &letting}
}

// unruled is what holds for a call that no rule takes.
func (p *Policy) unruled(ann *Annotations) candidate {
	tier, source := annotatedTier(ann, true)
	c := policyContract(tier)
	c.Source = "policy " + p.name + " (no rule), " + source
	c.Shadow = p.shadow
	return candidate{nil, c, c}
}

// choose returns the contract of the first rule that takes the call.
func (c *candidates) choose(call *Call) (*Contract, error) {
	if !c.reads {
		return c.list[0].letting, nil
	}
	v, err := newViewOf(call, c.ann)
	if err != nil {
		return nil, &InvalidError{Pointer: "/arguments", Reason: "cannot be read: " + err.Error()}
	}
	for i := range c.list {
		takes, err := c.list[i].takes(v)
		if err != nil {
			return nil, c.undecidable(c.list[i].rule, "when", err)
		}
		if takes {
			return c.contract(&c.list[i], v)
		}
	}
	panic("effect: no candidate without a condition")
}

func (c *candidate) takes(v *view) (bool, error) {
	if c.rule == nil || c.rule.when == nil {
		return true, nil
	}
	return c.rule.when.holds(v)
}

func (c *candidates) contract(of *candidate, v *view) (*Contract, error) {
	if of.asking == of.letting {
		return of.letting, nil
	}
	asks, err := of.rule.asks.holds(v)
	switch {
	case err != nil:
		return nil, c.undecidable(of.rule, "approve", err)
	case asks:
		return of.asking, nil
	}
	return of.letting, nil
}

// undecidable refuses a call of which a rule's expression says nothing. The text is for the agent, who may
// have left something out, and for whoever keeps the policy.
func (c *candidates) undecidable(rule *toolRule, field string, err error) error {
	return &InvalidError{Pointer: "/arguments", Reason: fmt.Sprintf(
		"cannot be judged: %s of policy %s:%d has no value for them (%s)", field, c.file, rule.line, whyNoValue(err))}
}

var noSuchKey = regexp.MustCompile(`^no such key: (.+)$`)

// whyNoValue is the cause of an evaluation error, and what to do about it.
func whyNoValue(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	text := shortened(err.Error())
	switch missing := noSuchKey.FindStringSubmatch(text); {
	case missing != nil:
		return fmt.Sprintf("%s; where it is optional, the policy has to ask has(args.%s) first", text, missing[1])
	case strings.HasPrefix(text, "no such overload"), strings.HasPrefix(text, "no matching overload"):
		return text + ": a value has another type than the policy expects"
	}
	return text
}

// shortened bounds a text that may quote what a call holds.
func shortened(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
