package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/undolog/undolog/gateway"
	"github.com/undolog/undolog/internal/mcptest"
)

func TestFront_GoSDKAgents(t *testing.T) {
	upstreams := map[string]func(*testing.T, *mcp.Server) dialFunc{"pipe": sdkUpstream, "HTTP": sdkHTTPUpstream}
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		for kind, upstream := range upstreams {
			t.Run(version+" over "+kind, func(t *testing.T) {
				leak := goleak.IgnoreCurrent()
				t.Cleanup(func() { noLeaks(t, leak) }) // the last to run
				server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
				addSDKTools(server)
				addHeaderTool(server)
				testGoSDKAgent(t, version, server, newFront(t, nil, upstream(t, server)))
			})
		}
	}
}

// addHeaderTool adds a tool that wants an argument repeated as a header.
func addHeaderTool(server *mcp.Server) {
	schema := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)
	server.AddTool(&mcp.Tool{Name: "region", InputSchema: schema}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	})
}

// testGoSDKAgent uses server through f as a go-sdk client does.
func testGoSDKAgent(t *testing.T, version string, server *mcp.Server, f *front) {
	progressed, listed := make(chan struct{}, 1), make(chan struct{}, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { progressed <- struct{}{} },
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case listed <- struct{}{}:
			default:
			}
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "sampled"}}, nil
		},
	})
	transport := &mcp.StreamableClientTransport{Endpoint: f.url}
	session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer f.close()
	defer session.Close()
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Errorf("negotiated %s, want %s", got, version)
	}
	params := &mcp.CallToolParams{Name: "progress", Meta: mcp.Meta{"progressToken": "p"}}
	res, err := session.CallTool(t.Context(), params)
	if err != nil || res.Content[0].(*mcp.TextContent).Text != "done" {
		t.Fatalf("call: %v, %v", res, err)
	}
	await(t, progressed, "progress")
	if version != "2026-07-28" { // its sampling is part of the answer, and tested where that is
		res, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "sample"})
		if err != nil || res.IsError || res.Content[0].(*mcp.TextContent).Text != "sampled" {
			t.Fatalf("sample: %v, %v", res, err)
		}
	}
	if _, err := session.ListTools(t.Context(), nil); err != nil { // the client learns which argument is a header
		t.Fatal(err)
	}
	res, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "region", Arguments: map[string]any{"region": " ü"}})
	if err != nil || res.IsError {
		t.Errorf("call with a header argument: %v, %v", res, err)
	}
	defer addToolsUntilStopped(server)()
	await(t, listed, "the change of the tool list")
}

func TestFront_BytesPassUnchanged(t *testing.T) {
	const result = `{"content":[],"structuredContent":{"big":9007199254740993,"spelled":1.50e+2},"unknown":{"b":1,"a":[ ]}}`
	f := newFront(t, nil, scripted(func(m *gateway.Message, send func(string)) {
		if m.Method == "tools/call" {
			send(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`)
		}
	}))
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			got := f.call(t, f.agent(t, version), "12345678901234567890", "x")
			if string(got.Result) != result {
				t.Errorf("result is %s", got.Result)
			}
		})
	}
}

func TestFront_ResultOfTwentyMegabytesPasses(t *testing.T) {
	big := strings.Repeat("x", 20<<20)
	f := newFront(t, nil, scripted(func(m *gateway.Message, send func(string)) {
		if m.Method == "tools/call" {
			send(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"text":"` + big + `"}}`)
		}
	}))
	session := f.agent(t, "2025-11-25").Session
	for body, header := range map[string]map[string]string{
		mcptest.ToolCall("1", "x", "{}", ""):                  {"Mcp-Session-Id": session},
		mcptest.ToolCall("1", "x", "{}", mcptest.MetaMembers): {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "x"},
	} {
		answer, err := io.ReadAll(f.do(t, "", body, header).Body)
		if err != nil || !bytes.Contains(answer, []byte(`"text":"`+big+`"}}`)) {
			t.Errorf("got %d bytes, %v: %.100s", len(answer), err, answer)
		}
	}
}

