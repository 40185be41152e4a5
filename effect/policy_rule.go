package effect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// policyFile is a policy file as JSON: the schema has been checked when it is read.
type policyFile struct {
	Version   int          `json:"version"`
	Retention string       `json:"retention"`
	Servers   []serverRule `json:"servers"`
	Tools     []toolRule   `json:"tools"`
}

type serverRule struct {
	Server string `json:"server"`
	Trust  bool   `json:"trust"`
}

// toolRule is one entry under tools. Absent members are zero.
type toolRule struct {
	Server       string      `json:"server"`
	Tool         globs       `json:"tool"`
	When         string      `json:"when"`
	Tier         Tier        `json:"tier"`
	Identity     []string    `json:"identity"`
	Volatile     []string    `json:"volatile"`
	Key          string      `json:"key"`
	Window       string      `json:"window"`
	Repeat       Repeat      `json:"repeat"`
	Lookalike    Repeat      `json:"lookalike"`
	Share        string      `json:"share"`
	Annotate     *bool       `json:"annotate"`
	OnToolError  State       `json:"on_tool_error"`
	OnCancel     string      `json:"on_cancel"`
	Timeout      string      `json:"timeout"`
	Lease        string      `json:"lease"`
	Deny         string      `json:"deny"`
	Approve      string      `json:"approve"`
	Quorum       int         `json:"quorum"`
	Approvers    []string    `json:"approvers"`
	DecideWithin string      `json:"decide_within"`
	UseWithin    string      `json:"use_within"`
	Elicitation  bool        `json:"elicitation"`
	Definition   string      `json:"definition"`
	Limits       []limitRule `json:"limits"`
	Schemas      string      `json:"schemas"`
	Redact       []string    `json:"redact"`
	RedactResult []string    `json:"redact_result"`
	Inject       *injectRule `json:"inject"`
	Probe        *probeRule  `json:"probe"`

	ruleRead
}

// ruleRead is what is read from the texts of a rule; nil and zero where they are not given.
type ruleRead struct {
	line                                    int
	windowed, timed, leased, decided, usage *time.Duration
	when                                    *Condition
	asks                                    *Condition // of approve, where it is one
	pinned                                  Digest
	limits                                  []Limit
	probe                                   *Probe
}

type limitRule struct {
	Name   string      `json:"name"`
	Per    LimitPer    `json:"per"`
	Max    json.Number `json:"max"`
	Within string      `json:"within"`
	Units  string      `json:"units"`
}

type injectRule struct {
	Argument string `json:"argument"`
	Meta     string `json:"meta"`
	Header   string `json:"header"`
}

type probeRule struct {
	Server    string `json:"server"`
	Tool      string `json:"tool"`
	Arguments string `json:"arguments"`
	Verdict   string `json:"verdict"`
}

const (
	// noKey is the value of a rule's key that says that no argument carries one.
	noKey = "none"

	approveAlways = "always"
	approveNever  = "never"
)

func (r *toolRule) matches(server, tool string) bool {
	return r.matchesServer(server) && r.matchesTool(tool)
}

func (r *toolRule) matchesServer(server string) bool {
	return r.Server == "" || matchGlob(r.Server, server)
}

func (r *toolRule) matchesTool(tool string) bool {
	for _, glob := range r.Tool {
		if matchGlob(glob, tool) {
			return true
		}
	}
	return false
}

// contract resolves the rule for a tool with the annotations, which are nil where nobody vouches for them. A
// compensable tool counts as irreversible for as long as no compensation can be named for it, and a read that
// the rule wants held back as idempotent: reads are put to no decision.
func (r *toolRule) contract(file string, ann *Annotations) *Contract {
	source := fmt.Sprintf("policy %s:%d", file, r.line)
	tier := r.Tier
	if tier == "" {
		var from string
		tier, from = annotatedTier(ann, true)
		source += ", " + from
	}
	switch {
	case tier == TierCompensable:
		tier = TierIrreversible
	case tier == TierRead && r.holds():
		tier = TierIdempotent
	}
	c := policyContract(tier)
	c.Source = source
	r.setIdentity(c)
	r.setRepeats(c)
	r.setDispatch(c)
	r.setApproval(c)
	r.setContent(c)
	return c
}

