package interceptors

import (
	"context"
	"encoding/json"
)

// Invocation is what a handler is given. Payload and Config are the handler's own copies, unless it
// ReadsOnly. The payload is bare: the wrapping {method, params}, where an invoker uses it, is taken off
// before and put back after.
type Invocation struct {
	Event   string
	Phase   Phase
	Payload json.RawMessage
	Config  json.RawMessage
	Context *Context // never nil
	Meta    json.RawMessage
	Caller  Caller
	Aside   Aside // nil where the engine cannot ask the target, as no remote one can
}

// Aside asks the target of an operation something beside it, on the operation's own connection, and returns
// the result member of the answer; an answer that is an error is an error. Nobody governs what is asked. It is
// safe for concurrent use for as long as the operation is under way.
type Aside func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)

// Verdict is what a validator says. The zero Verdict denies with a generic message; see Allow and Deny.
type Verdict struct {
	Valid       bool
	Severity    Severity // of an invalid verdict; defaults to error
	Messages    []Message
	Suggestions []Suggestion
	Info        json.RawMessage // an object, put under the result's info
}

// Change is what a mutator returns. A nil Payload means unchanged; one that means the same as what came
// counts as unchanged.
type Change struct {
	Payload json.RawMessage
	Info    json.RawMessage
	// Certain says that the handler answers for Payload and Info: they are JSON, Payload does not mean the
	// same as what came, and the members of a request's params that are the protocol's own (requestState,
	// inputResponses, in _meta progressToken and what is named io.modelcontextprotocol/…) are in it as they
	// came; and that Payload does not change any more. Nobody looks or copies, which spares large payloads
	// some readings. Defaults to no.
	Certain bool
}

// Validator judges a payload without changing it.
type Validator struct {
	Descriptor
	DefaultConfig json.RawMessage // used when an invocation has no config
	Validate      func(ctx context.Context, in *Invocation) (*Verdict, error)
	// ReadsOnly says that the handler changes no byte of what it is given, then or later: it gets the
	// invoker's own bytes, which do not change either, and no copies. Defaults to no.
	ReadsOnly bool
}

// Mutator changes a payload.
type Mutator struct {
	Descriptor
	DefaultConfig json.RawMessage
	Mutate        func(ctx context.Context, in *Invocation) (*Change, error)
	// ReadsOnly says that the handler changes no byte of what it is given, then or later: it gets the
	// invoker's own bytes, which do not change either, and no copies. Defaults to no.
	ReadsOnly bool
}