func TestFront_RefusesMalformedPOSTs(t *testing.T) {
	f := newFront(t, &gateway.HTTPOptions{MaxBody: 10_000}, scripted(nil))
	legacy := f.agent(t, "2025-11-25")
	ping := `{"jsonrpc":"2.0","id":5,"method":"ping"}`
	call := mcptest.ToolCall("5", "x", "{}", mcptest.MetaMembers)
	stateless := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "x"}
	session := map[string]string{"Mcp-Session-Id": legacy.Session}
	tests := []struct {
		name   string
		method string
		header map[string]string // on top of the base; "-" removes
		base   map[string]string
		body   string
		status int
		code   int64 // zero: no JSON-RPC error
		id     string
	}{
		{name: "wrong content type", base: session, header: map[string]string{"Content-Type": "text/plain"}, body: ping, status: 415},
		{name: "accepts neither form", base: session, header: map[string]string{"Accept": "text/html"}, body: ping, status: 406},
		{name: "stateless accepts one form only", base: stateless, header: map[string]string{"Accept": "application/json"}, body: call, status: 406},
		{name: "no session", body: ping, status: 400},
		{name: "unknown session", header: map[string]string{"Mcp-Session-Id": "x"}, body: ping, status: 404},
		{name: "unknown path", method: "POST /other", base: session, body: ping, status: 404},
		{name: "not JSON", base: session, body: `{"jsonrpc":`, status: 400, code: -32700, id: "null"},
		{name: "duplicate member", base: session, body: `{"jsonrpc":"2.0","id":5,"method":"ping","method":"x"}`, status: 400, code: -32600, id: "5"},
		{name: "too deep", base: session, body: `{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}}`, status: 400, code: -32600, id: "5"},
		{name: "above the limit, id in front", base: session, body: `{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":"` + strings.Repeat("x", 20_000) + `"}}`, status: 413, code: -32600, id: "5"},
		{name: "above the limit, id behind", base: session, body: `{"jsonrpc":"2.0","params":{"a":"` + strings.Repeat("x", 20_000) + `"},"method":"ping","id":6}`, status: 413, code: -32600, id: "6"},
		{name: "_meta is stateless, headers are not", base: session, body: call, status: 400, code: -32020, id: "5"},
		{name: "stateless without Mcp-Method", base: stateless, header: map[string]string{"Mcp-Method": "-"}, body: call, status: 400, code: -32020, id: "5"},
		{name: "stateless with another Mcp-Method", base: stateless, header: map[string]string{"Mcp-Method": "ping"}, body: call, status: 400, code: -32020, id: "5"},
		{name: "stateless without Mcp-Name", base: stateless, header: map[string]string{"Mcp-Name": "-"}, body: call, status: 400, code: -32020, id: "5"},
		{name: "stateless with another Mcp-Name", base: stateless, header: map[string]string{"Mcp-Name": "y"}, body: call, status: 400, code: -32020, id: "5"},
		{name: "stateless with another version", base: stateless, header: map[string]string{"Mcp-Protocol-Version": "2027-01-01"}, body: call, status: 400, code: -32020, id: "5"},
		{name: "stateless without _meta", base: stateless, body: mcptest.ToolCall("5", "x", "{}", ""), status: 400, code: -32602, id: "5"},
		{name: "stateless without capabilities", base: stateless, body: mcptest.ToolCall("5", "x", "{}", `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`), status: 400, code: -32602, id: "5"},
		{name: "stateless batch", base: stateless, body: "[" + call + "," + call + "]", status: 400, code: -32600, id: "null"},
		{name: "stateless response", base: stateless, body: `{"jsonrpc":"2.0","id":1,"result":{}}`, status: 400, code: -32600, id: "null"},
		{name: "stateless initialize", base: stateless, header: map[string]string{"Mcp-Method": "initialize"}, body: mcptest.Request("5", "initialize", `{"_meta":{`+mcptest.MetaMembers+`}}`), status: 404, code: -32601, id: "5"},
		{name: "stateless GET", method: "GET /", base: stateless, status: 405},
		{name: "stateless DELETE", method: "DELETE /", base: stateless, status: 405},
		{name: "PUT", method: "PUT /", base: session, status: 405},
		{name: "GET without a session", method: "GET /", status: 400},
		{name: "GET of JSON", method: "GET /", base: session, header: map[string]string{"Accept": "application/json"}, status: 406},
		{name: "foreign host", base: session, header: map[string]string{"Host": "evil.example"}, body: ping, status: 403},
		{name: "foreign origin", base: session, header: map[string]string{"Origin": "https://evil.example"}, body: ping, status: 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp := f.do(t, tt.method, tt.body, tt.base, tt.header)
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status {
				t.Errorf("status is %d, want %d: %s", resp.StatusCode, tt.status, body)
			}
			if tt.code == 0 {
				return
			}
			m, err := mcptest.ParseMessage(body)
			if err != nil {
				t.Fatal(err)
			}
			e, err := m.Err()
			if err != nil || e.Code != tt.code || string(m.ID) != tt.id {
				t.Errorf("answer is %s, want code %d under id %s", body, tt.code, tt.id)
			}
		})
	}
}

