package interceptors

import (
	"encoding/json"
	"fmt"
)

// RespondKey is the error.data key under which a mutator of the request phase answers in the
// target's place.
const RespondKey = "dev.undolog/respond"

// RespondError is returned by a mutator of the request phase to answer in the target's place: the
// recorded result or error takes the upstream's place and the response phase goes on. On the wire it
// is the JSON-RPC error −32603 with data[RespondKey]; an engine that does not know the key sees an
// aborting failure and blocks. Exactly one of Result and Err is set; the bytes are not re-encoded. They are what a
// target has answered: an object by the protocols, any JSON in fact.
type RespondError struct {
	Result json.RawMessage // a JSON-RPC result
	Err    json.RawMessage // a JSON-RPC error
	Info   json.RawMessage // an object, for the record and for the engine's info
}

func (e *RespondError) Error() string { return "answered in the target's place" }

// BlockError is returned by a handler to stop the operation with an error that is meant for the
// requester: its message and data are shown to it, where any other error is reported as a generic
// failure. On the wire it is that JSON-RPC error.
type BlockError struct {
	Code    int64 // defaults to −32603
	Message string
	Data    json.RawMessage // an object
}

func (e *BlockError) Error() string { return e.Message }

// ParamsError says why the params of an interceptor method cannot be used. On the wire it is −32602.
type ParamsError struct {
	Name     string // the interceptor asked for; may be empty
	Problems []Problem
}

// Problem is one fault at one place of the params, or of the config when it does not fit the
// interceptor's schema.
type Problem struct {
	Path    string `json:"path"` // a JSON pointer
	Message string `json:"message"`
}

func (e *ParamsError) Error() string {
	if len(e.Problems) == 0 {
		return "invalid params"
	}
	return "invalid params: " + e.Problems[0].Path + " " + e.Problems[0].Message
}

// NotFoundError says that the server has no interceptor of this name. On the wire it is −32602.
type NotFoundError struct{ Name string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("unknown interceptor %q", e.Name) }

// HookError says that the interceptor does not run on this event in this phase. On the wire it is −32602.
type HookError struct {
	Name  string
	Event string
	Phase Phase
	Hooks []Hook // those that it advertises
}

func (e *HookError) Error() string {
	return fmt.Sprintf("interceptor %q has no hook for %s %s", e.Name, e.Event, e.Phase)
}

// TimeoutError says that a handler was not done after the invocation's time. Its context was cancelled
// and its late result is discarded. On the wire it is −32603.
type TimeoutError struct {
	Interceptor string
	Phase       Phase
	TimeoutMs   int64
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("interceptor %q: no result after %d ms", e.Interceptor, e.TimeoutMs)
}

// CrashError says that a handler failed: it returned an error or a result that cannot be used, it
// panicked, or its caller's context ended. Reason is what the invoker is told; the cause is for the log
// and never reaches the wire, where this is −32603.
type CrashError struct {
	Interceptor string
	Reason      string
	Err         error
}

func (e *CrashError) Error() string {
	return fmt.Sprintf("interceptor %q: %s: %v", e.Interceptor, e.Reason, e.Err)
}

func (e *CrashError) Unwrap() error { return e.Err }
