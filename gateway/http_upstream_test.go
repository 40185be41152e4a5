package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/undolog/undolog/gateway"
)

const patience = time.Minute // how long a test waits for what must come

func TestUpstream_AgainstGoSDK(t *testing.T) {
	leak := goleak.IgnoreCurrent()
	defer noLeaks(t, leak)
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	addSDKTools(server)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	var deletes atomic.Int32
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deletes.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	defer up.Close()
	c := dial(t, up.URL, nil)

	c.write(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"t","version":"1"}}}`)
	if m := c.read(); m.Result == nil {
		t.Fatalf("initialize answered %s", m.Raw)
	}
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)

	t.Run("a call's progress and answer come back", func(t *testing.T) {
		c.write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"progress","arguments":{},"_meta":{"progressToken":"p"}}}`)
		progress, answer := c.read(), c.read()
		if progress.Method != "notifications/progress" || string(progress.For) != "2" {
			t.Errorf("first message is %q for %s, want progress for 2", progress.Method, progress.For)
		}
		if string(answer.ID) != "2" || !strings.Contains(string(answer.Result), "done") {
			t.Errorf("answer is %s", answer.Raw)
		}
	})
	t.Run("a request of the upstream is answered on another POST", func(t *testing.T) {
		c.write(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"sample","arguments":{}}}`)
		ask := c.read()
		if ask.Method != "sampling/createMessage" || string(ask.For) != "3" {
			t.Fatalf("upstream sent %s, want a sampling request for 3", ask.Raw)
		}
		c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"role":"assistant","model":"m","content":{"type":"text","text":"sampled"}}}`, ask.ID))
		if answer := c.read(); !strings.Contains(string(answer.Result), "sampled") {
			t.Errorf("answer is %s", answer.Raw)
		}
	})
	t.Run("a list change comes on the stream of its own", func(t *testing.T) {
		defer addToolsUntilStopped(server)()
		if m := c.read(); m.Method != "notifications/tools/list_changed" || m.For != nil {
			t.Errorf("got %s for %s", m.Raw, m.For)
		}
	})
	if err := c.conn.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := deletes.Load(); got != 1 {
		t.Errorf("session was deleted %d times, want once", got)
	}
	for { // past what has come before
		if _, err := c.conn.Read(t.Context()); err == nil {
			continue
		} else if err != io.EOF {
			t.Errorf("Read after Close: %v, want EOF", err)
		}
		break
	}
}

func addSDKTools(server *mcp.Server) {
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	mcp.AddTool(server, &mcp.Tool{Name: "progress"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1})
		return text("done"), nil, err
	})
	mcp.AddTool(server, &mcp.Tool{Name: "sample"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		res, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 5})
		if err != nil {
			return nil, nil, err
		}
		return text(res.Content.(*mcp.TextContent).Text), nil, nil
	})
}

// addToolsUntilStopped adds a tool to a server now and then: who is about to open a stream misses the first.
func addToolsUntilStopped(server *mcp.Server) (stop func()) {
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			tool := &mcp.Tool{Name: fmt.Sprintf("late-%d", n)}
			mcp.AddTool(server, tool, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, nil
			})
			select {
			case <-tick.C:
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		close(stopped)
		<-ended
	}
}

func TestUpstream_PassesBytesUnchanged(t *testing.T) {
	const result = `{"big":9007199254740993, "spelled":1.50e+2,"unknown":{"b":1,"a":[ ]}}`
	for name, contentType := range map[string]string{"json": "application/json", "events": "text/event-stream"} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request, id string) {
				w.Header().Set("Content-Type", contentType)
				body := `{"jsonrpc":"2.0","id":` + id + `,"extra":1,"result":` + result + `}`
				if name == "events" {
					body = ": hello\n\nevent: other\ndata: no\n\ndata: " + body[:17] + "\r\ndata: " + body[17:] + "\r\n\r\n"
				}
				io.WriteString(w, body)
			})
			c.write(`{"jsonrpc":"2.0","id":12345678901234567890,"method":"tools/call","params":{"name":"x"}}`)
			m := c.read()
			if string(m.ID) != "12345678901234567890" || string(m.Result) != result {
				t.Errorf("answer %s has id %s and result %s", m.Raw, m.ID, m.Result)
			}
		})
	}
}

func TestUpstream_AnswerOfTwentyMegabytesPasses(t *testing.T) {
	big := strings.Repeat("x", 20<<20)
	c := serve(t, func(w http.ResponseWriter, r *http.Request, id string) {
		answerJSON(w, r, id, `{"text":"`+big+`"}`)
	})
	c.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	if m := c.read(); len(m.Result) != len(big)+11 {
		t.Errorf("result has %d bytes", len(m.Result))
	}
}

