package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
	"github.com/undolog/undolog/internal/splice"
)

// oddEnv makes this test program an MCP server whose tools answer as no server should. It notes each call in the
// file that the variable names.
const oddEnv = "E2E_ODD"

// oddAnswers are what the tools answer, %s being the id.
var oddAnswers = map[string]string{
	"null":                    `{"jsonrpc":"2.0","id":%s,"result":null}`,
	"array":                   `{"jsonrpc":"2.0","id":%s,"result":[1]}`,
	"number":                  `{"jsonrpc":"2.0","id":%s,"result":1.0}`,
	"string":                  `{"jsonrpc":"2.0","id":%s,"result":"done"}`,
	"boolean":                 `{"jsonrpc":"2.0","id":%s,"result": true}`,
	"empty_object":            `{"jsonrpc":"2.0","id":%s,"result":{}}`,
	"meta_no_object":          `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"_meta":5}}`,
	"meta_null":               `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"_meta":null}}`,
	"content_twice":           `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"content":[1]}}`,
	"result_and_error":        `{"jsonrpc":"2.0","id":%s,"result":{"content":[]},"error":{"code":-32050,"message":"x"}}`,
	"result_and_null_error":   `{"jsonrpc":"2.0","id":%s,"result":{"content":[]},"error":null}`,
	"null_result_and_error":   `{"jsonrpc":"2.0","id":%s,"result":null,"error":{"code":-32050,"message":"x"}}`,
	"neither":                 `{"jsonrpc":"2.0","id":%s}`,
	"null_error":              `{"jsonrpc":"2.0","id":%s,"error":null}`,
	"error_without_code":      `{"jsonrpc":"2.0","id":%s,"error":{"message":"x"}}`,
	"error_code_float":        `{"jsonrpc":"2.0","id":%s,"error":{"code":-32050.5,"message":"x"}}`,
	"error_code_of_refusal":   `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602.0,"message":"x"}}`,
	"error_code_text":         `{"jsonrpc":"2.0","id":%s,"error":{"code":"E1","message":"x"}}`,
	"error_empty":             `{"jsonrpc":"2.0","id":%s,"error":{}}`,
	"error_text":              `{"jsonrpc":"2.0","id":%s,"error":"boom"}`,
	"error_array":             `{"jsonrpc":"2.0","id":%s,"error":[1]}`,
	"error_false":             `{"jsonrpc":"2.0","id":%s,"error":false}`,
	"error_data_array":        `{"jsonrpc":"2.0","id":%s,"error":{"code":-32050,"message":"x","data":[1]}}`,
	"error_message_number":    `{"jsonrpc":"2.0","id":%s,"error":{"code":-32050,"message":5}}`,
	"batch":                   `[{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}]`,
	"two_answers":             `{"jsonrpc":"2.0","id":%[1]s,"result":{"n":1}}` + "\n" + `{"jsonrpc":"2.0","id":%[1]s,"result":{"n":2}}`,
	"result_twice":            `{"jsonrpc":"2.0","id":%s,"result":{"n":1},"result":{"n":2}}`,
	"id_twice":                `{"jsonrpc":"2.0","id":%[1]s,"id":%[1]s,"result":{"n":1}}`,
	"no_version":              `{"id":%s,"result":{"content":[]}}`,
	"other_member":            `{"jsonrpc":"2.0","id":%s,"result":{"content":[]},"extra":1}`,
	"other_case":              `{"jsonrpc":"2.0","id":%s,"Result":{"content":[]}}`,
	"spaces":                  " {\t\"jsonrpc\" : \"2.0\" , \"id\" : %s , \"result\" : { \"content\" : [ ] } } \r",
	"invalid_utf8":            "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"a\xff\xfeb\"}]}}",
	"invalid_utf8_error":      "{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32050,\"message\":\"a\xff\xfeb\"}}",
	"lone_surrogate":          `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"\ud800"}]}}`,
	"no_json":                 `{"jsonrpc":"2.0","id":%s,"result":{"content":[}}`,
	"large":                   `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 4<<20) + `"}]}}`,
	"deep":                    `{"jsonrpc":"2.0","id":%s,"result":` + strings.Repeat("[", 990) + strings.Repeat("]", 990) + `}`,
	"deep_object":             `{"jsonrpc":"2.0","id":%s,"result":` + strings.Repeat(`{"a":`, 990) + "1" + strings.Repeat("}", 990) + `}`,
	"deeper":                  `{"jsonrpc":"2.0","id":%s,"result":{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}}`,
	"too_deep":                `{"jsonrpc":"2.0","id":%s,"result":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}`,
	"input_required_no_state": `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required"}}`,
	"result_type_unknown":     `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"other","content":[]}}`,
	"result_type_number":      `{"jsonrpc":"2.0","id":%s,"result":{"resultType":5}}`,
	"is_error_text":           `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"isError":"true"}}`,
	"mark_of_ours":            `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"_meta":{"dev.undolog/replayed":true}}}`,
}

