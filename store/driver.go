package store

import (
	"context"
	"time"

	"github.com/undolog/undolog/effect"
)

// Driver is one backend of the log. Its methods are the log's verbs; unless it says otherwise each is one
// transaction, durable when it returns. All are safe for concurrent use by any number of processes. A Driver
// groups concurrent writes by itself and MUST NOT delay a lone one. It returns its own errors; Log wraps them
// once.
type Driver interface {
	// Begin gathers the facts about the call, asks effect.Decide and does what the verdict says: inserts the
	// generation or the attempt, claimed or with a request for approval, or nothing. What it has decided on MUST
	// still stand when it writes, by one transaction or by a compare-and-set after which it decides anew. It
	// beats the owner's heart when due. Deliveries that are not yet written are facts to it (Begin.Know), and it
	// does not write them.
	Begin(ctx context.Context, p *Begin) (*Begun, error)

	// Append moves the effect on by one transition. The transition's Ordinal is the compare-and-set: when
	// it is taken, or the move is not legal, or (t.Owner set) the attempt belongs to another owner, nothing
	// is written and the error is a *ConflictError with the record as it is.
	Append(ctx context.Context, tenant string, t *effect.Transition) (*effect.Record, error)

	// Write records, in one transaction, what needs no decision: finished reads, deliveries, events.
	// It is called by Log in groups.
	Write(ctx context.Context, n *Notes) error

	// Effect returns one effect with its state; ErrNotFound when the tenant has none of that id.
	Effect(ctx context.Context, tenant, id string) (*effect.Record, error)
	// Effects lists effects, newest first.
	Effects(ctx context.Context, f *Filter) ([]*effect.Record, error)
	// History returns the transitions and the events of one effect, oldest first.
	History(ctx context.Context, tenant, id string) ([]effect.Transition, []effect.Event, error)
	// Events lists events that moved no state with Seq > after, oldest first.
	Events(ctx context.Context, tenant string, after int64, limit int) ([]effect.Event, error)
	// LastEvents lists those with Seq < before, zero: all, newest first. Unlike Events it leaves out none that is
	// written.
	LastEvents(ctx context.Context, tenant string, before int64, limit int) ([]effect.Event, error)

	// Equals returns the newest effects of calls that are equal whatever their rule: those whose signature, or
	// window signature, is this one. Reads are none of them.
	Equals(ctx context.Context, tenant string, window effect.Signature, limit int) ([]*effect.Record, error)
	// Grant records a standing grant. Revoke ends one: it reports false, and the grant as it is, when it was
	// revoked before; ErrNotFound when the tenant has none of that id. Grants lists them, newest first; Begin
	// takes those that are active for a call's server and tool into its facts when its contract asks for grants.
	Grant(ctx context.Context, g *effect.Grant) error
	Revoke(ctx context.Context, tenant, id, by, reason string) (*effect.Grant, bool, error)
	Grants(ctx context.Context, f *GrantFilter) ([]*effect.Grant, error)

	// Again allows one more run of a settled effect.
	Again(ctx context.Context, ev *effect.Event) error
	// LearnTool keeps a tool's definition; it reports whether another one was known before.
	LearnTool(ctx context.Context, t *Tool) (changed bool, err error)
	// Tools returns the last known definition of each tool of a server.
	Tools(ctx context.Context, tenant, server string) ([]Tool, error)

	// Prune takes away the arguments and answers, and nothing else, of effects that were settled before a
	// time; it returns how many lost something, also when it could not go on. It may be many transactions, after
	// each of which it tells p.Progress and moves p.Walk on. That an effect is settled MUST be so in the transaction
	// that takes its payloads away: one that is begun again meanwhile loses no more than what it had before.
	Prune(ctx context.Context, p *Pruning) (Pruned, error)

	// Tenants lists the tenants that have effects, in order.
	Tenants(ctx context.Context) ([]string, error)

	// Beat renews the owner's heartbeat until now+ttl. End removes it: its open claims are in doubt at once.
	Beat(ctx context.Context, owner string, ttl time.Duration) error
	End(ctx context.Context, owner string) error

	Close() error
}

// Begin is what a claim needs to know.
type Begin struct {
	ID           string // of the effect, should one be inserted
	Call         *effect.Call
	Identity     *effect.Identity
	Contract     *effect.Contract
	Policy       string // digest of the policy in force
	Owner        string
	TTL          time.Duration  // of the owner's heartbeat
	Remote       bool           // the claim gets Contract.Lease as a fixed lease and no heartbeat
	Continuation string         // requestState that the call carries; empty: none
	Request      Request        // of an approval, should one be asked for
	Spends       []effect.Spend // what the call takes from limits: facts to the decision, and written with the claim
	Unwritten    []Delivery     // what the owner knows and Write is still to be told, oldest first; see Know
	Waited       time.Duration  // what the caller has waited in vain already, of the time that it waits for a log that is away
}

// Request is what makes a request for approval findable.
type Request struct {
	ID     string // UUIDv7
	Handle string // unguessable
}

// Begun is the decision and what it rests on.
type Begun struct {
	Verdict effect.Verdict
	Record  *effect.Record // the claimed, joined, replayed or refusing effect; nil when there is none to show
	Claim   *effect.Claim  // set when the caller may dispatch
}

// Notes is one group of what needs no decision.
type Notes struct {
	Reads      []*effect.Record // finished calls of tier read: effect and transition in one, no signature
	Deliveries []Delivery
	Events     []effect.Event
}

// Delivery says that the answer of an effect reached its agent.
type Delivery struct {
	Tenant    string
	Effect    string
	At        time.Time
	Withdrawn bool // the delivery of that time, recorded or not, turned out to be none
}

// Tool is a tool's definition as its server listed it.
type Tool struct {
	Tenant     string
	Server     string
	Name       string
	Digest     effect.Digest // of the canonical definition
	Definition []byte        // the tools/list entry
	SeenAt     time.Time
}

// Filter selects effects. Zero fields select all.
type Filter struct {
	Tenant string // required
	Run    string
	Server string
	Tool   string         // a glob: * and ?
	States []effect.State // as they are now (see effect.Record.StateAt)
	Open   bool           // recorded as open (see effect.State.IsOpen), whatever a clock says of it since
	Writes bool           // no reads
	Since  time.Time
	Before int64 // Seq below this; zero: from the newest
	After  int64 // Seq above this, for following: Ordered then; zero: none
	// Ordered leaves out the newest effects for as long as a write that is under way may still come before
	// them: what it selects is always preceded by the same effects.
	Ordered bool
	Brief   bool // of arguments only the first BriefBytes, which may be no JSON then, of answers and edits nothing
	Limit   int  // defaults to 100
}

// BriefBytes is how much of its arguments a brief record has at the most.
const BriefBytes = 256

// GrantFilter selects standing grants. Zero fields select all.
type GrantFilter struct {
	Tenant string // required
	Server string
	Tool   string
	Active bool // those that hold now
	Limit  int  // defaults to 100
}
