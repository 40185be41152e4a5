package effect

import "cmp"

// A verdict that dispatches passes three gates, in this order: is somebody to be asked, does the policy allow
// the call at all, and is there room in its limits. What is answered from the record passes none of them.

// approved turns every dispatch that nobody allowed into a question when the contract, or what is on record of
// the call, wants an approval. A round that goes on was allowed when it began.
func (d *decision) approved(v Verdict) Verdict {
	if v.Action != ActInsert && v.Action != ActReclaim || v.UsesAgain != "" && !d.namesApprovers() {
		return v
	}
	why := d.needsApproval()
	switch {
	case d.asks:
		why = v.Reason
	case why == "":
		return v
	default:
		if v.Grant = d.grant(); v.Grant != "" {
			return v
		}
	}
	if d.id.Rule == RuleNone {
		return Verdict{Action: ActDenied, Reason: "it needs approval, and nothing says who calls: a later call could not be recognised " +
			"as the approved one. Configure a principal, or send a key or a run with it"}
	}
	v.Action, v.Reason, v.Request, v.UsesAgain = ActRequest, why, d.newApproval(why, d.asks), ""
	return v
}

// namesApprovers reports whether the contract says whose approval it takes, or of how many. That somebody has allowed
// one more run is not theirs.
func (d *decision) namesApprovers() bool {
	return d.contract.Asking.Quorum > 1 || len(d.contract.Asking.Approvers) > 0
}

// needsApproval says why the contract wants an approval; empty when it does not.
func (d *decision) needsApproval() string {
	pinned := d.contract.Definition
	switch {
	case !pinned.IsZero() && d.call.Definition != pinned:
		return "the tool's definition is not the one that the policy names (" + d.contract.Source + "), it is " + d.call.Definition.known()
	case d.contract.Approve:
		return "policy asks a person first (" + d.contract.Source + ")"
	}
	return ""
}

// grant returns the id of a standing grant that covers the call; empty when there is none. Who gives one must be
// among those who may approve, and where several must approve, so many must have given one. Where the policy pins
// another definition of the tool, the grant must have been given for this one.
func (d *decision) grant() string {
	pinned, asking := d.contract.Definition, &d.contract.Asking
	unpinned := pinned.IsZero() || pinned == d.call.Definition
	id, people := "", map[string]bool{}
	for _, g := range d.facts.Grants {
		if g.covers(d.call, d.id, d.facts.Now) && (unpinned || !g.Definition.IsZero()) && mayApprove(g.By, "", asking.Approvers, asking.Host) {
			id, people[g.By] = cmp.Or(id, g.ID), true
		}
	}
	if len(people) < asking.Quorum {
		return ""
	}
	return id
}

// awaiting decides on a call that a person was asked about and that neither clock has ended.
func (d *decision) awaiting() Verdict {
	a := d.latest.Approval
	if a == nil {
		return d.asked()
	}
	if d.continuation != "" && d.latest.Attempt == 1 {
		return Verdict{Action: ActConflict, Reason: "it answers a question of the tool (inputResponses or requestState), and nothing was sent yet that could have " +
			"asked one (effect " + d.latest.ID + "): the people who decide do not see such answers. Send the call without them."}
	}
	why := d.needsApproval()
	if !a.IsApproved() {
		return d.undecided(why)
	}
	switch asks := why != "" || a.Again; {
	case asks && a.isOutdated(d.call):
		return d.askAnew("the tool's definition changed since it was approved")
	case asks && d.votes() < d.contract.Asking.Quorum:
		return d.askAnew("policy wants more people to approve, or others, than have")
	}
	return d.claimAsked("approved")
}

// votes counts those who have approved and still may.
func (d *decision) votes() int {
	n := 0
	for _, v := range d.latest.Approval.Votes {
		if asking := &d.contract.Asking; mayApprove(v.By, v.Via, asking.Approvers, asking.Host) {
			n++
		}
	}
	return n
}

// undecided decides on a call whose request nobody has decided on. It runs where the contract wants nobody asked
// any more, or a standing grant covers it; but only as it was asked about, since that is what would run.
func (d *decision) undecided(why string) Verdict {
	a := d.latest.Approval
	unchanged := !a.IsEdited() && d.id.Complete == a.Complete && !a.Again
	switch {
	case why == "" && unchanged:
		return d.claimAsked("policy asks no longer")
	case a.isOutdated(d.call):
		return d.askAnew("the tool's definition changed since approval was asked for")
	case !unchanged:
		return d.asked()
	}
	v := d.claimAsked("covered by a standing grant")
	if v.Grant = d.grant(); v.Grant == "" {
		return d.asked()
	}
	return v
}

func (d *decision) claimAsked(why string) Verdict {
	return Verdict{Action: ActApproved, Attempt: d.latest.Attempt, Reason: why}
}

func (d *decision) asked() Verdict {
	return Verdict{Action: ActAsk, Reason: "a person has been asked about effect " + d.latest.ID + " and has not decided yet"}
}

// isOutdated reports whether the tool is another one than was asked about.
func (a *Approval) isOutdated(call *Call) bool {
	return !a.Definition.IsZero() && !call.Definition.IsZero() && a.Definition != call.Definition
}

// askAnew makes another request in the place of the one that is there.
func (d *decision) askAnew(why string) Verdict {
	return Verdict{Action: ActRequest, Attempt: d.latest.Attempt, Reason: why, Request: d.newApproval(why, d.latest.Approval.Again)}
}

// permitted refuses what the policy never allows.
func (d *decision) permitted(v Verdict) Verdict {
	if d.contract.Deny == "" {
		return v
	}
	switch v.Action {
	case ActInsert, ActReclaim, ActApproved, ActRequest, ActAsk:
		return Verdict{Action: ActDenied, Reason: d.contract.Deny}
	}
	return v
}

// limited refuses what its limits have no room for. Nobody is asked about a call that could not run.
func (d *decision) limited(v Verdict) Verdict {
	switch v.Action {
	case ActInsert, ActReclaim, ActApproved, ActRequest:
	default:
		return v
	}
	if why := exceeded(d.facts.Spends, d.facts.Spent); why != "" {
		return Verdict{Action: ActLimit, Reason: why}
	}
	return v
}

// Would is a verdict that was not followed.
type Would struct {
	Action Action
	Reason string
}

// shadowed dispatches whatever was decided, and says what that was. What is on record of the call stays as it
// is: the dispatch is a generation of its own.
func (d *decision) shadowed(v Verdict) Verdict {
	if !d.contract.Shadow {
		return v
	}
	switch v.Action {
	case ActInsert, ActReclaim, ActContinue:
		return v
	}
	next := 1
	if d.latest != nil {
		next = d.latest.Generation + 1
	}
	out := insert(next, "shadow: nothing is held back")
	out.Would = &Would{Action: v.Action, Reason: v.Reason}
	return out
}
