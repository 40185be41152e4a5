// Command brokenhost is an interceptor server with one fault of choice, for tests of the conformance
// runner: -fault NAME, or none for a good one. It is written without the project's library, so that the
// two cannot share a mistake.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
)

var fault = flag.String("fault", "", "what is wrong")

func main() {
	listen := flag.String("http", "", "serve on HTTP at this address, and print the URL")
	flag.Parse()
	if *listen == "" {
		serveStdio(os.Stdin, os.Stdout)
		return
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		panic(err)
	}
	fmt.Printf("http://%s\n", l.Addr())
	panic(http.Serve(l, http.HandlerFunc(serveHTTP)))
}

func is(name string) bool { return *fault == name }

type object = map[string]any

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    object `json:"data,omitempty"`
}

// refusal is an error with the members of its data in pairs.
func refusal(code int, message string, pairs ...any) *failure {
	f := &failure{Code: code, Message: message, Data: object{}}
	for i := 0; i < len(pairs); i += 2 {
		f.Data[pairs[i].(string)] = pairs[i+1]
	}
	if is("empty-message") || is("empty-message-of-hooks") && message == "not hooked" {
		f.Message = ""
	}
	if is("leak") {
		f.Message += ": goroutine 17 [running]: main.(*host).find(/src/host.go:41)"
	}
	return f
}

func serveStdio(r io.Reader, w io.Writer) {
	for in := bufio.NewReader(r); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var q request
		if json.Unmarshal(line, &q) != nil || q.ID == nil && !is("answers-notifications") {
			continue
		}
		result, failed := handle(&q, "")
		fmt.Fprintf(w, "%s\n", envelope(q.ID, result, failed))
	}
}

func envelope(id json.RawMessage, result any, failed *failure) []byte {
	m := object{"jsonrpc": "2.0", "id": spelled(id)}
	if failed != nil {
		m["error"] = failed
	} else {
		m["result"] = result
	}
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

// spelled is the id, or what is easily taken for it.
func spelled(id json.RawMessage) json.RawMessage {
	text := strings.Trim(string(id), `"`)
	switch {
	case is("id-as-string"):
		return json.RawMessage(`"` + text + `"`)
	case is("id-as-number") && strings.Trim(text, "0123456789") == "":
		return json.RawMessage(text)
	case is("id-zero-lost") && text == "0":
		return json.RawMessage("null")
	}
	return id
}

// metaOf is the _meta of a request.
func metaOf(q *request) map[string]json.RawMessage {
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(q.Params, &p) // params that cannot be read have none
	return p.Meta
}

// current reports a request of the stateless revision.
func current(q *request) bool {
	return string(metaOf(q)["io.modelcontextprotocol/protocolVersion"]) == `"2026-07-28"`
}

var lists atomic.Int64

func handle(q *request, _ string) (any, *failure) {
	if current(q) && metaOf(q)["io.modelcontextprotocol/clientCapabilities"] == nil && !is("meta") {
		return nil, refusal(-32602, "no client capabilities")
	}
	switch q.Method {
	case "initialize":
		return object{"protocolVersion": "2025-11-25", "capabilities": capabilities(), "serverInfo": object{"name": "h", "version": "1"}}, nil
	case "server/discover":
		if !current(q) {
			break
		}
		versions := []string{"2026-07-28", "2025-11-25"}
		if is("discover-versions") {
			versions = versions[1:]
		}
		return complete(q, object{"supportedVersions": versions, "capabilities": capabilities()}), nil
	case "ping":
		return object{}, nil
	case "interceptors/list":
		result, failed := list(q)
		if failed != nil {
			return nil, failed
		}
		return complete(q, result), nil
	case "interceptor/invoke":
		result, failed := invoke(q)
		if failed != nil {
			return nil, failed
		}
		return complete(q, result), nil
	case "tools/list":
		if is("tools") {
			return complete(q, object{"tools": []object{{"name": "echo", "inputSchema": object{"type": "object"}}}}), nil
		}
	case "interceptors/invoke":
		if is("plural-method") {
			result, failed := invoke(q)
			return result, failed
		}
	}
	if is("unknown-method-code") {
		return nil, refusal(-32600, "what?")
	}
	return nil, refusal(-32601, "method not found")
}

// complete adds resultType where the revision has it.
func complete(q *request, result object) object {
	switch {
	case is("result-type-missing"), is("result-type-missing " + q.Method):
	case is("result-type-input-required") && result["valid"] == false:
		result["resultType"] = "input_required"
	case current(q) || is("result-type-legacy"):
		result["resultType"] = "complete"
	}
	return result
}

func capabilities() object {
	declared := object{"io.modelcontextprotocol/interceptors": object{"supportedEvents": []string{"*", "tools/call"}}}
	switch {
	case is("capability-missing"):
		return object{}
	case is("capability-old-place"):
		return object{"interceptor": object{"supportedEvents": []string{"*"}}}
	case is("capability-tools"), is("tools"):
		return object{"extensions": declared, "tools": object{}}
	}
	return object{"extensions": declared}
}

func serveHTTP(w http.ResponseWriter, r *http.Request) {
	if origin := r.Header.Get("Origin"); origin != "" && !is("origin") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if r.Method != http.MethodPost {
		if is("verbs") {
			w.WriteHeader(http.StatusOK)
			return
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	var q request
	if err != nil || json.Unmarshal(body, &q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if q.ID == nil && !is("answers-notifications") {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	status, failed := headers(r, &q)
	var result any
	if failed == nil {
		if is("null-500") && bytes.Contains(q.Params, []byte(`"payload":null`)) {
			http.Error(w, "Internal Server Error", http.StatusInternalServerError)
			return
		}
		if result, failed = handle(&q, r.Header.Get("Mcp-Protocol-Version")); failed != nil && failed.Code == -32601 &&
			r.Header.Get("Mcp-Protocol-Version") == "2026-07-28" && !is("unknown-method-status") {
			status = http.StatusNotFound
		}
	}
	media := "application/json"
	if is("media-type") {
		media = "text/plain"
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_, _ = w.Write(envelope(q.ID, result, failed))
}

// headers are the checks of the stateless revision.
func headers(r *http.Request, q *request) (int, *failure) {
	version := r.Header.Get("Mcp-Protocol-Version")
	inMeta := metaOf(q)["io.modelcontextprotocol/protocolVersion"]
	if version != "2026-07-28" && inMeta == nil {
		return 200, nil
	}
	switch {
	case version != "2026-07-28" && !is("version"):
		return 400, refusal(-32022, "unsupported version", "supported", []string{"2026-07-28"})
	case string(inMeta) != `"`+version+`"` && !is("version"):
		return 400, refusal(-32020, "version mismatch")
	case r.Header.Get("Mcp-Method") != q.Method && !is("method-header"):
		return 400, refusal(-32020, "method header")
	case r.Header.Get("Mcp-Name") == "wrong" && is("name-header"):
		return 400, refusal(-32020, "name header")
	case metaOf(q)["io.modelcontextprotocol/clientCapabilities"] == nil && !is("meta"):
		return 400, refusal(-32602, "no client capabilities")
	}
	return 200, nil
}

// sameNumbers re-encodes payloads through doubles when that is the fault.
func sameNumbers(payload json.RawMessage) json.RawMessage {
	if !is("numbers") {
		return payload
	}
	var v any
	if json.Unmarshal(payload, &v) != nil {
		return payload
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func isObject(raw json.RawMessage) bool { return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) }
