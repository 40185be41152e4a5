package chain

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/undolog/undolog/interceptors"
)

// Reply is what the requester gets. Exactly one of Result and Error is set.
type Reply struct {
	Result  json.RawMessage // the result member
	Error   json.RawMessage // the error member, a JSON-RPC error object
	Outcome Outcome         // zero for what is not governed
	Pause   *Pause          // somebody must decide before the operation can run; nil mostly

	carries   bool       // the reply is the answer, not a word about its absence
	operation *operation // nil for what is not governed
}

// Exchange returns the operation as the observers saw it; nil for what is not governed.
func (r *Reply) Exchange() *Exchange {
	if r.operation == nil {
		return nil
	}
	return r.operation.exchange
}

// Delivered tells the observer whether the reply reached the requester: written to a connection that
// lives, and not cancelled before. Transports MUST call it once; false also stands for not knowing. A
// reply that carries no answer (a refusal, a timeout) never counts as one delivered.
func (r *Reply) Delivered(delivered bool) {
	r.deliveredAt(time.Now(), delivered)
}

func (r *Reply) deliveredAt(at time.Time, delivered bool) {
	if r.operation != nil && r.operation.told.CompareAndSwap(false, true) {
		r.operation.evidence.tell(r.operation, at, delivered && r.carries)
	}
}

// Deliver is Delivered for a transport that can say when the answer began to go out: send writes the
// reply and reports whether it reached the requester. A request that was received after that moment may
// have been made in the light of the answer, one received before was not.
func (r *Reply) Deliver(send func() bool) {
	at := time.Now()
	r.deliveredAt(at, send())
}

// Withdraw returns what takes back that the reply was delivered, for a transport that may find out later:
// the connection broke with the answer unread, or its requester cancelled as it came. It may be called
// before Deliver has returned, and more than once. It does not hold the reply.
func (r *Reply) Withdraw() func() {
	o := r.operation
	if o == nil {
		return func() {}
	}
	return func() { o.evidence.withdraw(o) }
}

// evidence is what is believed about an answer's arrival.
type evidence struct {
	mu        sync.Mutex
	delivered bool
	at        time.Time // when the answer began to go out
	withdrawn bool
}

func (e *evidence) tell(o *operation, at time.Time, delivered bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.delivered, e.at = delivered && !e.withdrawn, at
	o.delivered(context.Background(), at, e.delivered)
}

func (e *evidence) withdraw(o *operation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.withdrawn = true
	if e.delivered {
		e.delivered = false
		o.delivered(context.Background(), e.at, false)
	}
}

// The codes of JSON-RPC that a chain answers with.
const (
	codeInvalidParams = -32602
	codeInternal      = -32603
)

// errorMember is a JSON-RPC error object.
type errorMember struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

var errCancelled = genericError(codeInternal, "The request was cancelled", `{"reason":"cancelled"}`)

func genericError(code int64, message, data string) json.RawMessage {
	raw, _ := json.Marshal(errorMember{code, message, json.RawMessage(data)}) // constants always encode
	return raw
}

// abortError is what a requester learns of an operation that a phase stopped: in a trusted host's own
// words where it meant some for the requester, else nothing but the kind. Interceptors' messages can hold
// what they were put there to keep in.
func abortError(phase interceptors.Phase, r *PhaseResult) json.RawMessage {
	at := `,"phase":"` + string(phase) + `"}`
	switch {
	case r.Abort.Block != nil:
		return blockMember(withoutPause(r.Abort.Block))
	case r.Status == StatusTimeout:
		return genericError(codeInternal, "Interceptor execution timeout", `{"reason":"timeout"`+at)
	case r.Abort.Denied:
		return genericError(codeInvalidParams, "Interceptor validation failed", `{"reason":"denied"`+at)
	case r.Abort.Type == interceptors.TypeMutation:
		return genericError(codeInternal, "Interceptor mutation failed", `{"reason":"failed"`+at)
	}
	return genericError(codeInternal, "Interceptor execution failed", `{"reason":"failed"`+at)
}

func blockMember(b *interceptors.BlockError) json.RawMessage {
	m := errorMember{Code: b.Code, Message: b.Message, Data: b.Data}
	if m.Code == 0 {
		m.Code = codeInternal
	}
	if m.Message == "" {
		m.Message = "Blocked by an interceptor"
	}
	raw, err := json.Marshal(m)
	if err != nil { // data that is not JSON
		return genericError(codeInternal, "Blocked by an interceptor", `{"reason":"denied"}`)
	}
	return raw
}

// answerReply is the reply for a dispatch that nothing more is done about: explained where somebody can.
func answerReply(a Answer, explained *interceptors.BlockError) *Reply {
	switch {
	case a.Kind == Answered:
		return &Reply{Result: a.Result, Error: a.Error, carries: true}
	case explained != nil:
		return &Reply{Error: blockMember(explained)}
	case a.Kind == Unsent:
		return &Reply{Error: genericError(codeInternal, "The request was not sent", `{"reason":"unsent"}`)}
	case a.Cause == ErrTimeout:
		return &Reply{Error: genericError(codeInternal, "No answer from the target", `{"reason":"timeout"}`)}
	}
	return &Reply{Error: genericError(codeInternal, "No answer from the target", `{"reason":"lost"}`)}
}
