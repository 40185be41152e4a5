package gateway

import (
	"encoding/json"
	"fmt"
)

// JSON-RPC error codes that the relay itself answers with.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

// RefusedError is a message that cannot be relayed: it is not JSON-RPC, or above a limit. The
// connection stands; a request is answered under its own id.
type RefusedError struct {
	ID      json.RawMessage // of the refused message, where it could be found; nil otherwise
	Method  string          // likewise; empty for a response
	Code    int
	Message string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("refuse message: %s", e.Message)
}

// IsRequest reports whether what was refused is a request that can be answered under its id.
func (e *RefusedError) IsRequest() bool { return e.ID != nil && e.Method != "" }

// IsResponse reports whether what was refused is the answer to a request of the other side.
func (e *RefusedError) IsResponse() bool { return e.ID != nil && e.Method == "" }
