package effect

import (
	"cmp"
	"fmt"
	"time"
)

// Facts is what the log knows about a call when it decides: gathered and acted upon in one
// transaction.
type Facts struct {
	Latest         *Record // latest generation of the call's signature; nil: never seen
	Now            time.Time
	OtherWrites    bool    // the caller has begun another write on that server since Latest was begun
	UnknownRound   bool    // the call goes on with a round, and Latest, which waits, has asked for no such one
	Again          bool    // a person allowed one more run of Latest, not yet used
	Lookalike      *Record // an equal call under another rule or run, open or within its window
	LookalikeAgain bool    // a person allowed one more run of Lookalike, not yet used

	Grants []*Grant // standing grants for the call's server and tool, wanted where it needs approval
	Spends []Spend  // what the call would take from limits
	Spent  []int64  // what has been taken of each, in the same order
}

// Action is what the log does with a call.
type Action string

const (
	ActInsert   Action = "insert"   // a new generation is claimed
	ActReclaim  Action = "reclaim"  // the next attempt of the same effect is claimed
	ActContinue Action = "continue" // a waiting attempt goes on: it is claimed again under the same number
	ActJoin     Action = "join"     // another caller's dispatch is under way: wait for its outcome
	ActReplay   Action = "replay"   // the recorded answer is given
	ActInDoubt  Action = "in_doubt" // the outcome was lost; a person decides
	ActConflict Action = "conflict" // same key or run, other arguments or another principal
	ActRequest  Action = "request"  // a person must say so first, and is asked: a request is recorded
	ActAsk      Action = "ask"      // a person has been asked and has not decided yet
	ActApproved Action = "approved" // the approved attempt is claimed, with the approved arguments
	ActDenied   Action = "denied"   // a person, or the policy, said no
	ActLimit    Action = "limit"    // a limit has no room for it
)

// Verdict is the decision on one call, with its reason in words a model can act on.
type Verdict struct {
	Action     Action
	Generation int    // for ActInsert
	Attempt    int    // for ActReclaim, ActContinue and ActApproved; for ActRequest too, unless Generation is set
	Repeat     bool   // for ActReplay: a delivered repeat, to be annotated for the model
	UsesAgain  string // effect id whose granted run this uses up; empty: none
	Lookalike  string // effect id of the look-alike to note on the new record
	Reason     string

	Request *Approval // for ActRequest, without ID, Handle and times
	Grant   string    // id of the standing grant that stands for an approval; empty: none
	Would   *Would    // under Contract.Shadow: what would have been done instead of the dispatch
}

// Decide says what to do with a call, given what the log knows of it. It is pure: the driver calls it
// inside the transaction that gathered the facts and acts on the verdict before that transaction ends.
// Calls of TierRead are not put to it. continuation is the requestState or task id that the call carries.
func Decide(call *Call, id *Identity, c *Contract, f *Facts, continuation string) Verdict {
	d := decision{call: call, id: id, contract: c, facts: f, continuation: continuation, latest: f.Latest}
	return d.shadowed(d.limited(d.permitted(d.approved(d.verdict()))))
}

type decision struct {
	call         *Call
	id           *Identity
	contract     *Contract
	facts        *Facts
	latest       *Record
	continuation string
	asks         bool // a person must say so, whatever the contract says of approvals
}

func (d *decision) verdict() Verdict {
	switch {
	case d.id.Rule == RuleNone:
		return insert(1, "nothing says who calls: recorded and run")
	case d.latest == nil:
		return d.first()
	}
	if reason := d.conflict(); reason != "" {
		return Verdict{Action: ActConflict, Reason: reason}
	}
	switch state := d.latest.StateAt(d.facts.Now); {
	case state == StateClaimed:
		return Verdict{Action: ActJoin, Reason: "the same call is under way (effect " + d.latest.ID + ")"}
	case state == StateWaiting:
		return d.waiting()
	case state == StateInDoubt:
		return d.inDoubt()
	case state.IsRetryable():
		return d.reclaim("the last attempt is " + string(state) + ": nothing was applied")
	case state == StateAwaitingApproval:
		return d.awaiting()
	case state == StateDenied:
		return Verdict{Action: ActDenied, Reason: cmp.Or(d.latest.Reason, "a person said no")}
	}
	return d.settled()
}

// first decides on a call that was never seen under its signature.
func (d *decision) first() Verdict {
	like := d.facts.Lookalike
	if like == nil {
		return insert(1, "never seen before")
	}
	v := insert(1, "never seen under this "+string(d.id.Rule)+"; effect "+like.ID+" was an equal call")
	v.Lookalike = like.ID
	switch {
	case d.contract.Lookalike != RepeatAsk:
		return v
	case d.facts.LookalikeAgain:
		v.UsesAgain = like.ID
		return v
	}
	d.asks, v.Reason = true, "an equal call is on record under another key or run as effect "+like.ID
	return v
}