func TestFront_StatelessErrorsHaveTheirStatus(t *testing.T) {
	f := newFront(t, nil, scripted(func(m *gateway.Message, send func(string)) {
		if m.Method == "tools/call" {
			code := strings.TrimSuffix(strings.TrimPrefix(string(m.Params), `{"name":"`), `"`)
			code, _, _ = strings.Cut(code, `"`)
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"m"}}`, m.ID, code))
		}
	}))
	client := f.agent(t, "2026-07-28")
	for code, want := range map[string]int{"-32601": 404, "-32602": 400, "-32022": 400, "-32021": 400, "-5": 200} {
		stream, err := client.Post(t.Context(), mcptest.ToolCall("1", code, "{}", mcptest.MetaMembers))
		if err != nil {
			t.Fatal(err)
		}
		if stream.Status != want {
			t.Errorf("error %s has status %d, want %d", code, stream.Status, want)
		}
		stream.Close()
	}
}

func TestFront_SessionsBelongToTheirPrincipal(t *testing.T) {
	verifier := tokens(t, `- {token: token-of-alice-1, tenant: t1, principal: alice}
- {token: token-of-bobby-1, principal: bob}
- {token: token-of-alice-2, tenant: t2, principal: alice}`)
	seen := make(chan gateway.AgentInfo, 1)
	up := scripted(nil)
	f := newFront(t, &gateway.HTTPOptions{Verifier: verifier, Tenant: "default"}, func(ctx context.Context, a *gateway.AgentInfo) (gateway.Conn, error) {
		seen <- *a
		return up(ctx, a)
	})
	client := &mcptest.HTTP{URL: f.url, Header: http.Header{"Authorization": {"Bearer token-of-alice-1"}}}
	client.Initialize(t, "2025-11-25")
	got := <-seen
	if diff := cmp.Diff([]string{"t1", "alice", client.Session}, []string{got.Tenant, got.Principal, got.Session}); diff != "" {
		t.Errorf("agent (-want +got)\n%s", diff)
	}
	for token, want := range map[string]int{"": 401, "guessed-token-xx": 401, "token-of-bobby-1": 403, "token-of-alice-2": 403, "token-of-alice-1": 202} {
		header := map[string]string{"Mcp-Session-Id": client.Session, "Authorization": "Bearer " + token}
		resp := f.do(t, "", `{"jsonrpc":"2.0","method":"notifications/x"}`, header, nil)
		if resp.StatusCode != want {
			t.Errorf("token %q gets %d, want %d", token, resp.StatusCode, want)
		}
	}
}

func TestFront_IDInFlightIsRefused(t *testing.T) {
	release := make(chan struct{})
	f := newFront(t, nil, scripted(func(m *gateway.Message, send func(string)) {
		if m.Method == "tools/call" {
			<-release
			send(`{"jsonrpc":"2.0","id":1,"result":{"n":1}}`)
		}
	}))
	client := f.agent(t, "2025-11-25")
	first, err := client.Post(t.Context(), mcptest.ToolCall("1", "x", "{}", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	again := f.call(t, client, "1", "x")
	if e, err := again.Err(); err != nil || e.Code != -32600 {
		t.Errorf("second request of id 1 got %s", again.Raw)
	}
	close(release)
	if m, err := first.Response("1"); err != nil || string(m.Result) != `{"n":1}` {
		t.Errorf("first request got %s, %v", m.Raw, err)
	}
}

func TestFront_UpstreamRequests(t *testing.T) {
	const ask = `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`
	answers, asked := make(chan string, 1), make(chan struct{}, 10)
	up := scripted(func(m *gateway.Message, send func(string)) {
		switch {
		case m.Method == "notifications/ask":
			send(ask)
			asked <- struct{}{}
		case m.IsResponse():
			answers <- string(m.Raw)
		}
	})

	t.Run("go to the GET stream when no call is under way", func(t *testing.T) {
		f := newFront(t, nil, up)
		client := f.agent(t, "2025-11-25")
		stream, err := client.Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		f.notify(t, client, "notifications/ask")
		m, err := stream.Next()
		if err != nil || string(m.Raw) != ask {
			t.Fatalf("GET stream brought %s, %v", m.Raw, err)
		}
		f.post(t, client, `{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}`)
		if got := <-answers; got != `{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}` {
			t.Errorf("upstream got %s", got)
		}
	})
	t.Run("wait for a GET stream that is about to open", func(t *testing.T) {
		f := newFront(t, &gateway.HTTPOptions{StreamWait: patience}, up)
		client := f.agent(t, "2025-11-25")
		f.notify(t, client, "notifications/ask")
		<-asked
		stream, err := client.Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		if m, err := stream.Next(); err != nil || string(m.Raw) != ask {
			t.Errorf("GET stream brought %s, %v", m.Raw, err)
		}
	})
	t.Run("are refused when no stream comes", func(t *testing.T) {
		f := newFront(t, &gateway.HTTPOptions{StreamWait: time.Millisecond}, up)
		f.notify(t, f.agent(t, "2025-11-25"), "notifications/ask")
		if got := <-answers; !strings.Contains(got, `"error"`) || !strings.Contains(got, `"id":"q"`) {
			t.Errorf("upstream got %s, want an error", got)
		}
	})
}

// What a stream has not taken when its agent hangs up waits for the next one.
func TestFront_MessagesWaitForAnotherStream(t *testing.T) {
	const last = 12 // of a MiB each: all together more than is under way on a connection
	f := newFront(t, &gateway.HTTPOptions{QueueSize: last}, scripted(func(m *gateway.Message, send func(string)) {
		switch m.Method {
		case "notifications/ask":
			for n := 1; n <= last; n++ {
				send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/noted","params":{"text":"%s","n":%d}}`, strings.Repeat("x", 1<<20), n))
			}
		case "tools/call":
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID))
		}
	}))
	client := f.agent(t, "2025-11-25")
	f.notify(t, client, "notifications/ask")
	f.call(t, client, "1", "x") // they have come by its answer
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	listen := func() *mcptest.Stream {
		stream, err := client.Listen(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	listen().Close()
	stream := listen()
	defer stream.Close()
	for end := fmt.Sprintf(`"n":%d}}`, last); ; {
		m, err := stream.Next()
		if err != nil {
			t.Fatalf("before the last message: %v", err)
		}
		if strings.HasSuffix(string(m.Raw), end) {
			return
		}
	}
}

func TestFront_MessagesGoToTheCallTheyBelongTo(t *testing.T) {
	calls := 0
	f := newFront(t, nil, scripted(func(m *gateway.Message, send func(string)) {
		if m.Method != "tools/call" {
			return
		}
		if calls++; calls < 2 {
			return
		}
		send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"b","progress":1}}`)
		send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"a","progress":1}}`)
		send(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		send(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	client := f.agent(t, "2025-11-25")
	post := func(id, token string) *mcptest.Stream {
		stream, err := client.Post(t.Context(), mcptest.ToolCall(id, "x", "{}", `"progressToken":"`+token+`"`))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stream.Close)
		return stream
	}
	one, two := post("1", "a"), post("2", "b")
	for id, stream := range map[string]*mcptest.Stream{"1": one, "2": two} {
		token := map[string]string{"1": `"a"`, "2": `"b"`}[id]
		if m, err := stream.Next(); err != nil || m.Method != "notifications/progress" || !strings.Contains(string(m.Params), token) {
			t.Errorf("stream %s brought %s, %v", id, m.Raw, err)
		}
		if m, err := stream.Next(); err != nil || !m.IsResponse(id) {
			t.Errorf("stream %s brought %s, %v", id, m.Raw, err)
		}
		if _, err := stream.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("stream %s goes on behind its answer: %v", id, err)
		}
	}
}

func TestFront_ClosedResponseIsNoCancellationInASession(t *testing.T) {
	called, release := make(chan struct{}), make(chan struct{})
	f := newFront(t, nil, scripted(func(m *gateway.Message, send func(string)) {
		switch m.Method {
		case "tools/call":
			close(called)
			<-release
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID))
		case "notifications/cancelled":
			panic("the call was cancelled")
		}
	}))
	client := f.agent(t, "2025-11-25")
	client.Header = http.Header{"X-Watched": {"yes"}}
	stream, err := client.Post(t.Context(), mcptest.ToolCall("1", "x", "{}", ""))
	if err != nil {
		t.Fatal(err)
	}
	await(t, called, "the call")
	stream.Close()
	f.waitGone(t)
	close(release)
	if delivered := <-f.delivered; delivered {
		t.Error("the answer counts as delivered, to nobody")
	}
}

