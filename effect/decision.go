package effect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Decision is what a person says about an effect that awaits approval.
type Decision struct {
	Kind      DecisionKind
	By        string          // "user:NAME"
	Reason    string          // required to deny, to edit and to withdraw
	Via       string          // cli, api, page, elicitation
	Complete  Digest          // of the arguments that the person saw; zero: not checked
	Request   string          // Approval.ID that the person saw; empty: not checked
	Arguments json.RawMessage // for DecideEdit: an object
	Extend    time.Duration   // for DecideExtend: from now
}

// DecidedError means that a decision comes too late: somebody, or the clock, was first.
type DecidedError struct {
	Kind   DecisionKind // what was decided; empty where a clock was first
	By     string
	At     time.Time
	Reason string
	State  State // where the effect stands
	Same   bool  // the late decision says the same
	// Missing is how many other people must approve as well, where this one has approved already.
	Missing int
}

func (e *DecidedError) Error() string {
	at := e.At.UTC().Format("2006-01-02 15:04:05 UTC")
	switch e.State {
	case StateExpired:
		return "the request expired at " + at + ": nobody had decided"
	case StateVoid:
		return "the request is void since " + at
	}
	if e.Kind == "" {
		return "the request was decided at " + at
	}
	said := fmt.Sprintf("already %s by %s at %s", pastTense[e.Kind], e.By, at)
	if e.Missing > 0 {
		said += fmt.Sprintf("; %d more must approve", e.Missing)
	}
	return said
}

var pastTense = map[DecisionKind]string{
	DecideApprove: "approved", DecideDeny: "denied", DecideEdit: "edited", DecideExtend: "extended", DecideReopen: "reopened", DecideWithdraw: "withdrawn",
}

// ForbiddenError means that this person may not decide this way.
type ForbiddenError struct {
	Reason string
	// Recorded is the effect that an edit would make run twice; empty: something else forbids the decision.
	Recorded string
	// State is where the effect stands, where that is what forbids the decision, whoever makes it; else empty.
	State State
}

func (e *ForbiddenError) Error() string { return e.Reason }

// Decided returns the transition by which a decision moves the effect. The error is a *DecidedError, a
// *ForbiddenError or an *InvalidError; then nothing moves. An edit does not look at other effects: who records
// it does.
func (r *Record) Decided(d *Decision, now time.Time) (*Transition, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	a := r.Approval
	if a == nil {
		state := r.StateAt(now)
		return nil, &ForbiddenError{State: state, Reason: fmt.Sprintf("effect %s is %s and never awaited approval", r.ID, state)}
	}
	if err := r.mayDecide(d); err != nil {
		return nil, err
	}
	if d.Kind == DecideReopen {
		return r.reopened(d, now)
	}
	if err := r.decidable(d, now); err != nil {
		return nil, err
	}
	next := a.clone()
	vote := d.vote(now)
	next.Last = &vote
	state := StateAwaitingApproval
	switch d.Kind {
	case DecideApprove:
		next.Votes = append(next.Votes, vote)
		if next.Missing() == 0 {
			next.UseUntil = now.Add(time.Duration(a.UseForMs) * time.Millisecond)
		}
	case DecideDeny, DecideWithdraw:
		state = StateDenied
	case DecideEdit:
		if err := next.edit(r, d.Arguments); err != nil {
			return nil, err
		}
	case DecideExtend:
		next.DecideUntil, next.Reminded = now.Add(d.Extend), false
	}
	return r.decided(state, next, d), nil
}

func (d *Decision) check() error {
	switch {
	case !isUser(d.By):
		return &ForbiddenError{Reason: fmt.Sprintf("%q cannot decide: who does is named user:NAME", d.By)}
	case d.Kind.NeedsReason() && strings.TrimSpace(d.Reason) == "":
		return &InvalidError{Reason: "a reason is missing: say why, the agent is told"}
	case d.Kind == DecideExtend && d.Extend <= 0:
		return &InvalidError{Reason: "the time to extend by must be longer than nothing"}
	}
	if _, known := pastTense[d.Kind]; !known {
		return &InvalidError{Reason: fmt.Sprintf("%q is no decision", d.Kind)}
	}
	return nil
}

// isUser reports whether a name is that of a person, who may decide.
func isUser(name string) bool { return strings.HasPrefix(name, "user:") && name != "user:" }

// mayDecide reports why this person may not decide on the effect.
func (r *Record) mayDecide(d *Decision) error {
	a := r.Approval
	if d.By == r.Principal {
		return &ForbiddenError{Reason: d.By + " made the call and cannot decide on it"}
	}
	switch {
	case mayApprove(d.By, d.Via, a.Approvers, a.Host):
		return nil
	case d.Via == ViaElicitation:
		return &ForbiddenError{Reason: "policy does not let the user of the agent's host decide"}
	}
	return &ForbiddenError{Reason: fmt.Sprintf("%s is not among those who may decide (%s)", d.By, strings.Join(a.Approvers, ", "))}
}

