package gateway

import "encoding/json"

// Message is one JSON-RPC message, kept as the bytes that came. Raw is the whole message; the other
// fields are slices of it or copies, so that a message which nobody changes is forwarded byte for byte:
// ids are never parsed into numbers (go-sdk takes them through float64) and unknown members survive.
type Message struct {
	Raw    json.RawMessage // the whole message, compact or not; no newline
	ID     json.RawMessage // nil for a notification; the raw literal otherwise
	Method string          // empty for a response
	Params json.RawMessage // nil when absent
	Result json.RawMessage // nil when absent
	Error  json.RawMessage // nil when absent

	// Truncated is set by a Conn on a message above its size limit: Raw is nil, the id and method were
	// read where they could be found, the rest was discarded.
	Truncated bool
	Size      int64 // bytes on the wire

	// Lost is set by an upstream Conn in place of a response that will never come, because the connection
	// broke after the request had been written: only ID and Cause are set. What became of the request is
	// unknown.
	Lost  bool
	Cause error

	// For is the id of the request on whose response stream the message came, where the transport tells
	// (Streamable HTTP upstreams); nil: unknown.
	For json.RawMessage

	// Header holds what the transport knows beside the message: HTTP request headers of the agent, nil on
	// stdio.
	Header map[string][]string
}
