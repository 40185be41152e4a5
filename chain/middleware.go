package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
)

// MiddlewareOptions says what a middleware tells interceptors of a request beside its params.
type MiddlewareOptions struct {
	// Principal is on whose behalf a request runs. Defaults to the user of its bearer token, else nobody.
	Principal func(req mcp.Request) *interceptors.Principal
	// Attributes become members of the interceptors' context; keys are reverse-DNS. Defaults to none.
	Attributes func(req mcp.Request) map[string]json.RawMessage
}

// Middleware returns a receiving middleware that takes the governed requests of a go-sdk server through
// the chain. Add it outermost: what other middleware answers, the chain does not see. What no interceptor
// changes keeps its typed values; a changed request is decoded into fresh params, and a changed or
// recorded result goes out as the bytes it is.
//
// Delivery is seen on connections that tell when they break (stdio, in memory). Over HTTP a middleware
// cannot see whether its answer arrived, and reports that it did not.
//
// A go-sdk client has the same middleware: then what a server asks of it is governed (sampling,
// elicitation, roots), as it is received.
func (c *Chain) Middleware(opts *MiddlewareOptions) mcp.Middleware {
	return c.newMiddleware(opts, false).wrap
}

// SendingMiddleware returns a sending middleware that takes the governed requests which a go-sdk peer
// sends through the chain: what a server asks of its client (sampling, elicitation, roots) in sessions up
// to 2025-11-25, or what a client asks of its server. What a server asks inside an answer, from 2026-07-28
// on, is governed by Middleware with that answer. A custom method can be sent as it is or be stopped; its
// params and result cannot be changed.
func (c *Chain) SendingMiddleware(opts *MiddlewareOptions) mcp.Middleware {
	return c.newMiddleware(opts, true).wrap
}

type middleware struct {
	chain   *Chain
	opts    MiddlewareOptions
	sending bool
}

func (c *Chain) newMiddleware(opts *MiddlewareOptions, sending bool) *middleware {
	m := &middleware{chain: c, sending: sending}
	if opts != nil {
		m.opts = *opts
	}
	if m.opts.Principal == nil {
		m.opts.Principal = tokenPrincipal
	}
	return m
}

func (m *middleware) wrap(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if !Governed(method) {
			return next(ctx, method, req)
		}
		return m.handle(ctx, method, req, next)
	}
}

func (m *middleware) handle(ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler) (mcp.Result, error) {
	request, err := m.request(method, req)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "The request cannot be read"}
	}
	t := &target{method: method, req: req, params: request.Params, next: next}
	request.Aside = t.aside
	reply := m.chain.Do(ctx, request, t.call)
	m.delivered(ctx, req, reply)
	if reply.Error != nil {
		return nil, wireError(reply.Error)
	}
	own := t.answered.Load()
	switch {
	case own != nil && bytes.Equal(own.raw, reply.Result):
		return own.typed, nil
	case m.sending: // the SDK takes nothing but its own types here
		return typedResult(method, own, reply.Result)
	}
	return newRawResult(reply.Result, request.Protocol)
}

// delivered reports what can be known at this point: the SDK writes the answer only after we return.
func (m *middleware) delivered(ctx context.Context, req mcp.Request, reply *Reply) {
	overHTTP := req.GetExtra() != nil && req.GetExtra().Header != nil
	reply.Delivered(!overHTTP && ctx.Err() == nil)
}

func (m *middleware) request(method string, req mcp.Request) (*Request, error) {
	_, byServer := req.GetSession().(*mcp.ServerSession)
	r := &Request{Event: method, Principal: m.opts.Principal(req), FromServer: byServer == m.sending}
	if m.opts.Attributes != nil {
		r.Attributes = m.opts.Attributes(req)
	}
	if s := req.GetSession(); s != nil {
		r.SessionID = s.ID()
	}
	if v, ok := req.(interface{ ProtocolVersion() string }); ok {
		r.Protocol = v.ProtocolVersion()
	}
	if extra := req.GetExtra(); extra != nil && extra.TokenInfo != nil {
		r.Caller.Subject = extra.TokenInfo.UserID
	}
	raw, err := encode(req.GetParams())
	if err != nil {
		return nil, fmt.Errorf("encode params of %s: %w", method, err)
	}
	if !bytes.Equal(raw, []byte("null")) {
		r.Params = raw
		if parent, ok := req.GetParams().GetMeta()["traceparent"].(string); ok {
			r.TraceID, r.SpanID = readTraceparent(parent)
		}
	}
	return r, nil
}

func tokenPrincipal(req mcp.Request) *interceptors.Principal {
	extra := req.GetExtra()
	if extra == nil || extra.TokenInfo == nil || extra.TokenInfo.UserID == "" {
		return nil
	}
	return &interceptors.Principal{Type: "user", ID: extra.TokenInfo.UserID}
}

// errOtherMethod says that a request of another method cannot be made of the one that is under way.
var errOtherMethod = errors.New("a middleware can ask beside a request by its own method alone")

// aside asks the server beside the request, whose params and nothing else it changes.
func (t *target) aside(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if method != t.method {
		return nil, errOtherMethod
	}
	beside := &target{method: t.method, req: t.req, params: t.params, next: t.next}
	a := contain(ctx, beside.call, params)
	switch {
	case a.Cause != nil:
		return nil, fmt.Errorf("ask %s: %w", method, a.Cause)
	case a.Error != nil:
		return nil, fmt.Errorf("ask %s: answered with error %s", method, interceptors.Brief(string(a.Error)))
	}
	return a.Result, nil
}

// target is the server behind the middleware, as an Upstream.
type target struct {
	method   string
	req      mcp.Request
	params   json.RawMessage // of req, as the chain got them
	next     mcp.MethodHandler
	answered atomic.Pointer[typedAnswer] // set by a call that may outlive the middleware's own
}

type typedAnswer struct {
	typed mcp.Result
	raw   json.RawMessage
}

// call hands the operation to the server. The handler runs in this process, so an error it returns is
// its answer; but for its context's end, which says nothing of what it did before.
func (t *target) call(ctx context.Context, params json.RawMessage) Answer {
	req := t.req
	if !bytes.Equal(params, t.params) {
		changed, err := withParams(t.req, params)
		if err != nil {
			return Answer{Kind: Unsent, Cause: fmt.Errorf("change params of %s: %w", t.method, err)}
		}
		req = changed
	}
	res, err := t.next(ctx, t.method, req)
	if err != nil {
		return errorAnswer(ctx, err)
	}
	raw, err := encode(res)
	if err != nil {
		return Answer{Kind: Lost, Cause: fmt.Errorf("encode result of %s: %w", t.method, err)}
	}
	t.answered.Store(&typedAnswer{res, raw})
	return Answer{Kind: Answered, Result: raw}
}

func errorAnswer(ctx context.Context, err error) Answer {
	var wire *jsonrpc.Error
	isWire := errors.As(err, &wire)
	if !isWire && (ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return Answer{Kind: Lost, Cause: err}
	}
	m := errorMember{Code: codeInternal, Message: err.Error()}
	if isWire {
		m.Code, m.Data = wire.Code, wire.Data
	}
	raw, encodeErr := json.Marshal(m)
	if encodeErr != nil {
		return Answer{Kind: Lost, Cause: errors.Join(err, encodeErr)}
	}
	return Answer{Kind: Answered, Error: raw}
}

func wireError(raw json.RawMessage) error {
	var m errorMember
	if err := json.Unmarshal(raw, &m); err != nil {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "Internal error"}
	}
	return &jsonrpc.Error{Code: m.Code, Message: m.Message, Data: m.Data}
}
