package effect

import (
	"encoding/json"
	"time"
)

// AnswerKind says what kind of message ended, or interrupted, an attempt.
type AnswerKind string

const (
	AnswerNone   AnswerKind = ""       // no message: lost, or never sent
	AnswerResult AnswerKind = "result" // a JSON-RPC result, isError results included
	AnswerError  AnswerKind = "error"  // a JSON-RPC error object
)

// Answer is an answer of the target, as the bytes that came.
type Answer struct {
	Kind    AnswerKind
	Body    json.RawMessage // the result member, or the error member; never re-encoded
	IsError bool            // a result with isError:true
	Pruned  bool            // the bytes are no longer kept: Body says so in their place
}

// Claim is the right to dispatch one attempt, and the fence of its owner: it is presented when the
// attempt is settled, and loses against whoever moved the effect since.
type Claim struct {
	Effect  string // effect id, a UUIDv7
	Tenant  string
	Attempt int    // from 1
	Ordinal int    // of the transition that made the claim, from 0
	Owner   string // process id of the claimant
}

// Record is one effect as the log has it: what was called, by whom, and where it stands.
type Record struct {
	ID          string // UUIDv7; time-ordered
	Seq         int64  // order of recording in this store
	Tenant      string
	Principal   string
	Session     string
	Trace       string
	Server      string
	Tool        string
	Tier        Tier
	Rule        Rule
	Scope       string
	Signature   Signature
	Window      Signature
	Generation  int // from 1; a wanted repeat is the next generation
	Key         string
	Run         string
	Occurrence  string
	Arguments   json.RawMessage // complete final arguments as they went out
	ArgsDigest  Digest          // identity arguments
	Complete    Digest          // complete arguments
	Policy      string          // digest of the policy in force, empty without one
	Source      string          // where the contract came from
	LookalikeOf string          // effect id of an equal call under another rule or run
	CreatedAt   time.Time

	State      State     // as recorded; see StateAt
	Attempt    int       // the current attempt
	Ordinal    int       // of the last transition
	Owner      string    // process that holds the claim
	OwnerUntil time.Time // when the owner's heartbeat runs out; zero: the owner has ended or is unknown
	LeaseUntil time.Time // fixed lease of a remote invoker's claim; zero: the heartbeat decides
	TimeoutAt  time.Time // when the attempt counts as lost although its owner lives
	ChangedAt  time.Time // time of the last transition
	By         string    // who moved it last when that was a person
	Reason     string    // why, for resolve and release
	Answer     Answer    // of the last settled or waiting transition
	Approval   *Approval // of the last request; nil: never asked. Shared between records, not to be changed
	Delivered  bool      // the answer is known to have reached the agent
	ArrivedAt  time.Time // when it began to, if Delivered

	// Continuation is the requestState or task id by which a waiting attempt goes on. A claim that
	// continues the attempt keeps it, so that the round can be recognised when it is sent again.
	Continuation string
}

// Reference is how a person names the effect to a command: its id, with the tenant where that is not the
// default one.
func (r *Record) Reference() string {
	if r.Tenant == "" || r.Tenant == DefaultTenant {
		return r.ID
	}
	return r.ID + " --tenant " + r.Tenant
}

// Transition is one move of an effect, the unit of the log.
type Transition struct {
	Effect     string
	Ordinal    int
	Attempt    int
	State      State
	At         time.Time
	Owner      string
	LeaseUntil time.Time
	TimeoutAt  time.Time
	By         string
	Reason     string
	Answer     Answer

	Continuation string    // of a transition to StateWaiting
	Approval     *Approval // as the move leaves it; nil: the move is of an effect that awaits none
}

// Event is something worth telling that moves no state: delivered, repeat refused, unmatched
// response, tool definition changed, again granted.
type Event struct {
	Seq       int64
	At        time.Time
	Tenant    string
	Effect    string // empty when it concerns none
	Kind      string // one of the Event… constants
	Principal string
	Server    string
	Tool      string
	Detail    json.RawMessage // an object; never payloads
}

// Kinds of events.
const (
	EventDelivered    = "delivered"           // the answer reached its agent
	EventReplayed     = "replayed"            // a call was answered from the record
	EventRefused      = "refused"             // a call was stopped, and nobody was asked: a conflict, a limit, a denial
	EventAgain        = "again"               // a person allowed one more run
	EventAgainUsed    = "again_used"          // and it was used
	EventUnmatched    = "unmatched_response"  // a response answers no call that is known
	EventToolChanged  = "tool_changed"        // a tool's definition is another one than before
	EventAltered      = "altered_after_claim" // the target was sent another effect than was claimed
	EventLate         = "late_answer"         // an answer came when the effect was settled otherwise
	EventOperation    = "operation"           // a governed operation that is no effect, seen through a foreign engine
	EventReminder     = "reminder"            // the time to decide on a request is nearly over
	EventShadow       = "shadow"              // a call ran that would have been answered otherwise
	EventGranted      = "granted"             // a standing grant stood for an approval
	EventResultSchema = "result_schema"       // a result is not as its tool's schema says; it was recorded and answered
	EventTold         = "told"                // people were told of a change of the effect, or are still to be
	EventStopped      = "stopped"             // an interceptor stopped an operation
)
