package enginecheck

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/internal/splice"
)

// upstream is the MCP server that an engine stands before: it notes what it is called with and answers as
// it is told, byte for byte. It speaks 2025-11-25 without sessions, and 2026-07-28.
type upstream struct {
	tools json.RawMessage

	mu     sync.Mutex
	method string // of the call that answer is for
	answer *conformance.Upstream
	got    json.RawMessage
	reply  json.RawMessage      // to the question
	asking chan json.RawMessage // gets it; nil while nothing is asked
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
func (u *upstream) script(method string, answer *conformance.Upstream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.method, u.answer, u.got, u.reply, u.asking = method, answer, nil, nil, nil
	if answer.Asks != nil {
		u.asking = make(chan json.RawMessage, 1)
	}
}

// told is what the last question was answered with; nil without an answer.
func (u *upstream) told() json.RawMessage {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reply
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
	if q.ID == nil || q.Method == "" {
		u.takeReply(q.ID, body)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	member, value := u.handle(q.Method, q.Params)
	answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%q:%s}`, q.ID, member, compact(value))
	before := u.before(q.Method)
	if len(before.Notes)+len(before.Notifies) == 0 && before.Asks == nil {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, note := range before.Notes {
		notify(w, "notifications/progress", note)
	}
	for _, n := range before.Notifies {
		notify(w, n.Method, subscribed(q.Method, q.ID, n.Params))
	}
	if before.Asks != nil {
		u.ask(r.Context(), w, before.Asks)
	}
	fmt.Fprintf(w, "event: message\ndata: %s\n\n", answer)
}

func notify(w io.Writer, method string, params json.RawMessage) {
	fmt.Fprintf(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":%q,\"params\":%s}\n\n", method, compact(params))
}

// subscribed names the subscription, which is the request that listens, in the params of its notifications.
func subscribed(method string, id, params json.RawMessage) json.RawMessage {
	if method != "subscriptions/listen" {
		return params
	}
	named, err := splice.Set(params, id, "_meta", "io.modelcontextprotocol/subscriptionId")
	if err != nil {
		return params
	}
	return named
}

const questionID = `"upstream-question"`

// takeReply takes the answer to the question.
func (u *upstream) takeReply(id, body json.RawMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if string(id) == questionID && u.asking != nil && u.reply == nil {
		u.reply = body
		u.asking <- body
	}
}

// before is what goes before the answer to a method.
func (u *upstream) before(method string) *conformance.Upstream {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.answer == nil || method != u.method {
		return new(conformance.Upstream)
	}
	return u.answer
}

// ask puts the question on the stream and waits for its answer.
func (u *upstream) ask(ctx context.Context, w http.ResponseWriter, q *conformance.Question) {
	u.mu.Lock()
	answered := u.asking
	u.mu.Unlock()
	fmt.Fprintf(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":%q,\"params\":%s}\n\n", questionID, q.Method, compact(q.Params))
	_ = http.NewResponseController(w).Flush() // a lost engine is found by the agent
	select {
	case <-answered:
	case <-ctx.Done():
	}
}

func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// handle returns the member of the answer and its value.
func (u *upstream) handle(method string, params json.RawMessage) (string, json.RawMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if method == u.method && u.answer != nil {
		u.got = params
		if u.answer.Error != nil {
			return "error", u.answer.Error
		}
		if u.answer.Pad > 0 {
			return "result", fmt.Appendf(nil, `{"content":[{"type":"text","text":"%s"}]}`, strings.Repeat("x", u.answer.Pad))
		}
		return "result", u.answer.Result
	}
	switch method {
	case "initialize":
		return "result", json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"conformance-upstream","version":"1"}}`)
	case "server/discover":
		return "result", json.RawMessage(`{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}},` +
			`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"conformance-upstream","version":"1"}}}`)
	case "ping":
		return "result", json.RawMessage("{}")
	case "tools/list":
		return "result", u.tools
	}
	return "error", json.RawMessage(`{"code":-32601,"message":"method not found"}`)
}
