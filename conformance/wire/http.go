package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/undolog/undolog/conformance"
)

// HTTP is a peer on Streamable HTTP.
type HTTP struct {
	URL    string
	Header http.Header // of every request
	// OnMessage gets the peer's requests and notifications, those of different streams at the same time; what
	// it returns is sent back as the result of a request. Nil: requests are refused with −32601. With it, Start
	// also listens to what a peer of Legacy says outside of answers.
	OnMessage func(m *Message) json.RawMessage

	client   *http.Client
	revision string
	session  string
	next     atomic.Int64

	hang      context.CancelFunc // ends listening; nil when nobody listens
	listening sync.WaitGroup
}

var (
	_ Conn = (*HTTP)(nil)
	_ Conn = (*Lines)(nil)
)

// NewHTTP returns a connection to an endpoint. Start begins it.
func NewHTTP(url string, header http.Header) *HTTP {
	return &HTTP{URL: url, Header: header, client: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
}

// Start does what the revision begins with: the handshake, or nothing.
func (h *HTTP) Start(ctx context.Context, revision string) (*conformance.Answer, error) {
	h.revision = revision
	if revision == Stateless {
		return nil, nil
	}
	a, header, err := h.do(ctx, http.MethodPost, nil, encodeRequest(number(h.next.Add(1)), "initialize", json.RawMessage(Initialize)))
	if err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	if a.Error != nil || a.Result == nil {
		return a, fmt.Errorf("initialize: status %d, %.200s", a.Status, a.Raw)
	}
	h.session = header.Get("Mcp-Session-Id")
	_, _, err = h.do(ctx, http.MethodPost, h.headers("notifications/initialized"),
		[]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err == nil && h.OnMessage != nil {
		h.listen()
	}
	return a, err
}

// Revision implements Conn.
func (h *HTTP) Revision() string { return h.revision }

func (h *HTTP) headers(method string) map[string]string {
	if h.revision == Stateless {
		return map[string]string{"MCP-Protocol-Version": Stateless, "Mcp-Method": method}
	}
	headers := map[string]string{"MCP-Protocol-Version": h.revision}
	if h.session != "" {
		headers["Mcp-Session-Id"] = h.session
	}
	return headers
}

// Call implements Conn.
func (h *HTTP) Call(ctx context.Context, method string, params json.RawMessage) (*conformance.Answer, error) {
	return h.CallAs(ctx, number(h.next.Add(1)), method, params)
}

// CallAs implements Conn.
func (h *HTTP) CallAs(ctx context.Context, id json.RawMessage, method string, params json.RawMessage) (*conformance.Answer, error) {
	if h.revision == Stateless {
		var err error
		if params, err = WithMeta(params); err != nil {
			return nil, err
		}
	}
	headers := h.headers(method)
	if name := h.name(method, params); name != "" {
		headers["Mcp-Name"] = name
	}
	a, _, err := h.do(ctx, http.MethodPost, headers, encodeRequest(id, method, params))
	return a, err
}

// Notify implements Conn.
func (h *HTTP) Notify(ctx context.Context, method string, params json.RawMessage) (*conformance.Answer, error) {
	if h.revision == Stateless {
		var err error
		if params, err = WithMeta(params); err != nil {
			return nil, err
		}
	}
	a, _, err := h.do(ctx, http.MethodPost, h.headers(method), encodeNotification(method, params))
	return a, err
}

// name is what Stateless repeats in a header for the methods that have a name.
func (h *HTTP) name(method string, params json.RawMessage) string {
	if h.revision != Stateless {
		return ""
	}
	var p struct{ Name, URI, TaskID string }
	_ = json.Unmarshal(params, &p) // wrong params have no name
	switch {
	case method == "tools/call", method == "prompts/get":
		return p.Name
	case method == "resources/read":
		return p.URI
	case strings.HasPrefix(method, "tasks/"):
		return p.TaskID
	}
	return ""
}

// Request sends one request that a fixture describes.
func (h *HTTP) Request(ctx context.Context, r *conformance.Request) (*conformance.Answer, error) {
	verb := r.Verb
	if verb == "" {
		verb = http.MethodPost
	}
	headers, params := map[string]string{}, r.Params
	revision := r.Revision
	if revision == "" {
		revision = Stateless
	}
	if !r.Bare && revision == Stateless {
		headers = map[string]string{"MCP-Protocol-Version": Stateless, "Mcp-Method": r.Method}
		var err error
		if params, err = requestParams(r); err != nil {
			return nil, err
		}
	}
	for name, value := range r.Headers {
		headers[name] = value
	}
	var body []byte
	if verb == http.MethodPost {
		body = encodeRequest(number(h.next.Add(1)), r.Method, params)
	}
	a, header, err := h.do(ctx, verb, headers, body)
	if err == nil && header.Get("Mcp-Session-Id") != "" { // a session that nobody will use
		_, _, _ = h.do(ctx, http.MethodDelete, map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id")}, nil)
	}
	return a, err
}

func requestParams(r *conformance.Request) (json.RawMessage, error) {
	if r.Meta == nil {
		return WithMeta(r.Params)
	}
	var members map[string]json.RawMessage
	if r.Params != nil {
		if err := json.Unmarshal(r.Params, &members); err != nil {
			return nil, fmt.Errorf("read params: %w", err)
		}
	}
	if members == nil {
		members = map[string]json.RawMessage{}
	}
	members["_meta"] = r.Meta
	return json.Marshal(members)
}

// do sends one request. Headers of an empty value are not sent. A body that is no JSON-RPC answer is no
// error: the status may be what was asked for.
func (h *HTTP) do(ctx context.Context, verb string, headers map[string]string, body []byte) (*conformance.Answer, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, verb, h.URL, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	for name, values := range h.Header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range headers {
		if value == "" {
			req.Header.Del(name)
			continue
		}
		req.Header.Set(name, value)
	}
	res, err := h.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	a := &conformance.Answer{Status: res.StatusCode}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		if verb != http.MethodPost {
			return a, res.Header, nil // a stream that was not asked for would never end
		}
		a.Raw, err = h.events(ctx, res.Body)
	} else {
		a.Raw, err = io.ReadAll(io.LimitReader(res.Body, longestStream))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read answer: %w", err)
	}
	if parsed, err := answer(a.Raw); err == nil {
		if media := res.Header.Get("Content-Type"); !strings.HasPrefix(media, "application/json") && !strings.HasPrefix(media, "text/event-stream") {
			return nil, nil, fmt.Errorf("a JSON-RPC answer comes as %q, want application/json or text/event-stream", media)
		}
		a.Result, a.Error = parsed.Result, parsed.Error
	}
	return a, res.Header, nil
}

// Close implements Conn; it ends a legacy session.
func (h *HTTP) Close() error {
	if h.hang != nil {
		h.hang()
		h.listening.Wait()
	}
	if h.session != "" {
		// a peer that keeps its sessions to itself is not at fault
		_, _, _ = h.do(context.Background(), http.MethodDelete, h.headers(""), nil)
	}
	h.client.CloseIdleConnections()
	return nil
}