// conflict returns why the call cannot be the recorded one although it has its key or run; empty when it
// can. Nothing in it tells one principal about another's call.
func (d *decision) conflict() string {
	if d.id.Rule != RuleKey && d.id.Rule != RuleRun {
		return ""
	}
	l := d.latest
	switch {
	case l.Principal != d.call.Principal && !d.contract.ShareTenant:
		return "this " + string(d.id.Rule) + " is in use: take another one"
	case l.Server != d.call.Server || l.Tool != d.call.Tool:
		return "this " + string(d.id.Rule) + " was used for another tool (effect " + l.ID + "): take another one"
	case l.ArgsDigest != d.id.Arguments:
		return "this " + string(d.id.Rule) + " was used with other arguments (effect " + l.ID + "): take another one for another call"
	}
	return ""
}

func (d *decision) waiting() Verdict {
	if d.continuation != "" && d.continuation == d.latest.Continuation {
		return Verdict{Action: ActContinue, Attempt: d.latest.Attempt, Reason: "the call goes on with the round it was asked for"}
	}
	if d.facts.UnknownRound {
		return Verdict{Action: ActConflict, Reason: "the requestState is none that this call was asked to go on with (effect " + d.latest.ID + "): " +
			"it was not sent. Send the requestState of the latest answer unchanged."}
	}
	return Verdict{Action: ActReplay, Reason: "the tool waits for another round or a task (effect " + d.latest.ID + ")"}
}

func (d *decision) inDoubt() Verdict {
	if isFree(d.contract.Tier) {
		return d.reclaim("the last outcome was lost, and the tool may run again")
	}
	return Verdict{Action: ActInDoubt, Reason: fmt.Sprintf(
		"%s on %s was sent before and its outcome was lost: it may or may not have been applied, so it was not sent again. "+
			"Check at the target; a person settles it with \"undolog resolve %s\".", d.call.Tool, d.call.Server, d.latest.Reference())}
}

// settled decides on a call whose effect is on record with an answer.
func (d *decision) settled() Verdict {
	l := d.latest
	switch {
	case d.facts.Again:
		v := d.next("a person allowed one more run")
		v.UsesAgain = l.ID
		return v
	case d.id.Rule != RuleWindow:
		return d.replay(false, "the same "+string(d.id.Rule)+" was answered before")
	case d.facts.Now.Sub(l.ChangedAt) >= d.contract.Window:
		return d.next("the window since the last run is over")
	case !d.delivered():
		return d.replay(false, "the recorded answer may not have arrived")
	case d.facts.OtherWrites:
		return d.next("the caller has written something else since")
	case isFree(d.contract.Tier):
		return d.next("the tool may run again")
	}
	return d.repeat()
}

// delivered reports whether the recorded answer had arrived before this call was made, as far as can be
// seen from here: a call that was received before the answer began to go out was made without it.
func (d *decision) delivered() bool {
	received := d.call.ReceivedAt
	return d.latest.Delivered && (received.IsZero() || !received.Before(d.latest.ArrivedAt))
}

// repeat decides on a call whose answer arrived and that comes again with nothing else in between.
func (d *decision) repeat() Verdict {
	wanted := d.contract.Repeat
	if d.latest.Answer.Kind == AnswerError || d.latest.Answer.IsError {
		wanted = d.contract.RepeatError
	}
	switch wanted {
	case RepeatRun:
		return d.next("the answer arrived, so this call is a new one")
	case RepeatReplay:
		return d.replay(true, "the same call was answered before")
	}
	v := d.next("the same call was answered before as effect " + d.latest.ID + ", and its answer arrived")
	d.asks = true
	return v
}

func (d *decision) replay(repeat bool, why string) Verdict {
	return Verdict{Action: ActReplay, Repeat: repeat, Reason: why + " (effect " + d.latest.ID + ")"}
}

// reclaim takes the next attempt. What a person was asked about whatever the contract says is asked again:
// that nobody answered, or what became of the approved attempt, allows no other.
func (d *decision) reclaim(why string) Verdict {
	if a := d.latest.Approval; a != nil && a.Again {
		d.asks = true
	}
	return Verdict{Action: ActReclaim, Attempt: d.latest.Attempt + 1, Reason: why}
}

func (d *decision) next(why string) Verdict { return insert(d.latest.Generation+1, why) }

func insert(generation int, why string) Verdict {
	return Verdict{Action: ActInsert, Generation: generation, Reason: why}
}

// isFree reports whether a lost or delivered call of the tier may run again without asking.
func isFree(t Tier) bool { return t == TierIdempotent || t == TierRead }
