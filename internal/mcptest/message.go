package mcptest

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Message is one JSON-RPC message. All members but Method are the bytes that came.
type Message struct {
	Raw    json.RawMessage `json:"-"`
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// ParseMessage reads an envelope.
func ParseMessage(raw []byte) (Message, error) {
	m := Message{Raw: bytes.Clone(raw)}
	if err := json.Unmarshal(raw, &m); err != nil {
		return Message{}, fmt.Errorf("parse message %.200q: %w", raw, err)
	}
	return m, nil
}

// IsResponse reports whether m answers the request whose id has the literal id.
func (m Message) IsResponse(id string) bool { return m.Method == "" && string(m.ID) == id }

// IsRequest reports whether m asks for an answer.
func (m Message) IsRequest() bool { return m.Method != "" && len(m.ID) > 0 }

// ToolResult is the part of a tools/call result that tests look at.
type ToolResult struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	StructuredContent json.RawMessage            `json:"structuredContent"`
	IsError           bool                       `json:"isError"`
	ResultType        string                     `json:"resultType"`
	RequestState      string                     `json:"requestState"`
	Meta              map[string]json.RawMessage `json:"_meta"`
}

// Tool decodes the result of a tools/call. It is an error when m holds none.
func (m Message) Tool() (ToolResult, error) {
	var r ToolResult
	if m.Result == nil {
		return r, fmt.Errorf("message has no result: %.500s", m.Raw)
	}
	err := json.Unmarshal(m.Result, &r)
	return r, err
}

// RPCError is a JSON-RPC error object.
type RPCError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// Err decodes the error of a response. It is an error when m holds none.
func (m Message) Err() (RPCError, error) {
	var e RPCError
	if m.Error == nil {
		return e, fmt.Errorf("message has no error: %.500s", m.Raw)
	}
	err := json.Unmarshal(m.Error, &e)
	return e, err
}

// Request spells a request with its params, which may be empty.
func Request(id, method, params string) string {
	if params == "" {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q}`, id, method)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

// ToolCall spells a tools/call. meta is the inner text of further _meta members and may be empty.
func ToolCall(id, tool, arguments, meta string) string {
	return Request(id, "tools/call", ToolParams(tool, arguments, meta))
}

// ToolParams spells the params of a tools/call.
func ToolParams(tool, arguments, meta string) string {
	if meta == "" {
		return fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments)
	}
	return fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":{%s}}`, tool, arguments, meta)
}

// MetaMembers spells what every request of 2026-07-28 carries in its _meta.
const MetaMembers = `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"mcptest","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}`
