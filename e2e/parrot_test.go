package e2e_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// parrotEnv makes this test program an MCP server on stdio that says everything it is told again: in results,
// errors, on its standard error, and as it dies.
const parrotEnv = "E2E_PARROT"

// issued is what the parrot itself makes up, a secret of its results.
const issued = "issued-41c7e8d0b2"

const parrotTools = `{"tools":[{"name":"say","inputSchema":{"type":"object","required":["to"]}},{"name":"fail","inputSchema":{"type":"object"}},` +
	`{"name":"wrong","inputSchema":{"type":"object"}},{"name":"die","inputSchema":{"type":"object"}},{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`

type parrotRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"params"`
}

// parrot serves standard input and output until they end.
func parrot() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r parrotRequest
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.ID == nil {
			continue
		}
		result, failure := r.answer()
		if failure != "" {
			fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":%s}\n", r.ID, failure)
			continue
		}
		fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", r.ID, result)
	}
}

func (r *parrotRequest) answer() (result, failure string) {
	switch r.Method {
	case "initialize":
		return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"parrot","version":"1"}}`, ""
	case "tools/list":
		return parrotTools, ""
	case "tools/call":
		return r.called()
	}
	return "", `{"code":-32601,"message":"no such method"}`
}

// called says what it heard, plain and encoded. What it has issued it says on its standard error only as it dies:
// nobody can know a result's secrets before the first result.
func (r *parrotRequest) called() (result, failure string) {
	fmt.Fprintln(os.Stderr, "parrot:", encodings(string(r.Params.Arguments)))
	said := encodings(string(r.Params.Arguments) + " " + issued)
	text, _ := json.Marshal(said) // a string
	switch r.Params.Name {
	case "fail":
		return "", fmt.Sprintf(`{"code":-32000,"message":%s,"data":{"heard":%s,"session":%q}}`, text, r.Params.Arguments, issued)
	case "die":
		panic("heard " + said)
	}
	return fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"structuredContent":{"heard":%s,"session":%q},"isError":%t}`,
		text, r.Params.Arguments, issued, r.Params.Name == "wrong"), ""
}

func encodings(heard string) string {
	return strings.Join([]string{
		heard, base64.StdEncoding.EncodeToString([]byte(heard)), base64.RawURLEncoding.EncodeToString([]byte("x" + heard)), url.QueryEscape(heard),
	}, "\n")
}

// parrotHTTP is a parrot on HTTP that shows the headers of the calls that it gets.
func parrotHTTP(seen func(http.Header)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var r parrotRequest
		if req.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if json.NewDecoder(req.Body).Decode(&r) != nil || r.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		if r.Method == "tools/call" {
			seen(req.Header)
		}
		result, failure := r.answer()
		w.Header().Set("Content-Type", "application/json")
		if failure != "" {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, r.ID, failure)
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, result)
	})
}
