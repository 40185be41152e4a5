package effect

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/undolog/undolog/internal/timespan"
	"github.com/undolog/undolog/internal/yamlfile"
)

// ruleCheck reads what is text in one rule, and gathers what is wrong with it.
type ruleCheck struct {
	file     *yamlfile.File
	rule     *toolRule
	location []string
	limits   map[string]namedLimit // of the rules before, by name
	found    []error
}

func (c *ruleCheck) has(field string) bool {
	return c.file.Has(c.path(field)...)
}

func (c *ruleCheck) path(fields ...string) []string {
	return append(slices.Clone(c.location), fields...)
}

// refuse notes what is wrong with a field, which is named by its path where it is not the rule's own.
func (c *ruleCheck) refuse(field, format string, args ...any) {
	where := c.file.Key(c.path(strings.Split(field, "/")...)...)
	c.found = append(c.found, c.file.Errorf(where, format, args...))
}

func (c *ruleCheck) durations() {
	r := c.rule
	r.windowed = c.duration("window", r.Window)
	r.timed = c.longer("timeout", r.Timeout)
	r.leased = c.longer("lease", r.Lease)
	r.decided = c.longer("decide_within", r.DecideWithin)
	r.usage = c.longer("use_within", r.UseWithin)
}

// longer reads a duration that must be longer than nothing.
func (c *ruleCheck) longer(field, text string) *time.Duration {
	d := c.duration(field, text)
	if d != nil && *d <= 0 {
		c.refuse(field, "%s must be longer than nothing", field)
	}
	return d
}

func (c *ruleCheck) duration(field, text string) *time.Duration {
	if text == "" {
		return nil
	}
	d, err := timespan.Parse(text)
	if err != nil {
		c.refuse(field, "%s: %v", lastOf(field), err)
		return nil
	}
	return &d
}

func lastOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func (c *ruleCheck) expressions() {
	r := c.rule
	r.when = c.condition("when", r.When, "")
	if r.Approve != "" && r.Approve != approveAlways && r.Approve != approveNever {
		r.asks = c.condition("approve", r.Approve, ": write never, always or a condition")
	}
	if r.Definition != "" {
		var err error
		if r.pinned, err = ParseDigest(r.Definition); err != nil {
			c.refuse("definition", "definition: %v", err)
		}
	}
	if r.Probe != nil {
		c.probe(r.Probe)
	}
}

func (c *ruleCheck) condition(field, text, advice string) *Condition {
	if text == "" {
		return nil
	}
	condition, err := ParseCondition(text)
	if err != nil {
		c.refuse(field, "%s: %v%s", field, err, advice)
		return nil
	}
	return condition
}

func (c *ruleCheck) probe(p *probeRule) {
	arguments, err := parseProbeArguments(p.Arguments)
	if err != nil {
		c.refuse("probe/arguments", "arguments: %v", err)
	}
	verdict, err := parseProbeVerdict(p.Verdict)
	if err != nil {
		c.refuse("probe/verdict", "verdict: %v", err)
	}
	c.rule.probe = &Probe{Server: p.Server, Tool: p.Tool, arguments: arguments, verdict: verdict}
}

// namedLimit is a limit, and the line of the rule that has it.
type namedLimit struct {
	Limit
	line int
}

// counted reads the rule's limits.
func (c *ruleCheck) counted() {
	for i := range c.rule.Limits {
		given := &c.rule.Limits[i]
		l := Limit{Name: given.Name, Per: given.Per}
		if l.Per == "" {
			l.Per = PerPrincipal
		}
		field := "limits/" + strconv.Itoa(i) + "/"
		l.Units = c.amount(field+"units", given.Units)
		l.Max = c.most(field+"max", given)
		if d := c.longer(field+"within", given.Within); d != nil {
			l.Within = *d
		}
		c.sameAccount(field+"name", &l)
		c.rule.limits = append(c.rule.limits, l)
	}
}

func (c *ruleCheck) amount(field, text string) *Amount {
	if text == "" {
		return nil
	}
	amount, err := ParseAmount(text)
	if err != nil {
		c.refuse(field, "units: %v", err)
		return nil
	}
	return amount
}