// odd serves standard input and output until they end.
func odd(noted string) {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		var r parrotRequest
		if err == nil && json.Unmarshal(line, &r) == nil && r.ID != nil {
			fmt.Println(oddAnswer(&r, noted))
		}
		if err != nil {
			return
		}
	}
}

func oddAnswer(r *parrotRequest, noted string) string {
	answer := oddAnswers[r.Params.Name]
	if r.Method != "tools/call" || answer == "" {
		result, failure := r.answer()
		if failure != "" {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, r.ID, failure)
		}
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, result)
	}
	file, err := os.OpenFile(noted, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintln(file, r.Params.Name)
	return fmt.Sprintf(answer, r.ID)
}

// oddHTTP is such a server on HTTP.
func oddHTTP(noted string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var r parrotRequest
		switch {
		case req.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case json.NewDecoder(req.Body).Decode(&r) != nil || r.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, oddAnswer(&r, noted))
		}
	})
}

// Whatever a server answers, the agent that sends the call again is told the same, and the server is not asked again.
func TestOdd_answersAreTheSameAgain(t *testing.T) {
	t.Parallel()
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		noted := filepath.Join(w.dir, "calls")
		w.server = []string{"env", oddEnv + "=" + noted, self}
		wantSameAnswers(t, w.agent(), noted)
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		noted := filepath.Join(w.dir, "calls")
		server := httptest.NewServer(oddHTTP(noted))
		t.Cleanup(server.Close)
		agent := mcptest.StartCommand(t, w.command("gateway", "--upstream", server.URL))
		agent.Initialize(protocol)
		wantSameAnswers(t, agent, noted)
	})
}

func wantSameAnswers(t *testing.T, agent *mcptest.Stdio, noted string) {
	t.Helper()
	id := 0
	do := func(tool string) mcptest.Message {
		id++
		name := fmt.Sprint(id)
		m, err := agent.Do(t.Context(), name, mcptest.ToolCall(name, tool, `{}`, `"idempotencyKey":"`+tool+`"`))
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		return m
	}
	for tool := range oddAnswers {
		first, again := do(tool), do(tool)
		if a, b := sayable(t, first), sayable(t, again); a != b {
			t.Errorf("%s: the second answer differs\n first %.500s\nsecond %.500s", tool, first.Raw, again.Raw)
		}
	}
	calls, err := os.ReadFile(noted)
	if err != nil {
		t.Fatal(err)
	}
	if m := do("deeper"); m.Error != nil {
		t.Errorf("an answer of 9,000 levels is not passed on: %.500s", m.Error)
	}
	for tool := range oddAnswers {
		if n := bytes.Count(append([]byte("\n"), calls...), []byte("\n"+tool+"\n")); n != 1 {
			t.Errorf("%s was called %d times", tool, n)
		}
	}
}

// sayable is what an answer says, without what has our mark: the _meta of a result, the data of an error.
func sayable(t *testing.T, m mcptest.Message) string {
	t.Helper()
	body, marked := m.Result, "_meta"
	if splice.Kind(m.Error) != 'n' && m.Error != nil {
		body, marked = m.Error, "data"
	}
	if splice.Kind(body) != '{' {
		return string(body)
	}
	said, _, err := splice.Delete(body, func(name string) bool { return name == marked })
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer // white space before our mark is none of what is said
	if err := json.Compact(&compact, said); err != nil {
		t.Fatal(err)
	}
	return marked + compact.String()
}
