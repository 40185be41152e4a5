package main

import "github.com/undolog/undolog/effect"

// explanationJSON is an explanation as --json prints it.
type explanationJSON struct {
	Policy    string         `json:"policy"` // digest
	DecidedBy string         `json:"decidedBy,omitempty"`
	Refused   string         `json:"refused,omitempty"`
	Rules     []examinedJSON `json:"rules"`
	Contract  *contractJSON  `json:"contract,omitempty"`
}

type examinedJSON struct {
	Line  int    `json:"line"`
	Takes bool   `json:"takes"`
	Why   string `json:"why"`
}

type contractJSON struct {
	Tier         effect.Tier   `json:"tier"`
	Deny         string        `json:"deny,omitempty"`
	Approve      bool          `json:"approve"`
	Quorum       int           `json:"quorum"`
	Approvers    []string      `json:"approvers,omitempty"`
	DecideMs     int64         `json:"decideWithinMs"`
	UseMs        int64         `json:"useWithinMs"`
	Elicitation  bool          `json:"elicitation"`
	Definition   string        `json:"definition,omitempty"`
	Limits       []limitJSON   `json:"limits,omitempty"`
	Identity     []string      `json:"identity,omitempty"`
	Volatile     []string      `json:"volatile,omitempty"`
	WindowMs     int64         `json:"windowMs"`
	Repeat       effect.Repeat `json:"repeat"`
	RepeatError  effect.Repeat `json:"repeatError"`
	OnToolError  effect.State  `json:"onToolError"`
	TimeoutMs    int64         `json:"timeoutMs"`
	Schemas      bool          `json:"schemas"`
	Redact       []string      `json:"redact,omitempty"`
	RedactResult []string      `json:"redactResult,omitempty"`
	Inject       string        `json:"inject,omitempty"`
	Probe        string        `json:"probe,omitempty"` // its tool
}

type limitJSON struct {
	Name     string          `json:"name"`
	Per      effect.LimitPer `json:"per"`
	Max      float64         `json:"max"`
	WithinMs int64           `json:"withinMs,omitempty"`
	Units    string          `json:"units,omitempty"`
}

func explanationToJSON(p *effect.Policy, x *effect.Explanation) *explanationJSON {
	out := &explanationJSON{Policy: p.Digest, Refused: x.Refusal, Rules: []examinedJSON{}}
	for _, r := range x.Rules {
		out.Rules = append(out.Rules, examinedJSON(r))
	}
	if c := x.Contract; c != nil {
		out.DecidedBy, out.Contract = c.Source, contractToJSON(c)
	}
	return out
}

func contractToJSON(c *effect.Contract) *contractJSON {
	out := &contractJSON{
		Tier: c.Tier, Deny: c.Deny, Approve: c.Approve, Quorum: max(c.Asking.Quorum, 1), Approvers: c.Asking.Approvers,
		DecideMs: c.Asking.DecideFor.Milliseconds(), UseMs: c.Asking.UseFor.Milliseconds(), Elicitation: c.Asking.Host,
		Identity: c.Identity, Volatile: c.Volatile, WindowMs: c.Window.Milliseconds(),
		Repeat: c.Repeat, RepeatError: c.RepeatError, OnToolError: c.OnToolError, TimeoutMs: c.Timeout.Milliseconds(),
		Schemas: c.Schemas, Redact: c.Redact, RedactResult: c.RedactResult, Inject: injectInWords(c.Inject),
	}
	if !c.Definition.IsZero() {
		out.Definition = c.Definition.String()
	}
	if c.Probe != nil {
		out.Probe = c.Probe.Tool
	}
	for i := range c.Limits {
		l := &c.Limits[i]
		j := limitJSON{Name: l.Name, Per: l.Per, Max: float64(l.Max) / effect.Unit, WithinMs: l.Within.Milliseconds()}
		if l.Units != nil {
			j.Units = l.Units.Text()
		}
		out.Limits = append(out.Limits, j)
	}
	return out
}
