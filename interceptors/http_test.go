package interceptors_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
)

// serve gives the URL of a host whose one validator notes who calls.
func serve(t *testing.T, wrap func(http.Handler) http.Handler) (url string, caller *interceptors.Caller) {
	t.Helper()
	caller = new(interceptors.Caller)
	s := newServer(t, nil, validator("v", requestOnly("tools/call", "*"),
		func(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
			*caller = in.Caller
			return interceptors.Allow(), nil
		}))
	h, err := s.Handler(&interceptors.HTTPOptions{MaxBodyBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if wrap != nil {
		h = wrap(h)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL, caller
}

const currentMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// currentRequest is a request of revision 2026-07-28 that is right in every respect.
func currentRequest(t *testing.T, url, method, params string) *http.Request {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `}}`
	r := request(t, http.MethodPost, url, body)
	r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	r.Header.Set("Mcp-Method", method)
	return r
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	return r
}

// reply is the part of an HTTP answer that tests look at.
type reply struct {
	Status int
	Header http.Header
	Result json.RawMessage
	Error  *struct {
		Code int64
		Data json.RawMessage
	}
}

func send(t *testing.T, r *http.Request) reply {
	t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := reply{Status: res.StatusCode, Header: res.Header}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("decode %s: %v", body, err)
		}
	}
	return got
}

const goodInvoke = `"name":"v","event":"tools/call","phase":"request","payload":{"name":"echo"},` + currentMeta

func TestHandler_Discover(t *testing.T) { // W1
	url, _ := serve(t, nil)
	got := send(t, currentRequest(t, url, "server/discover", currentMeta))
	var result struct {
		ResultType        string
		SupportedVersions []string
		Capabilities      struct {
			Extensions  map[string]json.RawMessage
			Tools       json.RawMessage
			Interceptor json.RawMessage
		}
	}
	if err := json.Unmarshal(got.Result, &result); err != nil {
		t.Fatalf("discover answers %+v: %v", got, err)
	}
	want := `{"supportedEvents":["*","tools/call"]}`
	if declared := string(result.Capabilities.Extensions[interceptors.ExtensionID]); declared != want {
		t.Errorf("extension = %s, want %s", declared, want)
	}
	if result.ResultType != "complete" || len(result.SupportedVersions) == 0 || result.SupportedVersions[0] != "2026-07-28" {
		t.Errorf("resultType %q, supportedVersions %q", result.ResultType, result.SupportedVersions)
	}
	if string(result.Capabilities.Tools) != "{}" || result.Capabilities.Interceptor != nil {
		t.Errorf("more than the extension and no tools is declared: %s", got.Result)
	}
}

func TestHandler_Initialize(t *testing.T) { // W2
	url, _ := serve(t, nil)
	got := send(t, request(t, http.MethodPost, url, initialize))
	var result struct {
		ProtocolVersion string
		Capabilities    map[string]json.RawMessage
	}
	if err := json.Unmarshal(got.Result, &result); err != nil {
		t.Fatalf("initialize answers %+v: %v", got, err)
	}
	declared := `{"io.modelcontextprotocol/interceptors":{"supportedEvents":["*","tools/call"]}}`
	want := map[string]json.RawMessage{
		"extensions": json.RawMessage(declared), "experimental": json.RawMessage(declared), "tools": json.RawMessage("{}"),
	}
	if diff := cmp.Diff(want, result.Capabilities); diff != "" {
		t.Errorf("capabilities (-want +got)\n%s", diff)
	}
	if result.ProtocolVersion != "2025-11-25" {
		t.Errorf("protocolVersion = %s", result.ProtocolVersion)
	}
	end := request(t, http.MethodDelete, url, "")
	end.Header.Set("Mcp-Session-Id", got.Header.Get("Mcp-Session-Id"))
	if got := send(t, end); got.Status != http.StatusNoContent {
		t.Errorf("the session's end answers %d", got.Status)
	}
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},
	"clientInfo":{"name":"peer","version":"1"}}}`

func TestHandler_Headers(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	cases := map[string]struct {
		change func(*http.Request)
		status int
		code   int64
	}{
		"a proper request":                    {func(*http.Request) {}, 200, 0},
		"W4 no Mcp-Method":                    {func(r *http.Request) { r.Header.Del("Mcp-Method") }, 400, -32020},
		"W4 another Mcp-Method":               {header("Mcp-Method", "interceptors/list"), 400, -32020},
		"W5 a Mcp-Name is not looked at":      {header("Mcp-Name", "wrong"), 200, 0},
		"W13 a session id is not looked at":   {header("Mcp-Session-Id", "x"), 200, 0},
		"W15 a foreign origin":                {header("Origin", "https://evil.example"), 403, 0},
		"W15 a foreign site":                  {header("Sec-Fetch-Site", "cross-site"), 403, 0},
		"a foreign host name on the loopback": {func(r *http.Request) { r.Host = "evil.example" }, 403, 0},
		"no revision but in the body":         {func(r *http.Request) { r.Header.Del("Mcp-Protocol-Version") }, 400, -32020},
		"a revision that the body denies":     {header("Mcp-Protocol-Version", "2099-01-01"), 400, -32020},
		"an older one that the body denies":   {header("Mcp-Protocol-Version", "2025-11-25"), 400, -32020},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			url, _ := serve(t, nil)
			r := currentRequest(t, url, interceptors.MethodInvoke, goodInvoke)
			c.change(r)
			checkReply(t, send(t, r), c.status, c.code)
		})
	}
}

func checkReply(t *testing.T, got reply, status int, code int64) {
	t.Helper()
	if got.Status != status {
		t.Errorf("status = %d, want %d", got.Status, status)
	}
	switch {
	case code == 0 && got.Error != nil:
		t.Errorf("error = %+v", got.Error)
	case code != 0 && (got.Error == nil || got.Error.Code != code):
		t.Errorf("error = %+v, want code %d", got.Error, code)
	}
}

func TestHandler_Bodies(t *testing.T) {
	cases := map[string]struct {
		method, params string
		status         int
		code           int64
	}{
		"W7 no client capabilities": {interceptors.MethodList,
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`, 400, -32602},
		"H30 the plural":          {"interceptors/invoke", goodInvoke, 404, -32601},
		"an unknown method":       {"interceptors/none", goodInvoke, 404, -32601},
		"an unknown interceptor":  {interceptors.MethodInvoke, strings.Replace(goodInvoke, `"v"`, `"w"`, 1), 400, -32602},
		"a member that is twice":  {interceptors.MethodInvoke, `"name":"w",` + goodInvoke, 400, -32602},
		"a body that is too big":  {interceptors.MethodInvoke, `"pad":"` + strings.Repeat("x", 65<<10) + `",` + goodInvoke, 413, 0},
		"a list":                  {interceptors.MethodList, currentMeta, 200, 0},
		"a list of a broken kind": {interceptors.MethodList, `"event":7,` + currentMeta, 400, -32602},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			url, _ := serve(t, nil)
			checkReply(t, send(t, currentRequest(t, url, c.method, c.params)), c.status, c.code)
		})
	}
}

