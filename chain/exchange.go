package chain

import (
	"context"
	"encoding/json"
	"time"

	"github.com/undolog/undolog/interceptors"
)

// Request is one operation as it reached the interception point.
type Request struct {
	Event     string          // the method, or a custom namespace/operation
	Params    json.RawMessage // bare params; nil means absent
	Protocol  string          // negotiated MCP revision, for compat; empty: unknown
	Caller    interceptors.Caller
	Principal *interceptors.Principal
	SessionID string // attribution
	// FromServer says that the server asks the client (sampling, elicitation, roots): the payload crosses
	// the boundaries the other way.
	FromServer bool
	// ReceivedAt is when the request reached the interception point: interceptors see it as
	// context.timestamp. Zero: now.
	ReceivedAt time.Time
	TraceID    string
	SpanID     string

	// Attributes travel to interceptors as members of context (reverse-DNS keys); what a gateway learned
	// outside the params, such as an HTTP header.
	Attributes map[string]json.RawMessage

	// Aside asks the operation's target something beside the operation: interceptors in the same process are
	// given it in the request phase. Nil: nobody can.
	Aside interceptors.Aside

	// Pause is asked in the place of Observer.Pause, by a gateway that can hold this request or ask its own
	// requester. Nil: Observer.Pause is.
	Pause func(ctx context.Context, x *Exchange, p *Pause) (again bool)
}

// Answer is how an operation ended, seen from the target's side of the chain. Exactly one of Result and
// Error is set when Kind is Answered.
type Answer struct {
	Kind   AnswerKind
	Result json.RawMessage // the result member, untouched bytes
	Error  json.RawMessage // the error member, untouched bytes
	Cause  error           // for Unsent and Lost
}

// AnswerKind says what is known of a dispatch.
type AnswerKind string

const (
	Answered AnswerKind = "answered"
	Unsent   AnswerKind = "unsent" // proof that not one byte was written
	Lost     AnswerKind = "lost"   // written, wholly or in part, and no answer
)

// Upstream dispatches one operation to its target: the only place that calls out. It blocks until the
// answer is there or ctx ends; ctx is not the caller's when the dispatch is detached. params are the
// bytes that the request phase left; nothing may be changed in them.
type Upstream func(ctx context.Context, params json.RawMessage) Answer

// Exchange is one operation under way, as the observers of Options see it.
type Exchange struct {
	ID      string // correlation id, equal in both phases, new for each
	Request *Request
	Params  json.RawMessage // after the request phase
	Started time.Time
}

// DispatchKey is the info key under which an interceptor of the request phase says how its operation
// is to be dispatched. Honoured from in-process entries and trusted hosts.
const DispatchKey = "dev.undolog/dispatch"

// ExchangeKey is the context member that carries Exchange.ID.
const ExchangeKey = "dev.undolog/exchange"

// Dispatch says how an operation is dispatched.
type Dispatch struct {
	// Detach keeps a dispatch going when its caller cancels or disconnects: the answer is awaited and
	// settled without the caller.
	Detach bool `json:"detach,omitempty"`
	// TimeoutMs is how long an answer is awaited before the dispatch counts as lost. A later answer is
	// still settled. Zero: no limit.
	TimeoutMs int64 `json:"timeoutMs,omitempty"`
	// Headers go out beside the params, where the target is reached by HTTP: the Upstream reads them by
	// Headers. They MUST NOT be those of the protocol.
	Headers map[string]string `json:"headers,omitempty"`
}

type headersKey struct{}

// Headers returns what the request phase left in Dispatch.Headers. ctx is an Upstream's; the map MUST NOT be
// changed.
func Headers(ctx context.Context) map[string]string {
	h, _ := ctx.Value(headersKey{}).(map[string]string)
	return h
}

// Verdict says how an operation went through the chain, for the Outcome observer.
type Verdict string

const (
	Allowed   Verdict = "allowed"   // dispatched, and its answer passed the response phase
	Responded Verdict = "responded" // an interceptor answered in the target's place
	Blocked   Verdict = "blocked"   // an interceptor stopped it, in either phase
	Failed    Verdict = "failed"    // an interceptor or the dispatch failed
	Detached  Verdict = "detached"  // the caller left; the dispatch goes on
)

// Outcome is told to the Outcome observer once per operation.
type Outcome struct {
	Verdict Verdict
	Phase   interceptors.Phase // where it was decided
	By      string             // the interceptor that blocked, responded or failed
	Reason  string             // for the log; never sent to the requester
}

// Observer is told about exchanges. Nil funcs are skipped. They are called in the exchange's own
// goroutine.
type Observer struct {
	// Sending is asked right before an operation is sent whether it still may be: an error settles it as Unsent.
	// Nil: it may.
	Sending func(ctx context.Context, x *Exchange) error
	// Settled is called for every dispatch that the request phase let through, as soon as its end is
	// known: answered, lost, unsent, or stopped by the engine before it was sent (Unsent). It runs outside
	// every deadline and the caller's context. After Lost it is called once more when an answer still
	// comes, and after Unsent once more when an interceptor that was given up on returns only then: what
	// it did for the exchange is not needed either. It returns when the end is recorded; its own failures are its own to retry.
	Settled func(ctx context.Context, x *Exchange, a Answer)
	// Explain is asked, after Settled, for the error that the requester gets when the dispatch ended Lost or
	// Unsent. Nil: a generic one.
	Explain func(ctx context.Context, x *Exchange, a Answer) *interceptors.BlockError
	// Delivered is called once per exchange, after the last Settled: whether the answer reached the
	// requester. It is false too where that is not known, where the reply was no answer, and for an answer
	// that came after the requester had left or been told of a timeout. It is called once more, with the
	// same time and false, when an answer that counted as delivered turns out not to have been.
	Delivered func(ctx context.Context, x *Exchange, at time.Time, delivered bool)
	// Pause is asked when a trusted interceptor stops the request phase and says that somebody must
	// decide. It may wait, for as long as ctx, the caller's, lasts: true lets the request phase run once
	// more from the start, as an exchange of its own that carries Pause.Handle; false blocks the operation.
	// No deadline of the chain counts meanwhile. Nil: blocked at once. What it is about stands in
	// Reply.Pause either way.
	Pause func(ctx context.Context, x *Exchange, p *Pause) (again bool)
	// Await returns nil when what a pause waits for is decided, or can be no more; Chain.Await asks it.
	Await func(ctx context.Context, x *Exchange, p *Pause) error
	// Decide records what the user of the requester's host says to a pause; Chain.Decide asks it.
	Decide func(ctx context.Context, x *Exchange, p *Pause, d *Decision) error
	// Followed is called when somebody begins to follow an operation by its handle, and with false when that
	// ends without its end.
	Followed func(ctx context.Context, x *Exchange, following bool)
	// Ended is called with the end of an operation that was followed by its handle, its requester not asking.
	// Lost: nobody can tell any more.
	Ended func(ctx context.Context, x *Exchange, a Answer)
	// Unfinished lists operations of processes that are no more, whose answer was a handle; Chain.Unfinished asks it.
	Unfinished func(ctx context.Context, r *Request) ([]Unfinished, error)
	// Outcome is called once per operation, and once more when a handle of it is resumed.
	Outcome func(ctx context.Context, x *Exchange, o Outcome)
}
