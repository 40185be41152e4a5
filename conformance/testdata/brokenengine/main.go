// Command brokenengine is an engine with one fault of choice, for tests of the conformance runner: -fault
// NAME, or none for a good one. It stands between an agent on standard input and output and an MCP server,
// and asks one interceptor host. It is written without the project's library, so that the two cannot share
// a mistake.
package main

import (
	"bufio"
	"bytes"
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
)

func is(name string) bool { return *fault == name }

var agent = bufio.NewReader(os.Stdin)

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
	for {
		line, err := agent.ReadBytes('\n')
		if err != nil {
			return
		}
		var q message
		if json.Unmarshal(line, &q) != nil || q.ID == nil {
			continue
		}
		fmt.Printf("%s\n", reply(q.ID, answer(&q)))
	}
}

func reply(id json.RawMessage, m *message) []byte {
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

func answer(q *message) *message {
	switch q.Method {
	case "initialize":
		return &message{Result: json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"e","version":"1"}}`)}
	case "tools/call":
		return exchange(q)
	}
	m, err := post(*upstream, q.Method, q.Params)
	if err != nil {
		return refusal("the server cannot be reached")
	}
	if q.Method == "tasks/get" && m.Result != nil && !is("tasks-unseen") {
		return taskEnd(m)
	}
	return m
}

// taskEnd takes the result inside a task's answer through the response phase.
func taskEnd(m *message) *message {
	var task map[string]json.RawMessage
	if json.Unmarshal(m.Result, &task) != nil || task["result"] == nil {
		return m
	}
	result, blocked := run("response", task["result"])
	if blocked != nil {
		return refusalOf(blocked)
	}
	task["result"] = result
	raw, err := json.Marshal(task)
	if err != nil {
		return refusal("internal error")
	}
	return &message{Result: raw}
}

func refusal(text string) *message {
	raw, err := json.Marshal(map[string]any{"code": -32603, "message": text})
	if err != nil {
		panic(err)
	}
	return &message{Error: raw}
}

// exchange takes one call through both phases.
func exchange(q *message) *message {
	params, blocked := run("request", q.Params)
	if blocked != nil {
		return refusalOf(blocked)
	}
	m, err := post(*upstream, "tools/call", params)
	if err != nil {
		return refusal("the server cannot be reached")
	}
	switch {
	case is("no-response-phase"), is("streams-unseen") && m.streamed:
		return m
	case m.Error != nil && is("governs-errors"):
		if _, blocked := run("response", m.Error); blocked != nil {
			return refusalOf(blocked)
		}
		return m
	case m.Error != nil:
		return m
	case is("ignores-is-error") && bytes.Contains(compact(m.Result), []byte(`"isError":true`)):
		return m
	}
	result, blocked := run("response", m.Result)
	if blocked != nil {
		if is("leaks-result") {
			return refusal("blocked: " + string(m.Result))
		}
		return refusalOf(blocked)
	}
	return &message{Result: result}
}

func refusalOf(why error) *message {
	if is("leaks-reason") {
		return refusal(why.Error())
	}
	return refusal("blocked by policy")
}

// post sends one request, to the host in the stateless revision.
func post(url, method string, params json.RawMessage) (*message, error) {
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
		raw = relayed(res.Body)
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
func relayed(stream io.Reader) (answer []byte) {
	for in := bufio.NewScanner(stream); in.Scan(); {
		data, ok := bytes.CutPrefix(in.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		var m message
		switch {
		case json.Unmarshal(data, &m) != nil:
		case m.Method != "" && m.ID != nil:
			ask(&m)
		case m.Method != "" && !is("drops-progress"):
			fmt.Printf("%s\n", data)
		case m.Method == "":
			answer = bytes.Clone(data)
		}
	}
	return answer
}

// ask puts a question of the server to the agent, and sends the answer back.
func ask(q *message) {
	params, err := q.Params, error(nil)
	if !is("questions-unseen") {
		params, err = (&operation{q.Method, "request", true}).run(q.Params)
	}
	m := new(message)
	if err == nil {
		fmt.Printf(`{"jsonrpc":"2.0","id":"q","method":%q,"params":%s}`+"\n", q.Method, compact(params))
		line, readErr := agent.ReadBytes('\n')
		if readErr != nil || json.Unmarshal(line, m) != nil {
			return
		}
		if m.Result != nil && !is("answers-unseen") {
			m.Result, err = (&operation{q.Method, "response", true}).run(m.Result)
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
