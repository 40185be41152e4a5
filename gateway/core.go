package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// ExtensionID names the extension that the gateway adds to what an upstream declares.
const ExtensionID = "dev.undolog/gateway"

// Methods that the relay knows beside those of http_headers.go.
const (
	methodListChanged = "notifications/tools/list_changed"
	methodSetLevel    = "logging/setLevel"
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
	methodListen      = "subscriptions/listen"

	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaServerInfo   = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// core is what a session of one agent and an upstream shared by many have in common: the way of a
// governed request, and what is known of the peers.
type core struct {
	opts   *Options
	logger *slog.Logger
	info   AgentInfo
	link   *link
	primer primer
	listed toolHeaders // as the agent sees the tools
	open   tracker     // dispatches that have not ended

	deliveries deliveries
	tasks      *tasks        // the gateway's
	held       *atomic.Int64 // calls, the gateway's
	tookUp     atomic.Bool

	lastID atomic.Uint64
	newID  func(n uint64) json.RawMessage // of requests that we send ourselves

	mu        sync.Mutex
	protocol  string
	server    string
	abilities abilities // of the session's client
}

func (c *core) init(g *Gateway, info AgentInfo) {
	c.opts, c.logger, c.info, c.protocol, c.tasks, c.held = &g.opts, g.logger, info, info.Protocol, &g.tasks, &g.held
	ctx, cancel := context.WithCancel(context.Background())
	c.link = &link{
		target: g.opts.Label, logger: g.logger, now: g.opts.Now,
		dial:   func(ctx context.Context) (Conn, error) { return g.opts.Dial(ctx, &c.info) },
		revive: func(context.Context, Conn) error { return nil },
		down:   func(error) {},
		ctx:    ctx, cancel: cancel,
		pending: make(map[string]*pending),
		stale:   make(map[string]bool),
	}
}

// peer returns what is known of the two ends.
func (c *core) peer() *Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &Peer{Agent: c.info, Protocol: c.protocol, Server: c.opts.Name}
	if p.Server == "" {
		p.Server = nameOf(c.server, c.opts.Target)
	}
	return p
}

// nameOf makes an upstream's name of what it calls itself and of how it is reached: two configurations
// of one program are two servers.
func nameOf(server, target string) string {
	if server == "" {
		server = "server"
	}
	sum := sha256.Sum256([]byte(target))
	return server + "-" + hex.EncodeToString(sum[:4])
}

// learn notes what the answer to initialize or server/discover says of the upstream.
func (c *core) learn(method string, result json.RawMessage) {
	name := splice.Get(result, "serverInfo", "name")
	if name == nil {
		name = splice.Get(result, "_meta", metaServerInfo, "name")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := unquote(name); n != "" {
		c.server = n
	}
	if method == methodInitialize {
		if v := unquote(splice.Get(result, "protocolVersion")); v != "" {
			c.protocol = v
		}
	}
}

func (c *core) knowsServer() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server != "" || c.opts.Name != ""
}

// canElicit is how the client of a request can ask its user: as the request says, else its session.
func (c *core) canElicit(m *Message) abilities {
	if capabilities := splice.Get(m.Params, "_meta", metaCapabilities); capabilities != nil {
		return abilitiesOf(capabilities)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.abilities
}

// declare adds our extension to the capabilities that an upstream answers with. An answer that has none
// passes as it is.
func declare(result json.RawMessage) json.RawMessage {
	capabilities := splice.Get(result, "capabilities")
	if len(capabilities) == 0 || capabilities[0] != '{' || splice.Get(capabilities, "extensions", ExtensionID) != nil {
		return result
	}
	changed, err := splice.Set(result, []byte("{}"), "capabilities", "extensions", ExtensionID)
	if err != nil { // extensions is no object
		return result
	}
	return changed
}

// request describes a governed request to the chain.
func (c *core) request(m *Message) *chain.Request {
	p := c.peer()
	meta := splice.Get(m.Params, "_meta")
	r := &chain.Request{
		Event: m.Method, Params: m.Params, Protocol: p.Protocol,
		Caller:    interceptors.Caller{Tenant: c.info.Tenant, Subject: c.info.Principal, Local: true},
		SessionID: c.info.Session,
	}
	if v := unquote(splice.Get(meta, metaProtocol)); v != "" {
		r.Protocol, p.Protocol = v, v
	}
	if c.info.Principal != "" {
		r.Principal = &interceptors.Principal{Type: "service", ID: c.info.Principal}
	}
	r.TraceID, r.SpanID = traceOf(unquote(splice.Get(meta, "traceparent")))
	if c.opts.Attributes != nil {
		r.Attributes = c.opts.Attributes(m, p)
	}
	r.Aside = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
		return c.ask(ctx, method, withMeta(params, requestMeta(m.Params)))
	}
	return r
}

