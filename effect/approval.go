package effect

import (
	"encoding/json"
	"slices"
	"time"
)

// Asking is how a tool's calls are put to a person.
type Asking struct {
	Quorum    int           // how many people must approve; at least 1
	Approvers []string      // globs of those who may, "user:NAME"; empty: everybody but the requester
	DecideFor time.Duration // how long a request is open; then it is expired
	UseFor    time.Duration // how long after its approval the call may be made; then it is void
	Host      bool          // the user of the agent's host may, in a form that the host shows
}

// Approval is a request for approval, and what has been decided on it, as each move of an effect that
// awaits it leaves it. It is bound to the complete arguments and to the tool's definition: nothing else
// may be dispatched under it. It is never changed in place: who decides makes another.
type Approval struct {
	ID          string    `json:"id"` // UUIDv7; of the request, not of the effect
	RequestedAt time.Time `json:"requestedAt"`
	DecideUntil time.Time `json:"decideUntil"`
	UseUntil    time.Time `json:"useUntil,omitzero"` // zero: not approved
	UseForMs    int64     `json:"useForMs"`
	Quorum      int       `json:"quorum"`
	Approvers   []string  `json:"approvers,omitempty"`
	Host        bool      `json:"host,omitempty"`

	Original   Digest `json:"original"`            // of the complete arguments that were asked about
	Complete   Digest `json:"complete"`            // of those that may run: Original, or the edited ones
	Definition Digest `json:"definition,omitzero"` // of the tool's definition; zero: not known
	Policy     string `json:"policy,omitempty"`    // digest of the policy that asked
	Why        string `json:"why,omitempty"`       // why it was asked, for the one who decides
	Again      bool   `json:"again,omitempty"`     // asked because the call repeats another, whatever the contract says
	Handle     string `json:"handle"`              // unguessable; by it a client goes on with its call

	Identity []string `json:"identity,omitempty"` // Contract.Identity and Volatile, to know an edited call by
	Volatile []string `json:"volatile,omitempty"`
	Redact   []string `json:"redact,omitempty"` // Contract.Redact: what nobody who decides sees, or may write

	Arguments json.RawMessage `json:"arguments,omitempty"` // what Complete is of; nil: those of the effect
	Votes     []Vote          `json:"votes,omitempty"`     // approvals of Complete, oldest first
	Last      *Vote           `json:"last,omitempty"`      // what was decided last, of whatever kind
	Reminded  bool            `json:"reminded,omitempty"`  // that the time to decide is nearly over
}

// Vote is what one person has decided.
type Vote struct {
	By     string       `json:"by"` // "user:NAME"
	At     time.Time    `json:"at"`
	Kind   DecisionKind `json:"kind"`
	Reason string       `json:"reason,omitempty"`
	Via    string       `json:"via,omitempty"` // cli, api, page, elicitation
}

// DecisionKind says what a person decides about a call that awaits approval.
type DecisionKind string

const (
	DecideApprove DecisionKind = "approve"
	DecideDeny    DecisionKind = "deny"
	DecideEdit    DecisionKind = "edit"   // other arguments are to be approved
	DecideExtend  DecisionKind = "extend" // more time to decide
	DecideReopen  DecisionKind = "reopen" // a denied call may be decided on once more
	// DecideWithdraw takes an approval back that was not used yet: the call is denied.
	DecideWithdraw DecisionKind = "withdraw"
)

// NeedsReason reports whether who decides so must say why: the agent is told.
func (k DecisionKind) NeedsReason() bool {
	switch k {
	case DecideDeny, DecideEdit, DecideWithdraw:
		return true
	}
	return false
}

// IsApproved reports whether enough people have approved, whatever time it is.
func (a *Approval) IsApproved() bool { return !a.UseUntil.IsZero() }

// IsEdited reports whether a person has put other arguments in the place of those that were asked about.
func (a *Approval) IsEdited() bool { return a.Complete != a.Original }

// RemindAt is when four fifths of the time to decide are over.
func (a *Approval) RemindAt() time.Time {
	return a.RequestedAt.Add(a.DecideUntil.Sub(a.RequestedAt) * 4 / 5)
}

// Missing is how many more people must approve.
func (a *Approval) Missing() int {
	if a.IsApproved() {
		return 0
	}
	return max(a.Quorum-len(a.Votes), 0)
}

// stateAt derives where an effect stands that awaits this approval.
func (a *Approval) stateAt(now time.Time) State {
	switch {
	case a == nil:
		return StateAwaitingApproval
	case a.IsApproved() && !now.Before(a.UseUntil):
		return StateVoid
	case !a.IsApproved() && !now.Before(a.DecideUntil):
		return StateExpired
	}
	return StateAwaitingApproval
}

// clone returns a copy whose lists can be changed.
func (a *Approval) clone() *Approval {
	c := *a
	c.Votes = slices.Clone(a.Votes)
	return &c
}

// Executed is the arguments that are, or were, sent: those that were approved, which a person may have changed.
func (r *Record) Executed() json.RawMessage {
	if r.Approval != nil && r.Approval.Arguments != nil {
		return r.Approval.Arguments
	}
	return r.Arguments
}

// newApproval is the request that a verdict to ask makes. Its ID, its handle and its times are given where it
// is recorded.
func (d *decision) newApproval(why string, again bool) *Approval {
	asking := d.contract.Asking
	return &Approval{
		UseForMs: asking.UseFor.Milliseconds(), Quorum: max(asking.Quorum, 1), Approvers: asking.Approvers, Host: asking.Host,
		Original: d.id.Complete, Complete: d.id.Complete, Definition: d.call.Definition, Why: why, Again: again,
		Identity: d.contract.Identity, Volatile: d.contract.Volatile, Redact: d.contract.Redact,
	}
}