func TestFront_AnswerToALiveAgentCountsAsDelivered(t *testing.T) {
	f := newFront(t, nil, scripted(func(m *gateway.Message, send func(string)) {
		if m.Method == "tools/call" {
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID))
		}
	}))
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		f.call(t, f.agent(t, version), "1", "x")
		if delivered := <-f.delivered; !delivered {
			t.Errorf("%s: the answer does not count as delivered", version)
		}
	}
}

func TestFront_CancelledRequestEndsWithoutAnAnswer(t *testing.T) {
	called := make(chan struct{})
	cancelled := make(chan struct{})
	f := newFront(t, nil, scripted(func(m *gateway.Message, _ func(string)) {
		switch m.Method {
		case "tools/call":
			close(called)
		case "notifications/cancelled":
			close(cancelled)
		}
	}))
	client := f.agent(t, "2025-11-25")
	stream, err := client.Post(t.Context(), mcptest.ToolCall("1", "x", "{}", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	await(t, called, "the call")
	f.post(t, client, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if m, err := stream.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("stream brought %s, %v; want its end", m.Raw, err)
	}
	await(t, cancelled, "the upstream to be told")
}

func TestFront_ClosedResponseCancelsAStatelessRequest(t *testing.T) {
	called, cancelled := make(chan struct{}), make(chan struct{})
	f := newFront(t, nil, scripted(func(m *gateway.Message, _ func(string)) {
		switch m.Method {
		case "tools/call":
			close(called)
		case "notifications/cancelled":
			close(cancelled)
		}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		client := f.agent(t, "2026-07-28")
		if _, err := client.Do(ctx, "1", mcptest.ToolCall("1", "x", "{}", mcptest.MetaMembers)); err == nil {
			t.Error("a cancelled request was answered")
		}
	}()
	await(t, called, "the call")
	cancel()
	await(t, cancelled, "the cancellation")
	<-done
}

// An upstream that takes its time to start is waited for, and the headers go out meanwhile: with the session's id.
func TestFront_SessionOfASlowUpstream(t *testing.T) {
	begin := func(t *testing.T, answer string) (f *front, client *mcptest.HTTP, stream *mcptest.Stream, closed chan struct{}) {
		release := make(chan struct{})
		closed = make(chan struct{})
		f = newFront(t, &gateway.HTTPOptions{KeepAlive: time.Millisecond}, onClose(scriptedAll(func(m *gateway.Message, send func(string)) {
			switch m.Method {
			case "initialize":
				<-release
				if answer != "" {
					send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer))
				}
			case "tools/call":
				send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID))
			}
		}), closed))
		client = &mcptest.HTTP{URL: f.url}
		stream, err := client.Post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stream.Close)
		close(release) // Post has returned, so the headers are out
		client.Version, client.Session = "2025-11-25", stream.Header.Get("Mcp-Session-Id")
		return f, client, stream, closed
	}
	t.Run("begins", func(t *testing.T) {
		f, client, stream, _ := begin(t, `"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"slow","version":"1"}}`)
		if m, err := stream.Response("1"); err != nil || m.Result == nil || client.Session == "" {
			t.Fatalf("session %q, %s, %v", client.Session, m.Raw, err)
		}
		if m := f.call(t, client, "2", "x"); m.Error != nil {
			t.Errorf("a call in it: %s", m.Raw)
		}
	})
	t.Run("ends when it is refused", func(t *testing.T) {
		f, client, stream, closed := begin(t, `"error":{"code":-32602,"message":"no"}`)
		if m, err := stream.Response("1"); err != nil || m.Error == nil {
			t.Fatalf("answered %s, %v", m.Raw, err)
		}
		await(t, closed, "the upstream to be closed")
		f.expectGone(t, client)
	})
	t.Run("ends when its agent leaves before the answer", func(t *testing.T) {
		f, client, stream, closed := begin(t, "")
		stream.Close()
		await(t, closed, "the upstream to be closed")
		f.expectGone(t, client)
	})
}