// withMeta puts the _meta that a stateless upstream requires, nil for none, into params of our own.
func withMeta(params, required json.RawMessage) json.RawMessage {
	if required == nil {
		return params
	}
	return replaced(params, required, "_meta")
}

// traceOf returns the trace and span id of a W3C traceparent; empty when it is none.
func traceOf(parent string) (trace, span string) {
	parts := strings.Split(parent, "-")
	if len(parts) < 4 || len(parts[1]) != 32 || len(parts[2]) != 16 {
		return "", ""
	}
	return parts[1], parts[2]
}

// governed is one governed request on its way through the chain.
type governed struct {
	m       *Message // as the agent sent it
	arrival arrival
	// outgoing makes the message for the upstream of the params that the chain left.
	outgoing func(params json.RawMessage) *Message
	// cancelled makes the params of notifications/cancelled for it.
	cancelled func(ctx context.Context) json.RawMessage
	turn      *turn // nil: at once
	agent     waiter
	wait      waitState
	answer    atomic.Pointer[Message]         // the upstream's
	refusal   atomic.Pointer[json.RawMessage] // the upstream's, a JSON-RPC error
	failed    atomic.Pointer[error]           // why there is none
}

// govern runs a request through the chain.
func (c *core) govern(ctx context.Context, g *governed) *chain.Reply {
	if g.m.Method == methodToolsCall {
		c.prime(ctx, g.m)
		c.takeUp(g.m)
		if err := c.checkParamHeaders(g.m); err != nil {
			return &chain.Reply{Error: NewError(nil, codeHeaderMismatch, err.Error(), nil).Error}
		}
		if g.takeReply(); g.agent.reply != nil && g.agent.reply.declines() {
			return &chain.Reply{Error: declinedError}
		}
	}
	g.arrival.settled()
	request := c.request(g.m)
	request.ReceivedAt = g.arrival.at
	g.agent.modern = request.Protocol >= statelessProtocol
	g.resuming(request)
	request.Pause = func(ctx context.Context, x *chain.Exchange, p *chain.Pause) bool { return c.pause(ctx, g, x, p) }
	reply := c.opts.Chain.Do(ctx, request, func(ctx context.Context, params json.RawMessage) chain.Answer {
		return c.dispatch(ctx, g, params)
	})
	c.tellPaused(g, reply)
	if g.m.Method == methodToolsList {
		c.listed.learn(reply.Result)
	}
	return reply
}

// dispatch sends a governed request and awaits its answer: the Upstream of a chain.
func (c *core) dispatch(ctx context.Context, g *governed, params json.RawMessage) chain.Answer {
	c.open.add()
	defer c.open.done()
	out := g.outgoing(params)
	if added := chain.Headers(ctx); added != nil {
		with := *out
		with.Added, out = added, &with
	}
	g.turn.wait(ctx)
	ends, written, err := c.send(ctx, out)
	g.turn.leave()
	if err != nil && !written {
		g.failed.Store(&err)
		return chain.Answer{Kind: chain.Unsent, Cause: err}
	}
	var answer *Message
	if err == nil {
		answer, err = answerOf(ctx, ends)
	}
	switch {
	case err != nil:
		if ctx.Err() != nil {
			c.link.abandon(out.ID, g.cancelled(ctx))
		}
		g.failed.Store(&err)
		return chain.Answer{Kind: chain.Lost, Cause: err}
	case answer.Truncated:
		return chain.Answer{Kind: chain.Answered, Error: c.tooLarge(answer.Size)}
	case answer.Error != nil:
		g.refusal.Store(&answer.Error)
		return chain.Answer{Kind: chain.Answered, Error: answer.Error}
	}
	c.noteTask(chain.ExchangeOf(ctx), g.m, answer.Result)
	g.answer.Store(answer)
	return chain.Answer{Kind: chain.Answered, Result: answer.Result}
}

// send writes a governed request once there is a connection, if it still may be sent then.
func (c *core) send(ctx context.Context, out *Message) (ends <-chan ending, written bool, err error) {
	conn, err := c.link.open(ctx)
	if err != nil {
		return nil, false, err
	}
	if err := c.opts.Chain.MaySend(ctx, chain.ExchangeOf(ctx)); err != nil {
		return nil, false, err
	}
	return c.link.startOn(ctx, conn, out)
}

