package effect

import "fmt"

// Explanation says how a policy decides on a call.
type Explanation struct {
	Rules    []Examined // up to the one that decides, in the order of the file
	Contract *Contract  // nil: the call cannot be judged, and is refused
	Refusal  string     // why it is refused, where there is no contract
}

// Examined is one rule that was looked at for a call.
type Examined struct {
	Line  int
	Takes bool   // it decides
	Why   string // why, or why not
}

// Explain decides as For does, and says why.
func (p *Policy) Explain(call *Call, trusted bool) *Explanation {
	e := &Explanation{}
	c, err := p.For(call, trusted)
	if err != nil {
		e.Refusal = err.Error()
	}
	e.Contract = c
	v, err := newViewOf(call, p.believed(call, trusted))
	if err != nil {
		return e
	}
	for i := range p.tools {
		x := p.tools[i].examine(v)
		e.Rules = append(e.Rules, x.Examined)
		if x.Takes || x.undecided {
			break
		}
	}
	return e
}

// examined is an Examined, and whether it leaves open which rule decides.
type examined struct {
	Examined
	undecided bool
}

func (r *toolRule) examine(v *view) examined {
	x := examined{Examined: Examined{Line: r.line}}
	switch {
	case !r.matchesServer(v.call.Server):
		x.Why = fmt.Sprintf("server %q is not %s", v.call.Server, r.Server)
	case !r.matchesTool(v.call.Tool):
		x.Why = fmt.Sprintf("tool %q is not %s", v.call.Tool, r.Tool)
	case r.when == nil:
		x.Takes, x.Why = true, "it names the tool"
	default:
		x.Why, x.Takes, x.undecided = r.when.examine("when", v)
	}
	if x.Takes && r.asks != nil {
		why, _, undecided := r.asks.examine("approve", v)
		x.Why, x.undecided = x.Why+", and "+why, undecided
	}
	return x
}

// examine says what the condition of a field is of a call.
func (c *Condition) examine(field string, v *view) (why string, holds, undecided bool) {
	holds, err := c.holds(v)
	if err != nil {
		return fmt.Sprintf("%s %s has no value (%s)", field, c.text, whyNoValue(err)), false, true
	}
	return fmt.Sprintf("%s %s is %t", field, c.text, holds), holds, false
}