// holds reports whether the rule says of itself that a call may have to wait or is refused.
func (r *toolRule) holds() bool {
	return r.Deny != "" || r.Approve == approveAlways || r.asks != nil || len(r.limits) > 0 || !r.pinned.IsZero()
}

func (r *toolRule) setIdentity(c *Contract) {
	c.Identity, c.Volatile = r.Identity, r.Volatile
	c.NoKeyArgument = r.Key == noKey
	if !c.NoKeyArgument {
		c.KeyArgument = r.Key
	}
	c.ShareTenant = r.Share != ""
}

func (r *toolRule) setRepeats(c *Contract) {
	setDuration(&c.Window, r.windowed)
	if r.Repeat != "" {
		c.Repeat, c.RepeatError = r.Repeat, r.Repeat
	}
	if r.Lookalike != "" {
		c.Lookalike = r.Lookalike
	}
	if r.Annotate != nil {
		c.Annotate = *r.Annotate
	}
}

func (r *toolRule) setDispatch(c *Contract) {
	if r.OnToolError != "" {
		c.OnToolError = r.OnToolError
	}
	if r.OnCancel != "" {
		c.Detach = r.OnCancel == "detach"
	}
	setDuration(&c.Timeout, r.timed)
	setDuration(&c.Lease, r.leased)
	c.Limits, c.Probe = r.limits, r.probe
	c.Inject = r.Inject.inject()
}

func (r *toolRule) setApproval(c *Contract) {
	if r.Approve != "" {
		c.Approve = r.Approve == approveAlways
	}
	if r.Deny != "" {
		c.Deny, c.Approve = r.Deny, false
	}
	c.Definition = r.pinned
	c.Asking.Quorum = max(r.Quorum, 1)
	c.Asking.Approvers, c.Asking.Host = r.Approvers, r.Elicitation
	setDuration(&c.Asking.DecideFor, r.decided)
	setDuration(&c.Asking.UseFor, r.usage)
}

func (r *toolRule) setContent(c *Contract) {
	c.Schemas = r.Schemas != "ignore"
	c.Redact, c.RedactResult = r.Redact, r.RedactResult
}

func setDuration(d *time.Duration, given *time.Duration) {
	if given != nil {
		*d = *given
	}
}

// takenHeaders are those by which a request is framed, read or authorized.
var takenHeaders = []string{
	"accept", "authorization", "connection", "content-length", "content-type", "cookie", "host", "last-event-id", "te", "trailer",
	"transfer-encoding", "upgrade",
}

// taken says of what else a place is; empty when it is free.
func (r *injectRule) taken() string {
	header := strings.ToLower(r.Header)
	switch {
	case slices.Contains(takenHeaders, header), strings.HasPrefix(header, "mcp-"):
		return "header " + r.Header + " is the protocol's"
	case r.Meta == "progressToken", strings.HasPrefix(r.Meta, "io.modelcontextprotocol/"):
		return r.Meta + " in _meta is the protocol's"
	case strings.HasPrefix(r.Meta, "dev.undolog/"):
		return r.Meta + " in _meta has a meaning of its own"
	}
	return ""
}

func (r *injectRule) inject() Inject {
	switch {
	case r == nil:
		return Inject{}
	case r.Argument != "":
		return Inject{InjectArgument, r.Argument}
	case r.Meta != "":
		return Inject{InjectMeta, r.Meta}
	}
	return Inject{InjectHeader, r.Header}
}

// globs is one glob or a list of them.
type globs []string

func (g *globs) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*g = globs{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*g = list
	return nil
}

// String is the globs as a person reads them.
func (g globs) String() string { return strings.Join(g, ", ") }
