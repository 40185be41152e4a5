package enginecheck

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/undolog/undolog/conformance"
)

// upstream is the MCP server that an engine stands before: it notes what it is called with and answers as
// it is told, byte for byte. It speaks 2025-11-25 without sessions.
type upstream struct {
	tools json.RawMessage

	mu     sync.Mutex
	answer *conformance.Upstream
	got    json.RawMessage
}

func newUpstream(names []string) *upstream {
	type tool struct {
		Name        string          `json:"name"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	var list struct {
		Tools []tool `json:"tools"`
	}
	for _, name := range names {
		list.Tools = append(list.Tools, tool{name, json.RawMessage(`{"type":"object"}`)})
	}
	raw, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings
	}
	return &upstream{tools: raw}
}

// script says how the next call is answered, and forgets the last.
func (u *upstream) script(answer *conformance.Upstream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answer, u.got = answer, nil
}

// received is what the last call since script had for params; nil without one.
func (u *upstream) received() json.RawMessage {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.got
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var q struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if q.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	member, value := u.handle(q.Method, q.Params)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%q:%s}`, q.ID, member, value)
}

// handle returns the member of the answer and its value.
func (u *upstream) handle(method string, params json.RawMessage) (string, json.RawMessage) {
	switch method {
	case "initialize":
		return "result", json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"conformance-upstream","version":"1"}}`)
	case "ping":
		return "result", json.RawMessage("{}")
	case "tools/list":
		return "result", u.tools
	case "tools/call":
		u.mu.Lock()
		defer u.mu.Unlock()
		u.got = params
		if u.answer != nil && u.answer.Error != nil {
			return "error", u.answer.Error
		}
		if u.answer != nil && u.answer.Result != nil {
			return "result", u.answer.Result
		}
		return "result", json.RawMessage(`{"content":[]}`)
	}
	return "error", json.RawMessage(`{"code":-32601,"message":"method not found"}`)
}
