package interceptors

import "encoding/json"

// RespondKey is the error.data key under which a mutator of the request phase answers in the
// target's place.
const RespondKey = "dev.undolog/respond"

// RespondError is returned by a mutator of the request phase to answer in the target's place: the
// recorded result or error takes the upstream's place and the response phase goes on. On the wire it
// is the JSON-RPC error −32603 with data[RespondKey]; an engine that does not know the key sees an
// aborting failure and blocks. Exactly one of Result and Error is set; the bytes are not re-encoded.
type RespondError struct {
	Result json.RawMessage
	Err    json.RawMessage // a JSON-RPC error object
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
