package interceptors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/internal/splice"
)

// stateless is the first protocol revision without sessions; its results carry resultType.
const stateless = "2026-07-28"

// methodPlural is a name that drafts have used for MethodInvoke. It is registered only to be refused
// properly: some transports end the whole session on a method that nobody registered.
const methodPlural = "interceptors/invoke"

// Capabilities returns capabilities that declare the extension and nothing else.
func (s *Server) Capabilities() *mcp.ServerCapabilities {
	caps := new(mcp.ServerCapabilities)
	s.AddCapability(caps)
	return caps
}

// AddCapability declares the extension, with the events of the interceptors registered by then, under
// extensions and again under experimental, where older clients look. It replaces no other entry.
func (s *Server) AddCapability(caps *mcp.ServerCapabilities) {
	settings := map[string]any{} // never nil: declareAnew looks for it
	if events := s.events(); len(events) > 0 {
		settings["supportedEvents"] = events
	}
	caps.AddExtension(ExtensionID, settings)
	if caps.Experimental == nil {
		caps.Experimental = map[string]any{}
	}
	caps.Experimental[ExtensionID] = settings
}

// Install serves the extension's methods on an MCP server. It MUST be called before the server is
// connected. The server's capabilities are given to mcp.NewServer: see Capabilities; each peer is told the
// events of the interceptors that there are when it asks. Peers are told of later changes where the server is
// connected by a transport that is Announcing.
func (s *Server) Install(server *mcp.Server) error {
	err := errors.Join(
		mcp.AddReceivingCustomMethod(server, MethodList, s.serveList),
		mcp.AddReceivingCustomMethod(server, MethodInvoke, s.serveInvoke),
		mcp.AddReceivingCustomMethod(server, methodPlural, refusePlural),
	)
	if err != nil {
		return fmt.Errorf("install interceptors: %w", err)
	}
	server.AddReceivingMiddleware(s.contain, s.declareAnew)
	return nil
}

// declareAnew declares the events of the interceptors that there are by now, where the extension was declared
// when the server was made.
func (s *Server) declareAnew(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		var caps *mcp.ServerCapabilities // the request's own
		switch r := res.(type) {
		case *mcp.InitializeResult:
			caps = r.Capabilities
		case *mcp.DiscoverResult:
			caps = r.Capabilities
		}
		if err != nil || caps == nil || caps.Extensions[ExtensionID] == nil {
			return res, err
		}
		s.AddCapability(caps)
		return res, nil
	}
}

// contain is the middleware around the extension's methods: it stops panics, maps every error to its
// wire form and tells the handler what the SDK tells middleware only.
func (s *Server) contain(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		r, ours := req.(*mcp.ServerRequest[*rawParams])
		if !ours || method != MethodList && method != MethodInvoke && method != methodPlural {
			return next(ctx, method, req)
		}
		defer func() {
			if v := recover(); v != nil {
				s.log.ErrorContext(ctx, "interceptor method panicked", slog.String("method", method),
					slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
				res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "Internal error"}
			}
		}()
		if r.Params != nil {
			r.Params.peer = r.ProtocolVersion()
			r.Params.caller = callerOf(r.Extra)
		}
		if res, err = next(ctx, method, req); err != nil {
			return nil, s.wireError(err)
		}
		return res, nil
	}
}

// callerOf reads the request's own token: the one in a session's context is of its first request for ever.
func callerOf(extra *mcp.RequestExtra) Caller {
	if extra == nil || extra.TokenInfo == nil {
		return Caller{}
	}
	tenant, _ := extra.TokenInfo.Extra["tenant"].(string)
	return Caller{Tenant: tenant, Subject: extra.TokenInfo.UserID}
}

func (s *Server) wireError(err error) *jsonrpc.Error {
	w := WireError(err)
	var timeout *TimeoutError
	if s.opts.LegacyTimeoutCode && errors.As(err, &timeout) {
		w.Code = legacyTimeoutCode
	}
	return w
}

