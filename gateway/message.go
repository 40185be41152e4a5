package gateway

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Message is one JSON-RPC message, kept as the bytes that came. Raw is the whole message; the other
// fields are slices of it or copies, so that a message which nobody changes is forwarded byte for byte:
// ids are never parsed into numbers (go-sdk takes them through float64) and unknown members survive.
type Message struct {
	Raw    json.RawMessage // the whole message; may hold newlines as white space between tokens
	ID     json.RawMessage // nil for a notification; the raw literal otherwise
	Method string          // empty for a response
	Params json.RawMessage // nil when absent or null
	Result json.RawMessage // nil when absent
	Error  json.RawMessage // nil when absent

	// Truncated is set by a Conn on a message above its size limit: Raw is nil, the id and method were
	// read where they could be found, the rest was discarded.
	Truncated bool
	Size      int64 // bytes on the wire

	// Lost is set by an upstream Conn to say that no answer to the request ID will come, for instance
	// because the HTTP response that should have carried it broke off. Cause says why. Raw is nil.
	Lost  bool
	Cause error

	// For is the id of the request on whose response stream the message came, where the transport tells
	// (Streamable HTTP upstreams); nil: unknown.
	For json.RawMessage

	// OnLoss is called by the Conn that m was written to when it finds out later that the agent did not read
	// it, because the connection broke with it unread. Nil: nobody wants to know.
	OnLoss func()

	// Header holds what the transport knows beside the message: HTTP request headers of the agent, nil on
	// stdio.
	Header map[string][]string

	// Added are headers that an interceptor wants an HTTP upstream to be sent with the message.
	Added map[string]string

	// Where the members stand in Raw; zero when absent.
	id, params, result span
}

// span is a range of Raw.
type span struct{ from, to int }

func (s span) isZero() bool { return s.to == 0 }

// IsRequest reports whether m wants an answer.
func (m *Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsNotification reports whether m is a notification.
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID == nil }

// IsResponse reports whether m answers a request.
func (m *Message) IsResponse() bool { return m.Method == "" }

// NewRequest returns a request. params may be nil.
func NewRequest(id json.RawMessage, method string, params json.RawMessage) *Message {
	b := make([]byte, 0, len(id)+len(method)+len(params)+64)
	b = append(b, `{"jsonrpc":"2.0"`...)
	m := &Message{ID: id, Method: method, Params: params}
	if id != nil {
		b = append(b, `,"id":`...)
		b, m.id = appendSpan(b, id)
	}
	b = append(b, `,"method":`...)
	b = appendString(b, method)
	if params != nil {
		b = append(b, `,"params":`...)
		b, m.params = appendSpan(b, params)
	}
	return m.seal(append(b, '}'))
}

// NewNotification returns a notification. params may be nil.
func NewNotification(method string, params json.RawMessage) *Message {
	return NewRequest(nil, method, params)
}

// NewResult returns the answer to request id; result goes in as it is.
func NewResult(id, result json.RawMessage) *Message {
	b := make([]byte, 0, len(id)+len(result)+40)
	m := &Message{ID: id, Result: result}
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b, m.id = appendSpan(b, orNull(id))
	b = append(b, `,"result":`...)
	b, m.result = appendSpan(b, result)
	return m.seal(append(b, '}'))
}

// NewErrorObject returns the error answer to request id; object, a JSON-RPC error, goes in as it is. A
// nil id is written as null.
func NewErrorObject(id, object json.RawMessage) *Message {
	b := make([]byte, 0, len(id)+len(object)+40)
	m := &Message{ID: id, Error: object}
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b, m.id = appendSpan(b, orNull(id))
	b = append(b, `,"error":`...)
	b = append(b, object...)
	return m.seal(append(b, '}'))
}

// NewError returns the error answer to request id. data may be nil.
func NewError(id json.RawMessage, code int, message string, data json.RawMessage) *Message {
	return NewErrorObject(id, errorObject(code, message, data))
}

// WithParams returns m with other params. Every other byte of it stays.
func (m *Message) WithParams(params json.RawMessage) *Message {
	n := *m
	n.Params = params
	if m.params.isZero() {
		return n.insert(`,"params":`, params)
	}
	return n.splice(m.params, params)
}

// WithID returns m under another id. Every other byte of it stays.
func (m *Message) WithID(id json.RawMessage) *Message {
	n := *m
	n.ID = id
	return n.splice(m.id, id)
}

// WithResult returns m with another result. Every other byte of it stays.
func (m *Message) WithResult(result json.RawMessage) *Message {
	n := *m
	n.Result = result
	return n.splice(m.result, result)
}

// splice replaces what stands at s, and moves the spans behind it along.
func (m *Message) splice(s span, with []byte) *Message {
	old := m.Raw
	b := make([]byte, 0, len(old)-(s.to-s.from)+len(with))
	b = append(b, old[:s.from]...)
	b = append(b, with...)
	b = append(b, old[s.to:]...)
	for _, p := range []*span{&m.id, &m.params, &m.result} {
		switch {
		case p.from > s.from:
			shift := len(with) - (s.to - s.from)
			p.from, p.to = p.from+shift, p.to+shift
		case *p == s:
			p.to = s.from + len(with)
		}
	}
	return m.seal(b)
}

// insert puts a new last member into the envelope.
func (m *Message) insert(name string, value []byte) *Message {
	end := bytes.LastIndexByte(m.Raw, '}')
	b := make([]byte, 0, len(m.Raw)+len(name)+len(value))
	b = append(b, m.Raw[:end]...)
	b = append(b, name...)
	b, m.params = appendSpan(b, value)
	return m.seal(append(b, m.Raw[end:]...))
}

func (m *Message) seal(raw []byte) *Message {
	m.Raw, m.Size = raw, int64(len(raw))
	return m
}

func appendSpan(b, value []byte) ([]byte, span) {
	from := len(b)
	b = append(b, value...)
	return b, span{from, len(b)}
}

func orNull(id json.RawMessage) json.RawMessage {
	if id == nil {
		return json.RawMessage("null")
	}
	return id
}

func errorObject(code int, message string, data json.RawMessage) json.RawMessage {
	b := make([]byte, 0, len(message)+len(data)+48)
	b = append(b, `{"code":`...)
	b = strconv.AppendInt(b, int64(code), 10)
	b = append(b, `,"message":`...)
	b = appendString(b, message)
	if data != nil {
		b = append(b, `,"data":`...)
		b = append(b, data...)
	}
	return append(b, '}')
}
