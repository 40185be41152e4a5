package effect

import "time"

// Facts is what the log knows about a call when it decides: gathered and acted upon in one
// transaction.
type Facts struct {
	Latest         *Record // latest generation of the call's signature; nil: never seen
	Now            time.Time
	OtherWrites    bool    // the caller has begun another write on that server since Latest was begun
	Again          bool    // a person allowed one more run of Latest, not yet used
	Lookalike      *Record // an equal call under another rule or run, open or within its window
	LookalikeAgain bool    // a person allowed one more run of Lookalike, not yet used
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
	ActAsk      Action = "ask"      // policy wants a person to say so first
)

// Verdict is the decision on one call, with its reason in words a model can act on.
type Verdict struct {
	Action     Action
	Generation int    // for ActInsert
	Attempt    int    // for ActReclaim and ActContinue
	Repeat     bool   // for ActReplay: a delivered repeat, to be annotated for the model
	UsesAgain  string // effect id whose granted run this uses up; empty: none
	Lookalike  string // effect id of the look-alike to note on the new record
	Reason     string
}