func TestUpstream_AnswerAboveTheLimitIsCutOff(t *testing.T) {
	c := serveWith(t, &gateway.UpstreamOptions{MaxResult: 1000}, func(w http.ResponseWriter, r *http.Request, id string) {
		answerJSON(w, r, id, `{"text":"`+strings.Repeat("x", 300<<10)+`"}`)
	})
	for _, id := range []string{"1", "2"} {
		c.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"x"}}`)
		m := c.read()
		if !m.Truncated || string(m.ID) != id || m.Size <= 1000 || m.Raw != nil {
			t.Errorf("call %s: truncated %v, id %s, size %d", id, m.Truncated, m.ID, m.Size)
		}
	}
}

// answerJSON answers odd ids with an event stream and even ones with a JSON body.
func answerJSON(w http.ResponseWriter, _ *http.Request, id, result string) {
	body := `{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`
	if (id[len(id)-1]-'0')%2 == 1 {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+body+"\n\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, body)
}

func TestUpstream_HTTPRefusals(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`
	tests := []struct {
		name   string
		status int
		body   string
		code   int // zero: lost
	}{
		{"unauthorized was not applied", 401, "", -32600},
		{"forbidden was not applied", 403, "no", -32600},
		{"not found was not applied", 404, "", -32600},
		{"not allowed was not applied", 405, "", -32600},
		{"too large was not applied", 413, "", -32600},
		{"wrong type was not applied", 415, "", -32600},
		{"too many requests was not applied", 429, "", -32600},
		{"a redirect is not followed", 307, "", -32600},
		{"a redirect after the work is lost", 303, "", 0},
		{"a server error is lost", 500, "oops", 0},
		{"a bad gateway is lost", 502, "", 0},
		{"an unavailable service is lost", 503, "", 0},
		{"a time-out is lost", 408, "", 0},
		{"an answer is an answer whatever the status", 500, `{"jsonrpc":"2.0","id":7,"error":{"code":-5,"message":"m"}}`, -5},
		{"an error without id keeps a code that says not applied", 400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"m"}}`, -32020},
		{"an error without id has no other code of its own", 400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m"}}`, -32600},
		{"an error without id and a server error is lost", 500, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m"}}`, 0},
		{"accepted without an answer is lost", 202, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var requests atomic.Int32
			c := serve(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
				requests.Add(1)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			})
			c.write(call)
			m := c.read()
			var e struct{ Code int }
			if m.Error != nil {
				if err := json.Unmarshal(m.Error, &e); err != nil {
					t.Fatal(err)
				}
			}
			if string(m.ID) != "7" || e.Code != tt.code || m.Lost != (tt.code == 0) {
				t.Errorf("got id %s, code %d, lost %v (%v)", m.ID, e.Code, m.Lost, m.Cause)
			}
			if got := requests.Load(); got != 1 {
				t.Errorf("%d requests were made, want one", got)
			}
		})
	}
}

func TestUpstream_RefusedProbeSendsClientsToInitialize(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		http.Error(w, "no session", http.StatusBadRequest)
	})
	c.write(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	if m := c.read(); !strings.Contains(string(m.Error), "-32601") {
		t.Errorf("answer is %s, want method not found", m.Raw)
	}
}

func TestUpstream_EndOfItsSessionEndsTheConnection(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request, id string) {
		if r.Header.Get("Mcp-Session-Id") != "" {
			http.Error(w, "gone", http.StatusNotFound)
			return
		}
		w.Header().Set("Mcp-Session-Id", "s1")
		answerJSON(w, r, id, `{"protocolVersion":"2025-11-25"}`)
	})
	c.write(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	c.read()
	c.write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`)
	if m := c.read(); m.Lost || !strings.Contains(string(m.Error), "-32600") {
		t.Errorf("the call was answered with %s, want a refusal", m.Raw)
	}
	if _, err := c.conn.Read(t.Context()); !errors.Is(err, gateway.ErrSessionGone) {
		t.Errorf("Read: %v, want ErrSessionGone", err)
	}
}

func TestUpstream_UnreachableIsProofThatNothingWasSent(t *testing.T) {
	c := dial(t, "http://127.0.0.1:1", nil) // where nobody listens
	written, err := c.conn.Write(t.Context(), parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`))
	if written || err == nil {
		t.Errorf("Write: written %v, error %v; want nothing written and an error", written, err)
	}
}

