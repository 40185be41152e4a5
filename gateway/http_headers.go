package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/undolog/undolog/internal/splice"
)

// statelessProtocol is the first MCP revision without sessions: it puts what a session knew into each
// request's _meta and repeats the essentials as headers (SEP-2575, SEP-2243).
const statelessProtocol = "2026-07-28"

// The HTTP headers of MCP, as net/http spells them.
const (
	sessionHeader     = "Mcp-Session-Id"
	protocolHeader    = "Mcp-Protocol-Version"
	methodHeader      = "Mcp-Method"
	nameHeader        = "Mcp-Name"
	paramHeaderPrefix = "Mcp-Param-"
	idempotencyHeader = "Idempotency-Key"
	lastEventHeader   = "Last-Event-Id"
)

// The members of a request's _meta that the stateless revision requires.
const (
	metaProtocol     = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
)

// The methods that the HTTP transport has to know by name.
const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodProgress    = "notifications/progress"
	methodToolsList   = "tools/list"
	methodToolsCall   = "tools/call"
	methodDiscover    = "server/discover"

	codeHeaderMismatch = -32020
)

// mayAdd reports whether an interceptor may set a header: it must not be one by which the request is framed,
// read or authorized, and it must be one that HTTP can carry.
func mayAdd(name, value string) bool {
	if !isToken(name) || strings.ContainsFunc(value, unicode.IsControl) {
		return false
	}
	switch name = http.CanonicalHeaderKey(name); name {
	case "Accept", "Authorization", "Connection", "Content-Length", "Content-Type", "Cookie", "Host", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", lastEventHeader:
		return false
	}
	return !strings.HasPrefix(name, "Mcp-")
}

// stringAt returns the JSON string at path; ok is false when there is none.
func stringAt(obj []byte, path ...string) (s string, ok bool) {
	raw := splice.Get(obj, path...)
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// namedTarget returns what Mcp-Name has to repeat of a request; ok is false for methods that carry no
// such header.
func namedTarget(method string, params json.RawMessage) (name string, ok bool) {
	switch method {
	case methodToolsCall, "prompts/get":
		name, _ = stringAt(params, "name")
		return name, true
	case "resources/read":
		name, _ = stringAt(params, "uri")
		return name, true
	}
	if strings.HasPrefix(method, "tasks/") {
		name, _ = stringAt(params, "taskId")
		return name, name != ""
	}
	return "", false
}

// setStandardHeaders writes the headers that repeat the body of m. They are built from the bytes that
// are about to go out, never copied from the agent's request: an interceptor may have changed them.
func setStandardHeaders(h http.Header, m *Message, tools *toolHeaders) {
	h.Set(methodHeader, m.Method)
	name, named := namedTarget(m.Method, m.Params)
	if named {
		h.Set(nameHeader, encodeHeader(name))
	}
	if m.Method != methodToolsCall {
		return
	}
	bindings, known := tools.of(name)
	if !known {
		copyParamHeaders(h, m.Header)
	}
	for _, b := range bindings {
		if value, ok := headerValue(splice.Get(m.Params, append([]string{"arguments"}, b.path...)...)); ok {
			h.Set(paramHeaderPrefix+b.header, encodeHeader(value))
		}
	}
}

// copyParamHeaders is for a tool whose schema has not passed by: the agent's own headers are the best
// guess, and a stale one makes the upstream refuse the call, never run it.
func copyParamHeaders(dst http.Header, src map[string][]string) {
	for k, v := range src {
		if strings.HasPrefix(k, paramHeaderPrefix) {
			dst[k] = v
		}
	}
}

// checkParamHeaders compares the headers that a tool wants of its arguments with the arguments, for a tool
// that the agent can know. The headers for the upstream are built anew, so nobody else would notice that
// something between the agent and us has read one thing and we another. The error's text goes to the
// requester, under −32020.
func (c *core) checkParamHeaders(m *Message) error {
	if c.info.Protocol < statelessProtocol {
		return nil // no such headers
	}
	name, _ := stringAt(m.Params, "name")
	bindings, _ := c.listed.of(name)
	for _, b := range bindings {
		header := paramHeaderPrefix + b.header
		got := http.Header(m.Header).Values(header)
		want, ok := headerValue(splice.Get(m.Params, append([]string{"arguments"}, b.path...)...))
		switch {
		case ok && len(got) == 0:
			return fmt.Errorf("the %s header is missing", header)
		case !ok && len(got) > 0:
			return fmt.Errorf("the %s header stands for an argument that is not there", header)
		case ok && (len(got) > 1 || !headerEquals(got[0], want)):
			return fmt.Errorf("the %s header does not say what the argument says", header)
		}
	}
	return nil
}

// headerValue spells a primitive argument for a header. ok is false for null, absent and everything
// that x-mcp-header does not allow: then there is no header.
func headerValue(raw json.RawMessage) (value string, ok bool) {
	if len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '"':
		return value, json.Unmarshal(raw, &value) == nil
	case 't', 'f':
		return string(raw), true
	case 'n', '{', '[':
		return "", false
	}
	const maxSafe = 1<<53 - 1 // what every peer can compare (SEP-2243)
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxSafe {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}

const (
	base64Prefix = "=?base64?"
	base64Suffix = "?="
)

// encodeHeader makes any string fit for a header (SEP-2243).
func encodeHeader(s string) string {
	plain := s == strings.Trim(s, " \t") && !(strings.HasPrefix(s, base64Prefix) && strings.HasSuffix(s, base64Suffix))
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= 0x20 && s[i] <= 0x7e
	}
	if plain {
		return s
	}
	return base64Prefix + base64.StdEncoding.EncodeToString([]byte(s)) + base64Suffix
}

