package interceptors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/internal/splice"
)

// HTTPOptions configure the handler of a Server. The zero value is ready.
type HTTPOptions struct {
	// Implementation is the server's name and version. Defaults to "interceptors" without a version.
	Implementation *mcp.Implementation
	// SessionTimeout ends idle sessions of peers before 2026-07-28. Defaults to 10 minutes.
	SessionTimeout time.Duration
	// MaxBodyBytes bounds a request's body. Defaults to 4 MiB.
	MaxBodyBytes int64
	// TrustedOrigins are browser origins, such as "https://console.example.com", that may call. Requests
	// of every other foreign origin are refused with 403. Defaults to none.
	TrustedOrigins []string
}

// Handler serves the host at one endpoint for every protocol revision: stateless from 2026-07-28 on,
// with sessions before. Peers before 2026-07-28 that hold a GET stream open are told of changes. To demand
// bearer tokens, wrap the handler in auth.RequireBearerToken: TokenInfo.UserID becomes Caller.Subject and
// TokenInfo.Extra["tenant"] Caller.Tenant.
func (s *Server) Handler(opts *HTTPOptions) (http.Handler, error) {
	var o HTTPOptions
	if opts != nil {
		o = *opts
	}
	server, err := s.MCPServer(o.Implementation)
	if err != nil {
		return nil, err
	}
	get := func(*http.Request) *mcp.Server { return server }
	routed := router{
		host: s,
		stateless: mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			Stateless: true, JSONResponse: true, PropagateRequestCancellation: true,
			MaxRequestBodyBytes: o.maxBody(), Logger: s.log,
		}),
		sessions: mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			JSONResponse: true, SessionTimeout: o.sessionTimeout(),
			MaxRequestBodyBytes: o.maxBody(), Logger: s.log,
		}),
		maxBody: o.maxBody(),
	}
	guard := http.NewCrossOriginProtection()
	for _, origin := range o.TrustedOrigins {
		if err := guard.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("trust origin %q: %w", origin, err)
		}
	}
	return guard.Handler(routed), nil
}

func (o *HTTPOptions) maxBody() int64 {
	if o.MaxBodyBytes > 0 {
		return o.MaxBodyBytes
	}
	return 4 << 20
}

func (o *HTTPOptions) sessionTimeout() time.Duration {
	if o.SessionTimeout > 0 {
		return o.SessionTimeout
	}
	return 10 * time.Minute
}

// router sends a request to the handler of its protocol revision.
type router struct {
	host                *Server
	stateless, sessions http.Handler
	maxBody             int64
}

func (rt router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	current := r.Header.Get("Mcp-Protocol-Version") >= stateless
	sessionless := current || r.Header.Get("Mcp-Session-Id") == ""
	switch {
	case r.Method != http.MethodPost && sessionless:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	case current:
		rt.stateless.ServeHTTP(w, r)
	case sessionless && rt.disagrees(r):
		refuseVersion(w, r)
	case r.Method == http.MethodGet:
		rt.host.announceOn(w, r, rt.sessions)
	default:
		rt.sessions.ServeHTTP(w, r)
	}
}

// headerMismatch is the code of revision 2026-07-28 for headers that are missing or say something else than
// the body.
const headerMismatch = -32020

// disagrees reports a body that names a revision, as that of the stateless one must, where the header names
// none or another. The body can be read again.
func (rt router) disagrees(r *http.Request) bool {
	body, err := io.ReadAll(io.LimitReader(r.Body, rt.maxBody+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	if err != nil {
		return false
	}
	named := splice.Get(body, "params", "_meta", "io.modelcontextprotocol/protocolVersion")
	version, _ := splice.Text(named)
	return named != nil && version != r.Header.Get("Mcp-Protocol-Version")
}

func refuseVersion(w http.ResponseWriter, r *http.Request) {
	var q struct {
		ID json.RawMessage `json:"id"`
	}
	if json.NewDecoder(r.Body).Decode(&q) != nil || q.ID == nil {
		q.ID = json.RawMessage("null")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"missing MCP-Protocol-Version header, or one that is not what _meta says"}}`, q.ID, headerMismatch)
}