// mayApprove reports whether a person who decides by some way is among those who may.
func mayApprove(by, via string, approvers []string, host bool) bool {
	if via == ViaElicitation {
		return host
	}
	return len(approvers) == 0 || slices.ContainsFunc(approvers, func(glob string) bool { return matchGlob(glob, by) })
}

// ViaElicitation marks a decision that the user of the agent's host made in a form.
const ViaElicitation = "elicitation"

// decidable reports why nothing can be decided any more, or not by this decision.
func (r *Record) decidable(d *Decision, now time.Time) error {
	a := r.Approval
	state := r.StateAt(now)
	switch {
	case state == StateExpired, state == StateVoid:
		return r.over(state)
	case state != StateAwaitingApproval, a.IsApproved() && d.Kind != DecideWithdraw:
		return r.alreadyDecided(d, state)
	case !a.IsApproved() && d.Kind == DecideWithdraw:
		return &ForbiddenError{State: state, Reason: "nothing is approved yet that could be withdrawn: deny it instead"}
	case d.Request != "" && d.Request != a.ID, !d.Complete.IsZero() && d.Complete != a.Complete:
		return &ForbiddenError{Reason: "the request is another one than was shown: look at it again"}
	}
	if d.Kind == DecideApprove {
		for _, v := range a.Votes {
			if v.By == d.By {
				return &DecidedError{Kind: v.Kind, By: v.By, At: v.At, Reason: v.Reason, State: state, Same: true, Missing: a.Missing()}
			}
		}
	}
	return nil
}

// over says since when nothing can be decided: by the clock, whenever that was recorded, or by the policy.
func (r *Record) over(state State) error {
	e := &DecidedError{State: state, At: r.ChangedAt}
	if r.State != StateAwaitingApproval {
		e.Reason = r.Reason
	}
	switch a := r.Approval; {
	case state == StateExpired:
		e.At = a.DecideUntil
	case a.IsApproved() && (r.State == StateAwaitingApproval || r.ChangedAt.After(a.UseUntil)):
		e.At = a.UseUntil
	}
	return e
}

func (r *Record) alreadyDecided(d *Decision, state State) error {
	e := &DecidedError{State: state, At: r.ChangedAt}
	if last := r.Approval.Last; last != nil {
		e.Kind, e.By, e.At, e.Reason, e.Same = last.Kind, last.By, last.At, last.Reason, last.Kind == d.Kind
	}
	return e
}

// edit puts other arguments in the place of those that were asked about. What was approved was not these.
func (a *Approval) edit(r *Record, arguments json.RawMessage) error {
	complete, err := completeDigest(arguments)
	if err != nil {
		return err
	}
	if kept, _ := NewRedaction(a.Redact).Keep(arguments, nil); !bytes.Equal(kept, arguments) {
		return &InvalidError{Pointer: "/arguments", Reason: "what is redacted cannot be edited: leave " + Redacted + " there, and the caller's own value is sent"}
	}
	a.Arguments, a.Complete, a.Votes = arguments, complete, nil
	if complete == r.Complete && len(r.Arguments) > 0 {
		a.Arguments = nil
	}
	return nil
}

func completeDigest(arguments json.RawMessage) (Digest, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(arguments, &object); err != nil || object == nil {
		return Digest{}, &InvalidError{Pointer: "/arguments", Reason: "must be an object"}
	}
	complete, err := DigestOf(arguments)
	if err != nil {
		return Digest{}, &InvalidError{Pointer: "/arguments", Reason: err.Error()}
	}
	return complete, nil
}

// reopened lets a denied call be decided on once more, for as long as a request was open before.
func (r *Record) reopened(d *Decision, now time.Time) (*Transition, error) {
	switch state := r.StateAt(now); {
	case state == StateExpired, state == StateVoid:
		return nil, r.over(state)
	case state != StateDenied:
		return nil, r.alreadyDecided(d, state)
	}
	next := r.Approval.clone()
	vote := d.vote(now)
	open := next.DecideUntil.Sub(next.RequestedAt)
	next.Last, next.Votes, next.UseUntil, next.Reminded = &vote, nil, time.Time{}, false
	next.RequestedAt, next.DecideUntil = now, now.Add(open)
	return r.decided(StateAwaitingApproval, next, d), nil
}

func (d *Decision) vote(now time.Time) Vote {
	return Vote{By: d.By, At: now, Kind: d.Kind, Reason: d.Reason, Via: d.Via}
}

func (r *Record) decided(state State, next *Approval, d *Decision) *Transition {
	return &Transition{
		Effect: r.ID, Ordinal: r.Ordinal + 1, Attempt: r.Attempt, State: state, By: d.By, Reason: d.Reason, Approval: next,
	}
}
