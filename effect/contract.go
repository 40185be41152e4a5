package effect

import "time"

// Tier says what may be done with a call of a tool when its outcome is not known.
type Tier string

const (
	TierRead         Tier = "read"         // never claims, joins or replays; logged after the answer
	TierIdempotent   Tier = "idempotent"   // claimed, but may run again freely
	TierCompensable  Tier = "compensable"  // can be undone by another tool that the policy names
	TierIrreversible Tier = "irreversible" // cannot be undone; the tier of a tool nobody vouches for
)

// Repeat says what happens to a delivered call that comes again within its window.
type Repeat string

const (
	RepeatRun    Repeat = "run"    // it is a new call
	RepeatReplay Repeat = "replay" // it is answered from the record
	RepeatAsk    Repeat = "ask"    // a person must say that it is meant
)

// Contract is what holds for one tool: the policy's rule, else the annotations of a trusted server,
// else the defaults. Every field is resolved; there are no unset values in it.
type Contract struct {
	Tier        Tier
	Identity    []string // identity arguments (names or JSON pointers); empty: all
	Volatile    []string // arguments that are not identity (names or JSON pointers)
	KeyArgument string   // top-level argument that carries the idempotency key; empty: the well-known names
	// NoKeyArgument says that no argument carries an idempotency key, not even one of a well-known name.
	NoKeyArgument bool

	Window      time.Duration
	Repeat      Repeat // for a delivered result
	RepeatError Repeat // for a delivered error that was recorded as committed: a machine's retry, so replay by default
	Lookalike   Repeat // RepeatRun or RepeatAsk
	ShareTenant bool   // a key or run match by another principal of the tenant is the same call
	Annotate    bool   // a delivered repeat that is replayed says so to the model in a text block
	OnToolError State  // StateCommitted or StateFailed
	Detach      bool   // on cancel: the outcome is awaited and recorded without the caller
	Timeout     time.Duration
	Lease       time.Duration // of a claim made for a remote invoker
	Approve     bool          // the call needs approval
	Asking      Asking        // how it is asked for
	Deny        string        // why the call is never made; empty: it may be
	Limits      []Limit       // what Begin counts before the call is made
	Definition  Digest        // the tool's definition must be this one, else the call needs approval; zero: any

	Schemas      bool     // arguments and results are checked against the tool's schemas
	Redact       []string // places in the arguments that are kept nowhere (names or JSON pointers, * for any member or element)
	RedactResult []string // places in the result that are kept nowhere
	Inject       Inject   // where the target finds our idempotency key, beside _meta; zero: nowhere
	Probe        *Probe   // how a lost outcome is looked up; nil: by a person. Shared, not to be changed

	Shadow bool   // decide and record, and dispatch whatever was decided
	Source string // "policy undolog.yaml:12", "annotations" or "default"
}

// Inject says where a call carries our idempotency key for its target: the caller's key, else the effect's id.
// It is stable over the attempts of an effect.
type Inject struct {
	Into InjectPlace
	Name string // of the argument, the member of _meta or the header
}

// InjectPlace is a part of a call.
type InjectPlace string

const (
	InjectNowhere  InjectPlace = ""
	InjectArgument InjectPlace = "argument" // a top-level argument; no identity argument, and in no digest
	InjectMeta     InjectPlace = "meta"     // a member of params._meta
	InjectHeader   InjectPlace = "header"   // an HTTP header, to upstreams that are reached by HTTP
)

// AsksGrants reports whether a standing grant could stand for the approval of a call.
func (c *Contract) AsksGrants() bool { return c.Approve || !c.Definition.IsZero() }
