// Command brokenengine is an engine with one fault of choice, for tests of the conformance runner: -fault
// NAME, or none for a good one. It stands between an agent on standard input and output, or over HTTP with
// -http, and an MCP server, and asks one interceptor host. It is written without the project's library, so
// that the two cannot share a mistake.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

var (
	fault    = flag.String("fault", "", "what is wrong")
	hosts    = flag.String("hosts", "", "URL of the interceptor host")
	upstream = flag.String("upstream", "", "URL of the MCP server")
	posture  = flag.String("posture", "client", "client or server")
	listen   = flag.String("http", "", "serve agents on HTTP at this address")
)

func is(name string) bool { return *fault == name }

// agent is who calls: what it is told beside answers, what it answers to a question, and who it is.
type agent struct {
	say       func(raw []byte)
	hear      func() ([]byte, error)
	principal string
	protocol  string // of its last request
}

type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`

	streamed bool
}

func main() {
	flag.Parse()
	if *listen != "" {
		panic(http.ListenAndServe(*listen, http.HandlerFunc(serve)))
	}
	in := bufio.NewReader(os.Stdin)
	a := &agent{say: func(raw []byte) { fmt.Printf("%s\n", raw) }, hear: func() ([]byte, error) { return in.ReadBytes('\n') }}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var q message
		if json.Unmarshal(line, &q) != nil || q.ID == nil {
			continue
		}
		a.say(reply(q.ID, a.answer(&q)))
	}
}

func reply(id json.RawMessage, m *message) []byte {
	if is("id-as-string") && id[0] != '"' {
		id = json.RawMessage(`"` + string(id) + `"`)
	}
	member, value := "result", m.Result
	if m.Error != nil {
		member, value = "error", m.Error
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,%q:%s}`, id, member, compact(value))
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return raw
	}
	return b.Bytes()
}