// headerEquals reports whether a header says want, plainly or in base64.
func headerEquals(header, want string) bool {
	if header == want {
		return true
	}
	encoded, ok := strings.CutPrefix(header, base64Prefix)
	if !ok {
		return false
	}
	encoded, ok = strings.CutSuffix(encoded, base64Suffix)
	if !ok {
		return false
	}
	plain, err := base64.StdEncoding.DecodeString(encoded)
	return err == nil && string(plain) == want
}

// headerBinding is one argument that a tool wants repeated as a header.
type headerBinding struct {
	path   []string
	header string
}

// toolHeaders remembers the x-mcp-header annotations of the tools that an upstream has listed. The zero
// value is ready; safe for concurrent use.
type toolHeaders struct {
	mu     sync.Mutex
	byTool map[string][]headerBinding
}

func (t *toolHeaders) of(tool string) (bindings []headerBinding, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bindings, known = t.byTool[tool]
	return bindings, known
}

// learn takes the result of a tools/list. What it cannot read it leaves out.
func (t *toolHeaders) learn(result json.RawMessage) {
	var tools []json.RawMessage
	if json.Unmarshal(splice.Get(result, "tools"), &tools) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byTool == nil {
		t.byTool = make(map[string][]headerBinding)
	}
	for _, tool := range tools {
		if name, ok := stringAt(tool, "name"); ok {
			t.byTool[name] = bindingsIn(splice.Get(tool, "inputSchema"), nil, nil)
		}
	}
}

// bindingsIn collects the annotated properties of schema, nested ones included.
func bindingsIn(schema json.RawMessage, path []string, out []headerBinding) []headerBinding {
	var properties map[string]json.RawMessage
	if json.Unmarshal(splice.Get(schema, "properties"), &properties) != nil {
		return out
	}
	for name, property := range properties {
		here := append(append([]string(nil), path...), name)
		if header, ok := stringAt(property, "x-mcp-header"); ok && isToken(header) {
			out = append(out, headerBinding{path: here, header: header})
		}
		out = bindingsIn(property, here, out)
	}
	return out
}

// isToken reports whether s can be part of a header's name (RFC 9110 §5.6.2).
func isToken(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	for _, c := range s {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.ContainsRune(others, c)) {
			return false
		}
	}
	return s != ""
}

// checkStandardHeaders compares the headers of a stateless request with its body. The error's text goes
// to the requester, under −32020.
func checkStandardHeaders(h http.Header, m *Message) error {
	switch got := h.Get(methodHeader); got {
	case m.Method:
	case "":
		return fmt.Errorf("the %s header is missing", methodHeader)
	default:
		return fmt.Errorf("the %s header says %q, the body %q", methodHeader, got, m.Method)
	}
	version, ok := stringAt(m.Params, "_meta", metaProtocol)
	if got := h.Get(protocolHeader); ok && got != version {
		return fmt.Errorf("the MCP-Protocol-Version header says %q, _meta %q", got, version)
	}
	want, named := namedTarget(m.Method, m.Params)
	if !named || strings.HasPrefix(m.Method, "tasks/") {
		return nil
	}
	switch got := h.Get(nameHeader); {
	case got == "":
		return fmt.Errorf("the %s header is missing", nameHeader)
	case !headerEquals(got, want):
		return fmt.Errorf("the %s header says %q, the body %q", nameHeader, got, want)
	}
	return nil
}