// most reads the most that a limit allows.
func (c *ruleCheck) most(field string, given *limitRule) int64 {
	n, err := readUnits(given.Max.String())
	switch {
	case err != nil:
		c.refuse(field, "max: %v", err)
	case n <= 0:
		c.refuse(field, "max must be more than nothing: \"deny\" refuses every call")
	case given.Units == "" && n%Unit != 0:
		c.refuse(field, "max is a part of a call: write a whole number, or say in units what is counted")
	}
	return n
}

func readUnits(number string) (int64, error) {
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		return wholeUnits(n)
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, err
	}
	return millionths(v)
}

// sameAccount refuses a name that stands for another limit in a rule before: what is taken of both is one
// account.
func (c *ruleCheck) sameAccount(field string, l *Limit) {
	first, known := c.limits[l.Name]
	if !known {
		c.limits[l.Name] = namedLimit{*l, c.rule.line}
		return
	}
	if first.Per != l.Per || first.Max != l.Max || first.Within != l.Within {
		c.refuse(field, "limit %s has another per, max or within in the rule in line %d: make them the same, or give this one its own name", l.Name, first.line)
	}
	if slices.ContainsFunc(c.rule.limits, func(other Limit) bool { return other.Name == l.Name }) {
		c.refuse(field, "limit %s is here twice: keep one", l.Name)
	}
}

// meaningless are the fields that do nothing for a tool that only reads: such a call is never claimed.
var meaningless = []string{
	"identity", "volatile", "key", "window", "repeat", "lookalike", "share", "annotate", "lease",
	"quorum", "approvers", "decide_within", "use_within", "elicitation", "definition", "limits", "inject", "probe",
}

// moot are the fields that do nothing for calls that are denied.
var moot = []string{
	"approve", "quorum", "approvers", "decide_within", "use_within", "elicitation", "definition", "limits", "inject", "probe",
}

func (c *ruleCheck) contradictions() {
	c.identities()
	c.people()
	r := c.rule
	if r.Deny != "" {
		for _, field := range moot {
			if c.has(field) {
				c.refuse(field, "%s does nothing where deny refuses every call: take one of them away", field)
			}
		}
	}
	switch r.Tier {
	case TierRead:
		c.read()
	case TierIdempotent:
		if r.Repeat == RepeatReplay || r.Repeat == RepeatAsk {
			c.refuse("repeat", "repeat: %s contradicts tier idempotent, which may run again freely: take it away or give another tier", r.Repeat)
		}
	}
}

func (c *ruleCheck) read() {
	for _, field := range meaningless {
		if c.has(field) {
			c.refuse(field, "%s does nothing for tier read, whose calls always run: take it away or give another tier", field)
		}
	}
	if c.has("approve") && c.rule.Approve != approveNever {
		c.refuse("approve", "a call of tier read is never held: take approve away or give another tier")
	}
}

func (c *ruleCheck) identities() {
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
	if r.Inject == nil {
		return
	}
	if why := r.Inject.taken(); why != "" {
		c.refuse("inject", "%s: name another place for our key", why)
	}
	if r.Inject.Argument == "" {
		return
	}
	if slices.Contains(r.Identity, r.Inject.Argument) || slices.Contains(r.Volatile, r.Inject.Argument) {
		c.refuse("inject", "%s gets our key and never counts as identity: take it out of identity and volatile", r.Inject.Argument)
	}
}

// people refuses a quorum that those who may decide cannot reach.
func (c *ruleCheck) people() {
	r := c.rule
	if len(r.Approvers) == 0 || r.Elicitation {
		return
	}
	if slices.ContainsFunc(r.Approvers, func(glob string) bool { return strings.ContainsAny(glob, "*?") }) {
		return
	}
	if r.Quorum > len(r.Approvers) {
		c.refuse("quorum", "quorum is %d and approvers names %d: nobody could approve; name more people or ask fewer", r.Quorum, len(r.Approvers))
	}
}
