package chain_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

// bearer sends a token with every request.
type bearer struct {
	token string
	base  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.base.RoundTrip(r)
}

func TestMiddleware_OverHTTP(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		var w witness
		var calls seen
		c := newChain(t, &chain.Options{Observer: w.observer()},
			validator("v", notingJudge(&calls, "v", allowAll), hooks(on(interceptors.PhaseRequest, call))))
		s := mcp.NewServer(implementation, nil)
		s.AddTool(&mcp.Tool{Name: "pay", InputSchema: raw(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
		s.AddReceivingMiddleware(c.Middleware(nil))
		verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
			return &auth.TokenInfo{UserID: "user of " + token, Expiration: time.Now().Add(time.Hour)}, nil
		}
		front := httptest.NewServer(auth.RequireBearerToken(verify, nil)(mcp.NewStreamableHTTPHandler(
			func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})))
		defer front.Close()
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		cs, err := mcp.NewClient(implementation, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: front.URL, HTTPClient: &http.Client{Transport: bearer{"t1", transport}}, DisableStandaloneSSE: true,
		}, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
		if err != nil {
			t.Fatalf("connect: %v", err)
		}
		defer func() { _ = cs.Close() }()
		if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "pay"}); err != nil {
			t.Fatalf("CallTool: %v", err)
		}
		if p := calls.contexts["v"][0].Principal; p == nil || p.ID != "user of t1" || p.Type != "user" {
			t.Errorf("principal %+v", p)
		}
		if diff := cmp.Diff([]bool{false}, w.told()); diff != "" {
			t.Errorf("delivered (-want +got)\n%s", diff)
		}
	})
}