func TestFront_SessionsEnd(t *testing.T) {
	t.Run("by DELETE", func(t *testing.T) {
		f := newFront(t, nil, scripted(nil))
		client := f.agent(t, "2025-11-25")
		if status, err := client.Delete(t.Context()); status != http.StatusNoContent || err != nil {
			t.Errorf("DELETE: %d, %v", status, err)
		}
		f.expectGone(t, client)
	})
	t.Run("when idle, and not while a stream is open", func(t *testing.T) {
		idle := 100 * time.Millisecond
		for !endsWhenIdle(t, idle) { // a busy machine opens no stream in that time
			if idle *= 4; idle > patience {
				t.Fatal("every session was idle before its stream opened")
			}
		}
	})
	t.Run("when initialize is refused", func(t *testing.T) {
		closed := make(chan struct{})
		f := newFront(t, nil, onClose(scriptedAll(func(m *gateway.Message, send func(string)) {
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, m.ID))
		}), closed))
		resp := f.do(t, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, nil, nil)
		if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
			t.Errorf("a refused initialize gave session %s", id)
		}
		await(t, closed, "the upstream to be closed")
	})
	t.Run("and more than allowed do not begin", func(t *testing.T) {
		f := newFront(t, &gateway.HTTPOptions{MaxSessions: 1}, scripted(nil))
		f.agent(t, "2025-11-25")
		resp := f.do(t, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, nil, nil)
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("second session got %d", resp.StatusCode)
		}
	})
}

