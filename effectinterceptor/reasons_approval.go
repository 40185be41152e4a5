package effectinterceptor

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/undolog/undolog/effect"
)

// noDetour is said of every call that people are asked about or have refused: a model that is stopped looks
// for another way.
const noDetour = "Do not try to reach the same in another way or with other arguments."

// awaiting is what a call is stopped with that waits for people. before says what became of an earlier
// request; empty: there was none.
func (i *Interceptors) awaiting(id *effect.Identity, r *effect.Record, before string) *info {
	a := r.Approval
	out := newInfo(outcomeApproval, id, r)
	out.State, out.ApprovalID, out.URL, out.Until = string(r.State), a.ID, i.approvalURL(r), a.DecideUntil
	out.RetryAfterMs = retryDecision.Milliseconds()
	where := fmt.Sprintf("with `undolog approve %s`", r.Reference())
	if out.URL != "" {
		where = "at " + out.URL
	}
	far := "nobody has decided"
	if n := len(a.Votes); n > 0 {
		far = fmt.Sprintf("%d of the %d people that it takes have approved it", n, a.Quorum)
	}
	asked := fmt.Sprintf("This call was not made: it needs a person's approval: %s. So far %s (effect %s, asked %s). A person can decide %s until %s.",
		strings.TrimSuffix(a.Why, "."), far, r.ID, stamp(a.RequestedAt), where, stamp(a.DecideUntil))
	out.Reason = before + asked + " " + noDetour + " Tell the user that it waits, and send exactly the same call again later: once it is approved, it is made."
	return out
}

// retryDecision is when it is worth asking again about a call that waits for people.
const retryDecision = 10 * time.Second

// lapsed is what a call is stopped with whose request, by the handle that it carries, came to nothing.
func (i *Interceptors) lapsed(id *effect.Identity, r *effect.Record, state effect.State) *info {
	out := newInfo(outcomeVoid, id, r)
	if state == effect.StateExpired {
		out.Outcome = outcomeExpired
	}
	out.State, out.ApprovalID, out.URL = string(state), r.Approval.ID, i.approvalURL(r)
	next := "To ask people once more, send exactly the same call again."
	switch {
	case r.State == effect.StateVoid:
		next = "Tell the user."
	case out.URL != "":
		next += " The request that lapsed is at " + out.URL + "."
	}
	out.Reason = lapse(r, state) + " The call was not made. " + noDetour + " " + next
	return out
}

// lapse says how a request for approval came to nothing.
func lapse(r *effect.Record, state effect.State) string {
	a := r.Approval
	switch {
	case state == effect.StateExpired:
		return fmt.Sprintf("Nobody decided on this call in time: the request expired %s. Silence is not consent.", stamp(a.DecideUntil))
	case r.State == effect.StateVoid && r.Reason != "":
		return fmt.Sprintf("The approval of this call is void since %s: %s.", stamp(r.ChangedAt), strings.TrimSuffix(r.Reason, "."))
	}
	return fmt.Sprintf("This call was approved, and not made in time: the approval is void since %s.", stamp(a.UseUntil))
}

// refusedBy is what a call is stopped with that a person has denied.
func refusedBy(id *effect.Identity, r *effect.Record) *info {
	out := newInfo(outcomeDenied, id, r)
	out.State, out.By, out.At = string(r.State), r.By, r.ChangedAt
	if r.Approval != nil {
		out.ApprovalID = r.Approval.ID
	}
	out.Reason = fmt.Sprintf("This call was not made: %s denied it %s (effect %s): %s. It stays denied however often it is sent. %s "+
		"Tell the user; a person can take it up again with `undolog reopen %s`.",
		r.By, stamp(r.ChangedAt), r.ID, strings.TrimSuffix(r.Reason, "."), noDetour, r.Reference())
	return out
}

// forbidden is what a call is stopped with that the policy does not allow.
func forbidden(reason string, id *effect.Identity, r *effect.Record) *info {
	out := newInfo(outcomeDenied, id, r)
	out.By = "policy"
	out.Reason = fmt.Sprintf("This call was not made: policy does not allow it: %s. %s Tell the user.", strings.TrimSuffix(reason, "."), noDetour)
	return out
}

func overLimit(reason string, id *effect.Identity, r *effect.Record) *info {
	out := newInfo(outcomeLimit, id, r)
	out.Reason = fmt.Sprintf("This call was not made: %s. Nothing was sent, and the same call is made once there is room. "+
		"Do not split it or try it in another way to stay below the limit; tell the user.", strings.TrimSuffix(reason, "."))
	return out
}

// strange is what a call is stopped with whose requestState is not one that it was given.
func strange(id *effect.Identity) *info {
	out := newInfo(outcomeConflict, id, nil)
	out.Reason = "This call was not made: its requestState is not one that was given for this call with these arguments. " +
		"Send the call again without requestState and inputResponses."
	return out
}

// editedNote is what a model reads beside the result of a call whose arguments a person has changed; empty for
// any other.
func editedNote(r *effect.Record) string {
	a := r.Approval
	if a == nil || !a.IsEdited() || r.State == effect.StateAwaitingApproval || r.State == effect.StateDenied {
		return ""
	}
	return fmt.Sprintf("UndoLog: a person approved this call with other arguments than were sent (effect %s). "+
		"What ran, and what this is the answer of, is %s. Do not make the call as it was first asked for.", r.ID, shown(r.Executed()))
}

// shown is JSON as a person or a model reads it in a sentence.
func shown(raw json.RawMessage) string {
	const most = 1000
	if len(raw) <= most {
		return string(raw)
	}
	return strings.ToValidUTF8(string(raw[:most]), "") + "… (" + fmt.Sprint(len(raw)) + " bytes in all)"
}

// question is what the person is asked who sees nothing but a text.
func question(r *effect.Record) string {
	text := fmt.Sprintf("The agent asks to call %s on %s with %s.", r.Tool, r.Server, shown(r.Executed()))
	if why := r.Approval.Why; why != "" {
		text += " Why you are asked: " + strings.TrimSuffix(why, ".") + "."
	}
	return text
}

// paragraphs joins the texts that are not empty.
func paragraphs(texts ...string) string {
	var kept []string
	for _, t := range texts {
		if t != "" {
			kept = append(kept, t)
		}
	}
	return strings.Join(kept, "\n")
}