func (a *agent) answer(q *message) *message {
	a.protocol = protocolOf(q.Params)
	switch q.Method {
	case "initialize":
		return &message{Result: json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"e","version":"1"}}`)}
	case "tools/call", "tools/list":
		return a.exchange(q)
	}
	m, err := a.post(*upstream, q.Method, q.Params)
	switch {
	case err != nil:
		return refusal("the server cannot be reached")
	case q.Method == "tasks/get" && m.Result != nil && !is("tasks-unseen"):
		return a.taskEnd(m)
	case q.Method == "tasks/result" && m.Result != nil && !is("task-results-unseen"):
		result, blocked := a.run("tools/call", "response", m.Result)
		if blocked != nil {
			return refusalOf(blocked)
		}
		return &message{Result: result}
	}
	return m
}

// protocolOf is the revision that a request names, else the one of the handshake.
func protocolOf(params json.RawMessage) string {
	var p struct {
		Meta struct {
			Protocol string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(params, &p) // params that cannot be read name none
	return cmp.Or(p.Meta.Protocol, "2025-11-25")
}

// taskEnd takes the result inside a task's answer through the response phase.
func (a *agent) taskEnd(m *message) *message {
	raw, blocked := a.taskOf(m.Result)
	if blocked != nil {
		return refusalOf(blocked)
	}
	return &message{Result: raw}
}

// taskOf is a task with its result, if it has one, as the response phase leaves that.
func (a *agent) taskOf(raw json.RawMessage) (json.RawMessage, error) {
	var task map[string]json.RawMessage
	if json.Unmarshal(raw, &task) != nil || task["result"] == nil {
		return raw, nil
	}
	result, blocked := a.run("tools/call", "response", task["result"])
	if blocked != nil {
		return nil, blocked
	}
	task["result"] = result
	return json.Marshal(task)
}

func refusal(text string) *message {
	if is("refuses-without-a-word") {
		text = ""
	}
	raw, err := json.Marshal(map[string]any{"code": -32603, "message": text})
	if err != nil {
		panic(err)
	}
	return &message{Error: raw}
}

// exchange takes one call through both phases.
func (a *agent) exchange(q *message) *message {
	params, blocked := a.run(q.Method, "request", q.Params)
	if blocked != nil {
		return refusalOf(blocked)
	}
	m, err := a.post(*upstream, q.Method, params)
	if err != nil {
		return refusal("the server cannot be reached")
	}
	switch {
	case is("no-response-phase"), is("streams-unseen") && m.streamed:
		return m
	case m.Error != nil && is("governs-errors"):
		if _, blocked := a.run(q.Method, "response", m.Error); blocked != nil {
			return refusalOf(blocked)
		}
		return m
	case m.Error != nil:
		return m
	case is("ignores-is-error") && bytes.Contains(compact(m.Result), []byte(`"isError":true`)):
		return m
	}
	result, blocked := a.run(q.Method, "response", m.Result)
	if blocked == nil && !is("rounds-unseen") {
		result, blocked = a.questions(result)
	}
	if blocked != nil {
		if is("leaks-result") {
			return refusal("blocked: " + string(m.Result))
		}
		return refusalOf(blocked)
	}
	return &message{Result: a.scoped(q.Method, m.Result, result)}
}

// questions takes what a result asks of the agent through the request phase of what it asks.
func (a *agent) questions(result json.RawMessage) (json.RawMessage, error) {
	var r map[string]json.RawMessage
	if json.Unmarshal(result, &r) != nil || string(r["resultType"]) != `"input_required"` {
		return result, nil
	}
	var asked map[string]map[string]json.RawMessage
	if err := json.Unmarshal(r["inputRequests"], &asked); err != nil {
		return nil, err
	}
	for _, question := range asked {
		var method string
		err := json.Unmarshal(question["method"], &method)
		if err == nil {
			question["params"], err = (&operation{method, "request", true, a}).run(question["params"])
		}
		if err != nil {
			return nil, err
		}
	}
	raw, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	r["inputRequests"] = raw
	return json.Marshal(r)
}

// scoped marks a list that mutators have looked at as the agent's own.
func (a *agent) scoped(method string, sent, result json.RawMessage) json.RawMessage {
	if method != "tools/list" || is("lists-public") || bytes.Equal(sent, result) {
		return result
	}
	var r map[string]json.RawMessage
	if json.Unmarshal(result, &r) != nil {
		return result
	}
	r["cacheScope"] = json.RawMessage(`"private"`)
	raw, err := json.Marshal(r)
	if err != nil {
		return result
	}
	return raw
}

func refusalOf(why error) *message {
	if is("leaks-reason") {
		return refusal(why.Error())
	}
	return refusal("blocked by policy")
}

// post sends one request, to the host in the stateless revision.
func (a *agent) post(url, method string, params json.RawMessage) (*message, error) {
	if params == nil {
		params = json.RawMessage("{}")
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if url == *hosts {
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", method)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	m := &message{streamed: strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream")}
	var raw []byte
	if m.streamed {
		raw = a.relayed(res.Body)
	} else if raw, err = io.ReadAll(res.Body); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, err
	}
	if m.Result == nil && m.Error == nil {
		return nil, errors.New("no answer")
	}
	return m, nil
}

// relayed hands on what a stream says before the answer at its end, and returns that.
func (a *agent) relayed(stream io.Reader) (answer []byte) {
	for in := bufio.NewScanner(stream); in.Scan(); {
		data, ok := bytes.CutPrefix(in.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		var m message
		switch {
		case json.Unmarshal(data, &m) != nil:
		case m.Method != "" && m.ID != nil:
			a.ask(&m)
		case m.Method == "notifications/tasks" && !is("task-notes-unseen"):
			if params, blocked := a.taskOf(m.Params); blocked == nil && !is("task-notes-dropped") {
				a.say(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":%s}`, m.Method, compact(params)))
			}
		case m.Method != "" && !is("drops-progress"):
			a.say(data)
		case m.Method == "":
			answer = bytes.Clone(data)
		}
	}
	return answer
}

// ask puts a question of the server to the agent, and sends the answer back.
func (a *agent) ask(q *message) {
	params, err := q.Params, error(nil)
	if !is("questions-unseen") {
		params, err = (&operation{q.Method, "request", true, a}).run(q.Params)
	}
	m := new(message)
	if err == nil {
		a.say(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"q","method":%q,"params":%s}`, q.Method, compact(params)))
		line, readErr := a.hear()
		if readErr != nil || json.Unmarshal(line, m) != nil {
			return
		}
		if m.Result != nil && !is("answers-unseen") {
			m.Result, err = (&operation{q.Method, "response", true, a}).run(m.Result)
		}
	}
	if err != nil {
		m = refusalOf(err)
	}
	res, err := http.Post(*upstream, "application/json", bytes.NewReader(reply(q.ID, m)))
	if err == nil {
		res.Body.Close()
	}
}