func TestHandler_OtherMethods(t *testing.T) { // W13
	for _, version := range []string{"2026-07-28", ""} {
		for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut} {
			url, _ := serve(t, nil)
			r := request(t, method, url, "")
			if version != "" {
				r.Header.Set("Mcp-Protocol-Version", version)
				r.Header.Set("Mcp-Session-Id", "x")
			}
			got := send(t, r)
			if got.Status != http.StatusMethodNotAllowed || got.Header.Get("Allow") != http.MethodPost {
				t.Errorf("%s of %q answers %d, allows %q", method, version, got.Status, got.Header.Get("Allow"))
			}
		}
	}
}

// TestHandler_Sessions is a peer of 2025-11-25: it has a session, proper errors and no resultType.
func TestHandler_Sessions(t *testing.T) {
	url, _ := serve(t, nil)
	cs := connectTransport(t, &mcp.StreamableClientTransport{Endpoint: url}, "2025-11-25")
	defer cs.Close()
	if cs.ID() == "" {
		t.Error("the peer has no session")
	}
	_, err := rawCall(t.Context(), cs, "interceptors/invoke", invokeOf("v"))
	wantCode(t, err, -32601)
	result, err := rawCall(t.Context(), cs, interceptors.MethodInvoke, invokeOf("v"))
	if err != nil {
		t.Fatal(err)
	}
	checkResultType(t, result, "2025-11-25")
}

func TestHandler_TokenIsTheCaller(t *testing.T) {
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		tenant, user, ok := strings.Cut(token, ".")
		if !ok {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{
			UserID: user, Expiration: time.Now().Add(time.Hour), Extra: map[string]any{"tenant": tenant},
		}, nil
	}
	url, caller := serve(t, auth.RequireBearerToken(verify, nil))
	if got := send(t, currentRequest(t, url, interceptors.MethodInvoke, goodInvoke)); got.Status != 401 {
		t.Errorf("without a token: status %d, want 401", got.Status)
	}
	for _, token := range []string{"acme.alice", "umbrella.bob"} {
		r := currentRequest(t, url, interceptors.MethodInvoke, goodInvoke)
		r.Header.Set("Authorization", "Bearer "+token)
		checkReply(t, send(t, r), 200, 0)
		if got := caller.Tenant + "." + caller.Subject; got != token || caller.Local {
			t.Errorf("token %s makes the caller %+v", token, *caller)
		}
	}
}

func TestHandler_TrustedOrigin(t *testing.T) {
	s := newServer(t, nil, validator("v", requestOnly("*"), allow))
	h, err := s.Handler(&interceptors.HTTPOptions{TrustedOrigins: []string{"https://console.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	r := currentRequest(t, server.URL, interceptors.MethodInvoke, goodInvoke)
	r.Header.Set("Origin", "https://console.example.com")
	checkReply(t, send(t, r), 200, 0)
	if _, err := s.Handler(&interceptors.HTTPOptions{TrustedOrigins: []string{"no origin"}}); err == nil {
		t.Error("a malformed origin is no error")
	}
}

func TestHandler_ClientLeaves(t *testing.T) {
	started, cancelled := make(chan struct{}), make(chan struct{})
	s := newServer(t, nil, validator("v", requestOnly("*"),
		func(ctx context.Context, _ *interceptors.Invocation) (*interceptors.Verdict, error) {
			close(started)
			<-ctx.Done()
			close(cancelled)
			return nil, ctx.Err()
		}))
	h, err := s.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left := make(chan error, 1)
	r := currentRequest(t, server.URL, interceptors.MethodInvoke, goodInvoke).WithContext(ctx)
	go func() {
		res, err := http.DefaultClient.Do(r)
		if err == nil {
			err = res.Body.Close()
		}
		left <- err
	}()
	<-started
	leave()
	<-cancelled
	if err := <-left; err == nil {
		t.Error("a request that was given up has an answer")
	}
}