// legacyTimeoutCode is what drafts used for time-outs; revision 2026-07-28 reserves it without meaning.
const legacyTimeoutCode = -32000

func (s *Server) serveList(_ context.Context, _ *mcp.ServerSession, p *rawParams) (*wireResult, error) {
	event, err := p.event()
	if err != nil {
		return nil, err
	}
	listed, err := s.List(event)
	if err != nil {
		return nil, err
	}
	answer := wireList{Interceptors: listed}
	if p.isStateless() {
		answer.caching = s.caching(p.caller)
	}
	body, err := splice.Encode(answer)
	if err != nil {
		return nil, fmt.Errorf("encode list: %w", err)
	}
	return p.result(body), nil
}

// wireList is the answer to interceptors/list.
type wireList struct {
	Interceptors []Descriptor `json:"interceptors"`
	*caching
}

// caching is what revision 2026-07-28 says of lists.
type caching struct {
	TTLMs int64  `json:"ttlMs"`
	Scope string `json:"cacheScope"`
}

// caching lets nobody else have a list that was given for a token, though all get the same.
func (s *Server) caching(c Caller) *caching {
	scope := "public"
	if c != (Caller{}) {
		scope = "private"
	}
	return &caching{max(0, s.opts.ListTTL.Milliseconds()), scope}
}

func (s *Server) serveInvoke(ctx context.Context, _ *mcp.ServerSession, p *rawParams) (*wireResult, error) {
	if p == nil {
		return nil, &ParamsError{Problems: []Problem{{"", errNotObject.Error()}}}
	}
	ip, err := DecodeInvoke(p.raw)
	if err != nil {
		return nil, err
	}
	ip.Caller = p.caller
	s.trustTraceparent(ctx, ip)
	release, err := s.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	r, err := s.Invoke(ctx, ip)
	if err != nil {
		return nil, err
	}
	body, err := s.encodeResult(r)
	if err != nil {
		return nil, err
	}
	return p.result(body), nil
}

// slot waits for a place among MaxConcurrent.
func (s *Server) slot(ctx context.Context) (release func(), err error) {
	if s.slots == nil {
		return func() {}, nil
	}
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a slot: %w", ctx.Err())
	}
}

func (s *Server) encodeResult(r *Result) ([]byte, error) {
	body, err := splice.Encode(r)
	if err != nil {
		return nil, err
	}
	if !s.opts.LegacyEnvelope {
		return body, nil
	}
	mirror, err := r.legacyMirror()
	if err != nil {
		return nil, err
	}
	return append(appendMembers(body[:len(body)-1], mirror), '}'), nil
}

func refusePlural(context.Context, *mcp.ServerSession, *rawParams) (*wireResult, error) {
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found"}
}

// trustTraceparent takes trace and span from _meta.traceparent, which is nearer the transport than what
// the invoker wrote into context (SEP-414), and logs when the two differ.
func (s *Server) trustTraceparent(ctx context.Context, p *InvokeParams) {
	trace, span, ok := traceparent(p.Meta)
	if !ok {
		return
	}
	if p.Context == nil {
		p.Context = new(Context)
	}
	if claimed := p.Context.TraceID; claimed != "" && claimed != trace {
		s.log.WarnContext(ctx, "trace of context and traceparent differ",
			slog.String("interceptor", p.Name), slog.String("trace", trace), slog.String("claimed", claimed))
	}
	p.Context.TraceID, p.Context.SpanID = trace, span
}

func traceparent(meta json.RawMessage) (trace, span string, ok bool) {
	var m struct {
		Traceparent string `json:"traceparent"`
	}
	if meta == nil || json.Unmarshal(meta, &m) != nil {
		return "", "", false
	}
	parts := strings.Split(m.Traceparent, "-")
	if len(parts) < 4 || !isHex(parts[1], 32) || !isHex(parts[2], 16) {
		return "", "", false
	}
	return parts[1], parts[2], true
}

func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == "" && strings.Trim(s, "0") != ""
}