func (c *core) tooLarge(size int64) json.RawMessage {
	return errorObject(codeInternal,
		fmt.Sprintf("the upstream answered with %d bytes, above --max-result %d: it ran, and its answer was discarded", size, c.opts.MaxResult),
		fmt.Appendf(nil, `{"reason":"result_too_large","size":%d,"limit":%d}`, size, c.opts.MaxResult))
}

// response makes the message that carries a reply to the agent. An answer that the chain left as it was
// keeps every byte of its envelope.
func (c *core) response(g *governed, reply *chain.Reply) *Message {
	if reply.Error != nil {
		if err := g.failed.Load(); err != nil && unexplained(reply.Error) {
			return c.failure(g.m.ID, *err)
		}
		return NewErrorObject(g.m.ID, c.scrubbedReply(g, reply))
	}
	answer := g.answer.Load()
	if answer == nil {
		return NewResult(g.m.ID, reply.Result)
	}
	if !bytes.Equal(answer.Result, reply.Result) {
		answer = answer.WithResult(reply.Result)
	}
	if !bytes.Equal(answer.ID, g.m.ID) {
		answer = answer.WithID(g.m.ID)
	}
	return answer
}

// unexplained reports whether a chain's error says no more than that there is no answer: the relay
// knows more.
func unexplained(object json.RawMessage) bool {
	switch string(splice.Get(object, "data")) {
	case `{"reason":"unsent"}`, `{"reason":"lost"}`:
		return true
	}
	return false
}

// ask sends a request of our own and returns its result.
func (c *core) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	conn, err := c.link.open(ctx)
	if err != nil {
		return nil, err
	}
	return c.askOn(ctx, conn, method, params)
}

func (c *core) askOn(ctx context.Context, conn Conn, method string, params json.RawMessage) (json.RawMessage, error) {
	answer, err := c.answerOn(ctx, conn, method, params)
	switch {
	case err != nil:
		return nil, err
	case answer.Truncated:
		return nil, fmt.Errorf("ask %s: answer of %d bytes is above the limit", method, answer.Size)
	case answer.Error != nil:
		return nil, fmt.Errorf("ask %s: answered with error %s", method, shorten(string(answer.Error)))
	}
	return answer.Result, nil
}

// answerOn sends a request of our own and returns its answer, whatever that is.
func (c *core) answerOn(ctx context.Context, conn Conn, method string, params json.RawMessage) (*Message, error) {
	m := NewRequest(c.newID(c.lastID.Add(1)), method, params)
	ends, _, err := c.link.startOn(ctx, conn, m)
	var answer *Message
	if err == nil {
		answer, err = answerOf(ctx, ends)
	}
	if err != nil {
		if ctx.Err() != nil && method != methodInitialize {
			c.link.abandon(m.ID, cancelParams(m.ID, "no longer wanted"))
		}
		return nil, fmt.Errorf("ask %s: %w", method, err)
	}
	return answer, nil
}

func cancelParams(id json.RawMessage, reason string) json.RawMessage {
	b := append([]byte(`{"requestId":`), id...)
	b = append(b, `,"reason":`...)
	b = appendString(b, reason)
	return append(b, '}')
}

// failure makes the error for an ungoverned request that got no answer.
func (c *core) failure(id json.RawMessage, cause error) *Message {
	var down *DownError
	switch {
	case errors.As(cause, &down):
		data := fmt.Appendf(nil, `{"reason":"upstream_down","retryAfterMs":%d}`, down.After.Milliseconds())
		return NewError(id, codeInternal, down.Error(), data)
	case errors.Is(cause, errLinkClosed), errors.Is(cause, context.Canceled):
		return NewError(id, codeInternal, "the session has ended", json.RawMessage(`{"reason":"session_ended"}`))
	default:
		text := fmt.Sprintf("no answer from upstream: %v; it is started again on the next call", cause)
		return NewError(id, codeInternal, text, json.RawMessage(`{"reason":"upstream_lost"}`))
	}
}

// tracker counts what is under way. The zero tracker is ready.
type tracker struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed at zero; nil while nobody waits
}

func (t *tracker) add() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
}

func (t *tracker) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait returns how many are left when all have ended, d is over, or stop is closed.
func (t *tracker) wait(d time.Duration, stop <-chan struct{}) int {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return 0
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	if d > 0 {
		await(d, idle, stop)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}
