package mcptest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"
)

// HTTP is a client of a Streamable HTTP endpoint. It is safe for concurrent use once its fields are
// set.
type HTTP struct {
	URL     string
	Version string      // the MCP-Protocol-Version header; from 2026-07-28 on the Mcp-… headers are sent too
	Session string      // the Mcp-Session-Id header, set by Initialize
	Header  http.Header // sent with each request, and in place of the headers above
	Client  *http.Client
}

// Stream is the answer to one POST, or a GET stream: its messages are read as they come.
type Stream struct {
	Status int
	Header http.Header
	body   io.ReadCloser
	lines  *bufio.Reader
	events bool
	cancel context.CancelFunc
}

// Initialize opens a session of a revision before 2026-07-28 and returns the answer.
func (c *HTTP) Initialize(t testing.TB, version string) Message {
	t.Helper()
	c.Version, c.Session = "", ""
	stream, err := c.Post(t.Context(), initializeRequest(version))
	if err != nil {
		t.Fatalf("initialize: %v", err)
	}
	defer stream.Close()
	m, err := stream.Response(`"init"`)
	if err != nil || m.Result == nil {
		t.Fatalf("initialize: status %d, %s, %v", stream.Status, m.Raw, err)
	}
	c.Version, c.Session = version, stream.Header.Get("Mcp-Session-Id")
	done, err := c.Post(t.Context(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if err != nil {
		t.Fatalf("initialized: %v", err)
	}
	done.Close()
	return m
}

// Call posts a tools/call and waits for its response.
func (c *HTTP) Call(ctx context.Context, id, tool, arguments string) (Message, error) {
	meta := ""
	if c.modern() {
		meta = MetaMembers
	}
	return c.Do(ctx, id, ToolCall(id, tool, arguments, meta))
}

// Do posts a request and waits for the response to id.
func (c *HTTP) Do(ctx context.Context, id, body string) (Message, error) {
	stream, err := c.Post(ctx, body)
	if err != nil {
		return Message{}, err
	}
	defer stream.Close()
	return stream.Response(id)
}

// Post sends body, these bytes, and returns when the status is there. The caller closes the stream.
func (c *HTTP) Post(ctx context.Context, body string) (*Stream, error) {
	return c.open(ctx, http.MethodPost, body)
}

// Listen opens the GET stream of a session.
func (c *HTTP) Listen(ctx context.Context) (*Stream, error) {
	return c.open(ctx, http.MethodGet, "")
}

// Delete ends the session and returns the status.
func (c *HTTP) Delete(ctx context.Context) (int, error) {
	stream, err := c.open(ctx, http.MethodDelete, "")
	if err != nil {
		return 0, err
	}
	stream.Close()
	return stream.Status, nil
}

func (c *HTTP) modern() bool { return c.Version >= "2026-07-28" }

func (c *HTTP) open(ctx context.Context, method, body string) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, method, c.URL, strings.NewReader(body))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.GetBody = nil // a request is sent once, whatever becomes of its connection
	c.setHeaders(req, body)
	client := c.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%s %s: %w", method, c.URL, err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return &Stream{
		Status: resp.StatusCode, Header: resp.Header, body: resp.Body, cancel: cancel,
		lines: bufio.NewReaderSize(resp.Body, 64<<10), events: kind == "text/event-stream",
	}, nil
}

func (c *HTTP) setHeaders(req *http.Request, body string) {
	h := req.Header
	h.Set("Accept", "application/json, text/event-stream")
	if req.Method == http.MethodPost {
		h.Set("Content-Type", "application/json")
	}
	if c.Version != "" {
		h.Set("Mcp-Protocol-Version", c.Version)
	}
	if c.Session != "" {
		h.Set("Mcp-Session-Id", c.Session)
	}
	if c.modern() && body != "" {
		setMethodHeaders(h, body)
	}
	for name, values := range c.Header {
		h[name] = values
	}
}

// setMethodHeaders repeats the body's method, and the name of what it is about, as 2026-07-28 wants.
func setMethodHeaders(h http.Header, body string) {
	var m struct {
		Method string
		Params struct{ Name, URI string }
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		return // a test that sends nonsense sets its own headers
	}
	h.Set("Mcp-Method", m.Method)
	if name := m.Params.Name + m.Params.URI; name != "" {
		h.Set("Mcp-Name", name)
	}
}

// Next returns the next message, io.EOF after the last.
func (s *Stream) Next() (Message, error) {
	if s.events {
		return s.nextEvent()
	}
	raw, err := io.ReadAll(s.lines)
	if err != nil {
		return Message{}, fmt.Errorf("read answer: %w", err)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return Message{}, io.EOF
	}
	return ParseMessage(raw)
}

func (s *Stream) nextEvent() (Message, error) {
	var data []byte
	for {
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			return Message{}, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(rest, []byte(" "))...)
		}
		if len(line) == 0 && len(data) > 0 {
			return ParseMessage(data)
		}
	}
}

// Response reads on until the response to id, and drops what comes before it.
func (s *Stream) Response(id string) (Message, error) {
	for {
		m, err := s.Next()
		if errors.Is(err, io.EOF) {
			return Message{}, fmt.Errorf("status %d ended without a response to %s: %w", s.Status, id, io.ErrUnexpectedEOF)
		}
		if err != nil || m.IsResponse(id) {
			return m, err
		}
	}
}

// Close ends the stream; before its end it cuts the connection.
func (s *Stream) Close() {
	s.cancel()
	s.body.Close()
}