// endsWhenIdle fails the test unless a session ends after it was idle for that long, and not before; false when it
// was before it had a stream.
func endsWhenIdle(t *testing.T, idle time.Duration) bool {
	t.Helper()
	closed := make(chan struct{})
	f := newFront(t, &gateway.HTTPOptions{IdleTimeout: idle}, onClose(scripted(nil), closed))
	client := f.agent(t, "2025-11-25")
	stream, err := client.Listen(t.Context())
	if err != nil || stream.Status != http.StatusOK {
		return false
	}
	select {
	case <-closed:
		t.Error("session ended with a stream open")
	case <-time.After(3 * idle):
	}
	stream.Close()
	await(t, closed, "the idle session's upstream to be closed")
	f.expectGone(t, client)
	return true
}

func TestFront_JSONAloneIsAnsweredByJSON(t *testing.T) {
	f := newFront(t, nil, scripted(func(m *gateway.Message, send func(string)) {
		if m.Method == "tools/call" {
			send(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID))
		}
	}))
	client := f.agent(t, "2025-11-25")
	header := map[string]string{"Mcp-Session-Id": client.Session, "Accept": "application/json"}
	resp := f.do(t, "", mcptest.ToolCall("1", "x", "{}", ""), header, nil)
	body, _ := io.ReadAll(resp.Body)
	if got := resp.Header.Get("Content-Type"); got != "application/json" || string(body) != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("got %s: %s", got, body)
	}
}

func TestFront_BatchesAreTakenApart(t *testing.T) {
	f := newFront(t, nil, scripted(func(m *gateway.Message, send func(string)) {
		if m.Method == "tools/call" {
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID))
		}
	}))
	client := f.agent(t, "2025-03-26")
	stream, err := client.Post(t.Context(), "["+mcptest.ToolCall("1", "x", "{}", "")+",\n"+mcptest.ToolCall("2", "x", "{}", "")+"]")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	got := map[string]bool{}
	for {
		m, err := stream.Next()
		if err != nil {
			break
		}
		got[string(m.ID)] = true
	}
	if diff := cmp.Diff(map[string]bool{"1": true, "2": true}, got); diff != "" {
		t.Errorf("answers (-want +got)\n%s", diff)
	}
}

func TestFront_KeepAliveKeepsALongCallsStream(t *testing.T) {
	release := make(chan struct{})
	f := newFront(t, &gateway.HTTPOptions{KeepAlive: time.Millisecond}, scripted(func(m *gateway.Message, send func(string)) {
		if m.Method == "tools/call" {
			<-release
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"m"}}`, m.ID))
		}
	}))
	stream, err := f.agent(t, "2026-07-28").Post(t.Context(), mcptest.ToolCall("1", "x", "{}", mcptest.MetaMembers))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	close(release) // Post has returned, so the stream is open: by a comment, for no message has come
	if m, err := stream.Response("1"); err != nil || m.Error == nil {
		t.Errorf("answer is %s, %v", m.Raw, err)
	}
}