// A server that reads a call and hangs up may have acted on it. Neither we nor net/http may send it
// again, which net/http does by itself for a request with an Idempotency-Key on a reused connection.
func TestUpstream_DroppedConnectionIsLostAndNotSentAgain(t *testing.T) {
	var requests atomic.Int32
	addr := serveRaw(t, func(conn net.Conn) {
		r := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, _ := io.ReadAll(req.Body)
			if requests.Add(1) > 1 {
				return // the second request is read and dropped
			}
			answer := `{"jsonrpc":"2.0","id":1,"result":{}}`
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
			_ = body
		}
	})
	c := dial(t, "http://"+addr, nil)
	header := map[string][]string{"Idempotency-Key": {"k"}}
	for id := 1; id <= 2; id++ {
		m := parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, id))
		m.Header = header
		if _, err := c.conn.Write(t.Context(), m); err != nil {
			t.Fatalf("Write %d: %v", id, err)
		}
		if got := c.read(); got.Lost != (id == 2) || string(got.ID) != fmt.Sprint(id) {
			t.Errorf("call %d: lost %v, id %s", id, got.Lost, got.ID)
		}
	}
	if got := requests.Load(); got != 2 {
		t.Errorf("the server saw %d requests of 2 calls", got)
	}
}

// A call cut off half-way through its body may not be taken for one that never left.
func TestUpstream_HalfWrittenCallCountsAsWritten(t *testing.T) {
	addr := serveRaw(t, func(conn net.Conn) {
		io.ReadFull(conn, make([]byte, 100<<10))
		conn.(*net.TCPConn).SetLinger(0)
	})
	c := dial(t, "http://"+addr, nil)
	big := strings.Repeat("x", 8<<20)
	m := parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+big+`"}}`)
	written, err := c.conn.Write(t.Context(), m)
	if err == nil {
		written = c.read().Lost
	}
	if !written {
		t.Errorf("Write reports nothing written: %v", err)
	}
}

func TestUpstream_BrokenStreamIsTakenUpAgain(t *testing.T) {
	var resumed atomic.Value
	c := serve(t, func(w http.ResponseWriter, r *http.Request, id string) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.Method == http.MethodGet {
			resumed.Store(r.Header.Get("Last-Event-ID"))
			io.WriteString(w, "id: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"ok\":true}}\n\n")
			return
		}
		io.WriteString(w, "id: e1\nretry: 1\ndata:\n\n")
	})
	c.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	if m := c.read(); string(m.Result) != `{"ok":true}` || m.Lost {
		t.Errorf("answer is %s, lost %v (%v)", m.Raw, m.Lost, m.Cause)
	}
	if got := resumed.Load(); got != "e1" {
		t.Errorf("stream was resumed behind %v, want e1", got)
	}
}

func TestUpstream_StreamWithoutAnswerIsLost(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"res")
	})
	c.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	if m := c.read(); m.Method != "notifications/message" {
		t.Errorf("first message is %s", m.Raw)
	}
	if m := c.read(); !m.Lost || m.Cause == nil || string(m.ID) != "1" {
		t.Errorf("got lost %v, id %s, cause %v", m.Lost, m.ID, m.Cause)
	}
}

