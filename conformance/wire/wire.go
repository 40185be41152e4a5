// Package wire speaks JSON-RPC to MCP peers with every byte in hand: what an SDK would mend, hide or
// refuse to send is what a conformance check is about.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/internal/splice"
)

// Revisions of MCP that the checks speak.
const (
	Legacy    = "2025-11-25" // with a handshake
	Stateless = "2026-07-28" // with _meta in every request
)

// Conn is a peer that answers requests.
type Conn interface {
	// Call sends one request and returns the answer. Params are sent as they stand, but for _meta, which is
	// added on Stateless.
	Call(ctx context.Context, method string, params json.RawMessage) (*conformance.Answer, error)
	// CallAs is Call under an id of the caller's choice, a JSON text that no other request has. The answer is
	// taken under the same id in any spelling, a number as a string included, and the only one that is awaited
	// under none: Raw shows which it was.
	CallAs(ctx context.Context, id json.RawMessage, method string, params json.RawMessage) (*conformance.Answer, error)
	// Notify sends a notification, and returns what HTTP answers to it; nil without HTTP.
	Notify(ctx context.Context, method string, params json.RawMessage) (*conformance.Answer, error)
	// Revision is what Call speaks.
	Revision() string
	Close() error
}

const rightMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
	`"io.modelcontextprotocol/clientInfo":{"name":"undolog-conformance","version":"` + conformance.SuiteVersion + `"}}`

// Initialize are the params of a right legacy handshake.
const Initialize = `{"protocolVersion":"2025-11-25","capabilities":{"sampling":{},"elicitation":{},"roots":{}},"clientInfo":{"name":"undolog-conformance","version":"` +
	conformance.SuiteVersion + `"}}`

// WithMeta adds what Stateless demands in _meta to params, keeping what is there.
func WithMeta(params json.RawMessage) (json.RawMessage, error) {
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	meta := splice.Get(params, "_meta")
	if meta == nil {
		return splice.Set(params, []byte(rightMeta), "_meta")
	}
	var err error
	if eachErr := splice.Each([]byte(rightMeta), func(name string, value []byte) {
		if err == nil && splice.Get(meta, name) == nil {
			meta, err = splice.Set(meta, value, name)
		}
	}); eachErr != nil {
		return nil, eachErr
	}
	if err != nil {
		return nil, fmt.Errorf("add _meta: %w", err)
	}
	return splice.Set(params, meta, "_meta")
}

// encodeRequest writes a request; nil params are left out.
func encodeRequest(id json.RawMessage, method string, params json.RawMessage) []byte {
	name, _ := json.Marshal(method) // a string
	if params == nil {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%s}`, id, name)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}`, id, name, compact(params))
}

// encodeNotification writes a notification.
func encodeNotification(method string, params json.RawMessage) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":%s}`, method, compact(params))
}

// number is n as an id.
func number(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }

// loose is equal for ids that differ in nothing but that one is a string.
func loose(id json.RawMessage) string { return strings.Trim(string(id), `"`) }

// compact puts params on one line, as stdio needs; what is no JSON stays as it is.
func compact(params json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, params) != nil {
		return bytes.ReplaceAll(params, []byte("\n"), []byte(" "))
	}
	return b.Bytes()
}

// Message is a JSON-RPC message as it came.
type Message struct {
	JSONRPC string                 `json:"jsonrpc"`
	ID      json.RawMessage        `json:"id"`
	Method  string                 `json:"method"`
	Params  json.RawMessage        `json:"params"`
	Result  json.RawMessage        `json:"result"`
	Error   *conformance.WireError `json:"error"`
}

// answer reads a response and says what is wrong with its envelope.
func answer(raw []byte) (*conformance.Answer, error) {
	var m Message
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("read answer %.200q: %w", raw, err)
	}
	switch {
	case m.JSONRPC != "2.0":
		return nil, fmt.Errorf("answer without jsonrpc 2.0: %.200s", raw)
	case (m.Result == nil) == (m.Error == nil):
		return nil, fmt.Errorf("answer with not exactly one of result and error: %.200s", raw)
	}
	return &conformance.Answer{Result: m.Result, Error: m.Error, Raw: raw}, nil
}
