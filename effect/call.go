package effect

import (
	"encoding/json"
	"time"
)

// DefaultTenant is the tenant of a call whose transport names none.
const DefaultTenant = "default"

// Call is one governed tools/call as it is about to go out: the final arguments, who calls, and the
// handles by which it may be recognised. It is never recognised by a session, a request id or a trace, which
// change with a retry; what is kept of them only says where the call came from.
type Call struct {
	Tenant     string          // defaults to DefaultTenant
	Principal  string          // who calls; empty when nothing says so
	Server     string          // the upstream's configured name
	Tool       string          // params.name
	Arguments  json.RawMessage // complete final arguments; absent means {}
	Key        string          // explicit idempotency key
	Run        string          // explicit run handle
	Occurrence string          // tells wanted repeats within a run apart

	ReceivedAt time.Time // when the request reached us; zero: not known. It decides what had been delivered before

	Recorded json.RawMessage // what is kept of Arguments; nil: all of it
	Secrets  *Secrets        // what is kept of nothing else either; nil: nothing is secret

	Definition  Digest       // of the tool's definition as it is known; zero: not known
	Annotations *Annotations // what its definition says of the tool, for conditions; nil: not known

	Session string // attribution: the invoker's session
	Trace   string // attribution: W3C trace id
}

// Kept is what is kept of the arguments. Identity and digests are those of the arguments themselves.
func (c *Call) Kept() json.RawMessage {
	if c.Recorded != nil {
		return c.Recorded
	}
	return c.Arguments
}

// Rule says by which rule of identity a call was recognised.
type Rule string

const (
	RuleKey    Rule = "key"    // an explicit idempotency key
	RuleRun    Rule = "run"    // a run handle, server, tool, identity arguments, occurrence
	RuleWindow Rule = "window" // who calls, server, tool, identity arguments, for a limited time
	RuleNone   Rule = "none"   // nothing says who calls: recorded, runs
)

// Identity is what a call is known by. Signature is zero under RuleNone; Window is zero when nothing
// says who calls.
type Identity struct {
	Rule      Rule
	Scope     string    // the key, the run, or who calls
	Signature Signature // over rule, scope and what else signs a call of that rule
	Window    Signature // the signature the same call has under RuleWindow, kept to find look-alikes
	Arguments Digest    // of the canonical identity arguments
	Complete  Digest    // of the canonical complete arguments
}