func TestUpstream_StatelessHeadersRepeatTheBody(t *testing.T) {
	headers := make(chan http.Header, 1)
	c := serve(t, func(w http.ResponseWriter, r *http.Request, id string) {
		headers <- r.Header
		w.Header().Set("Mcp-Session-Id", "ignored")
		answerJSON(w, r, id, `{"tools":[{"name":"pay","inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"},`+
			`"n":{"type":"integer","x-mcp-header":"N"},"o":{"properties":{"deep":{"type":"boolean","x-mcp-header":"Deep"}}}}}}]}`)
	})
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	tests := []struct {
		name, body string
		want       map[string]string
	}{
		{"list", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`,
			map[string]string{"Mcp-Method": "tools/list"}},
		{"call", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"pay","arguments":{"region":" é","n":1e2,"o":{"deep":true}},` + meta + `}}`,
			map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "pay", "Mcp-Param-Region": "=?base64?IMOp?=", "Mcp-Param-N": "100", "Mcp-Param-Deep": "true"}},
		{"null is no header", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"pay","arguments":{"region":null,"n":9007199254740993},` + meta + `}}`,
			map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "pay"}},
		{"an unknown tool keeps the agent's", `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"other",` + meta + `}}`,
			map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "other", "Mcp-Param-Region": "stale"}},
		{"resource", `{"jsonrpc":"2.0","id":5,"method":"resources/read","params":{"uri":"file:///a",` + meta + `}}`,
			map[string]string{"Mcp-Method": "resources/read", "Mcp-Name": "file:///a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := parse(t, tt.body)
			m.Header = map[string][]string{"Mcp-Param-Region": {"stale"}}
			if _, err := c.conn.Write(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for k, v := range <-headers {
				if strings.HasPrefix(k, "Mcp-") && k != "Mcp-Protocol-Version" {
					got[k] = v[0]
				}
			}
			c.read()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("headers (-want +got)\n%s", diff)
			}
		})
	}
}

func TestUpstream_StatelessCancellationClosesTheStream(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	var posts atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		posts.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		close(started)
		<-r.Context().Done()
		close(ended)
	})
	c.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	await(t, started, "the call to arrive")
	c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	await(t, ended, "the stream to be closed")
	if m := c.read(); !m.Lost {
		t.Errorf("got %s, want lost", m.Raw)
	}
	if got := posts.Load(); got != 1 {
		t.Errorf("%d POSTs, want the call alone", got)
	}
}

func TestUpstream_LegacyCancellationIsSent(t *testing.T) {
	cancelled := make(chan string, 1)
	c := serve(t, func(w http.ResponseWriter, r *http.Request, id string) {
		if id == "" {
			cancelled <- r.Header.Get("X-Key")
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if got := <-cancelled; got != "configured" {
		t.Errorf("configured header is %q on the notification", got)
	}
}

func TestUpstream_AnswerWaitsForNoWriter(t *testing.T) {
	release := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request, id string) {
		if id == "1" {
			<-release
		}
		answerJSON(w, r, id, `{}`)
	})
	ctx, cancel := context.WithCancel(t.Context())
	written, err := c.conn.Write(ctx, parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`))
	if !written || err != nil {
		t.Fatalf("Write: %v, %v", written, err)
	}
	cancel() // bounds the sending alone
	c.write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`)
	if m := c.read(); string(m.ID) != "2" {
		t.Errorf("first answer is for %s, want 2", m.ID)
	}
	close(release)
	if m := c.read(); string(m.ID) != "1" || m.Lost {
		t.Errorf("second answer is for %s, lost %v", m.ID, m.Lost)
	}
}

func TestDialHTTP_RefusesWhatIsNoURL(t *testing.T) {
	for _, url := range []string{"", "localhost:80", "ftp://x/", "http://", "http://a b/"} {
		if _, err := gateway.DialHTTP(t.Context(), url, nil); err == nil {
			t.Errorf("DialHTTP(%q) gave no error", url)
		}
	}
}

// upstreamConn drives a Conn from a test.
type upstreamConn struct {
	t    *testing.T
	conn gateway.Conn
}

func dial(t *testing.T, url string, o *gateway.UpstreamOptions) *upstreamConn {
	t.Helper()
	conn, err := gateway.DialHTTP(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &upstreamConn{t, conn}
}

func (c *upstreamConn) write(raw string) {
	c.t.Helper()
	if _, err := c.conn.Write(c.t.Context(), parse(c.t, raw)); err != nil {
		c.t.Fatalf("Write: %v", err)
	}
}

func (c *upstreamConn) read() *gateway.Message {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	m, err := c.conn.Read(ctx)
	if err != nil {
		c.t.Fatalf("Read: %v", err)
	}
	return m
}

func parse(t *testing.T, raw string) *gateway.Message {
	t.Helper()
	m, err := gateway.ParseMessage([]byte(raw), nil)
	if err != nil {
		t.Fatalf("parse %.80s: %v", raw, err)
	}
	return m
}

func await(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

// serve starts an upstream that answers each request with answer, which gets the raw id of the body.
func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, id string)) *upstreamConn {
	return serveWith(t, &gateway.UpstreamOptions{Header: http.Header{"X-Key": {"configured"}}}, answer)
}

func serveWith(t *testing.T, o *gateway.UpstreamOptions, answer func(w http.ResponseWriter, r *http.Request, id string)) *upstreamConn {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ ID json.RawMessage }
		json.NewDecoder(r.Body).Decode(&body)
		io.Copy(io.Discard, r.Body)
		answer(w, r, string(body.ID))
	}))
	t.Cleanup(up.Close)
	return dial(t, up.URL, o)
}

// serveRaw accepts connections and closes each when handle returns.
func serveRaw(t *testing.T, handle func(net.Conn)) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return ln.Addr().String()
}
