package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
)

// HTTPOptions configures an HTTPHandler.
type HTTPOptions struct {
	// Verifier checks bearer tokens; LoadTokens makes one. TokenInfo.UserID is the principal, the string
	// Extra["tenant"] the tenant. Nil: nobody is authenticated, and Listen takes loopback addresses only.
	Verifier auth.TokenVerifier
	// Tenant and Principal stand for callers without a token, and Tenant for tokens without one.
	Tenant    string
	Principal string
	// IdleTimeout ends a session that has neither a request under way nor an open stream. Defaults to 30
	// minutes.
	IdleTimeout time.Duration
	// MaxSessions bounds the open sessions, each of which has an upstream of its own. Defaults to 256.
	MaxSessions int
	// MaxBody bounds one POST body. Defaults to 32 MiB.
	MaxBody int64
	// QueueSize is how many messages that belong to no request are kept for an agent that has no GET
	// stream open; the oldest give way. Defaults to 256.
	QueueSize int
	// StreamWait is how long a request of the upstream waits for a stream to the agent before it is
	// answered with an error. Defaults to 5 s.
	StreamWait time.Duration
	// KeepAlive is the time between comments on an open stream. Defaults to 15 s.
	KeepAlive time.Duration
	// Logger defaults to silence.
	Logger *slog.Logger
}

func (o *HTTPOptions) orDefaults() HTTPOptions {
	d := HTTPOptions{}
	if o != nil {
		d = *o
	}
	if d.IdleTimeout <= 0 {
		d.IdleTimeout = 30 * time.Minute
	}
	if d.MaxSessions <= 0 {
		d.MaxSessions = 256
	}
	if d.MaxBody <= 0 {
		d.MaxBody = defaultMaxBytes
	}
	if d.QueueSize <= 0 {
		d.QueueSize = 256
	}
	if d.StreamWait <= 0 {
		d.StreamWait = 5 * time.Second
	}
	if d.KeepAlive <= 0 {
		d.KeepAlive = 15 * time.Second
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

// HTTPHandler is the agent's end over Streamable HTTP, at / and /mcp, for both generations of the
// protocol: sessions up to 2025-11-25, single requests from 2026-07-28 on. It is our own code on
// net/http because go-sdk's server transport re-types messages, refuses methods that it does not know,
// and cannot relay the stateless generation.
type HTTPHandler struct {
	gw     *Gateway
	opts   HTTPOptions
	logger *slog.Logger
	guard  http.Handler

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup // the sessions' relays, and requests without a session

	conns receiptConns // of Serve

	mu       sync.Mutex
	sessions map[string]*httpAgent
	closed   bool
}

// NewHTTPHandler returns the agent's end of gw. Close it to end its sessions.
func NewHTTPHandler(gw *Gateway, o *HTTPOptions) *HTTPHandler {
	h := &HTTPHandler{gw: gw, opts: o.orDefaults(), sessions: make(map[string]*httpAgent)}
	h.logger = h.opts.Logger
	h.life, h.end = context.WithCancel(context.Background())
	var inner http.Handler = http.HandlerFunc(h.route)
	if h.opts.Verifier != nil {
		inner = auth.RequireBearerToken(h.opts.Verifier, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(inner)
	}
	h.guard = checkHost(http.NewCrossOriginProtection().Handler(inner))
	return h
}

// ServeHTTP serves one HTTP request of an agent.
func (h *HTTPHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.guard.ServeHTTP(w, r) }

// Close ends all sessions as if their agents had gone, refuses requests from then on, and waits until each
// session has drained and each tool call without one is answered, or ctx ends.
func (h *HTTPHandler) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.end()
	h.gw.endHolds()
	h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		h.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close HTTP sessions: %w", ctx.Err())
	}
}

// checkHost refuses requests to a loopback address under a foreign name: a web page that has rebound its
// own name to this machine sends such.
func checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if local != nil && isLoopback(local.String()) && !isLoopback(r.Host) {
			http.Error(w, fmt.Sprintf("host %q is not this server", r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether HOST or HOST:PORT names this machine's loopback.
func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// route tells the two generations apart.
func (h *HTTPHandler) route(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" && r.URL.Path != "/mcp" {
		http.NotFound(w, r)
		return
	}
	stateless := r.Header.Get(protocolHeader) >= statelessProtocol
	switch {
	case r.Method == http.MethodPost:
		h.servePost(w, r, stateless)
	case stateless:
		refuseMethod(w, "POST")
	case r.Method == http.MethodGet:
		h.serveGet(w, r)
	case r.Method == http.MethodDelete:
		h.serveDelete(w, r)
	default:
		refuseMethod(w, "GET, POST, DELETE")
	}
}

func refuseMethod(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
}

func (h *HTTPHandler) servePost(w http.ResponseWriter, r *http.Request, stateless bool) {
	if mediaType(r.Header.Get("Content-Type")) != "application/json" {
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	accepts := acceptsOf(r.Header)
	if !accepts.json && !accepts.events || stateless && !(accepts.json && accepts.events) {
		http.Error(w, "Accept must list application/json and text/event-stream", http.StatusNotAcceptable)
		return
	}
	messages, err := h.readBody(w, r)
	h.conns.probe()
	if err != nil {
		writeRefusal(w, err)
		return
	}
	if stateless {
		h.serveStateless(w, r, messages)
		return
	}
	for _, m := range messages {
		if v, ok := stringAt(m.Params, "_meta", metaProtocol); ok && v >= statelessProtocol {
			writeError(w, http.StatusBadRequest, m.ID, codeHeaderMismatch, "the MCP-Protocol-Version header is missing or differs from _meta")
			return
		}
	}
	h.serveSessionPost(w, r, messages, accepts)
}

// accepts is what a client takes for an answer.
type accepts struct{ json, events bool }

func acceptsOf(header http.Header) accepts {
	values := header.Values("Accept")
	if len(values) == 0 {
		return accepts{json: true, events: true}
	}
	var a accepts
	for _, part := range strings.Split(strings.Join(values, ","), ",") {
		switch mediaType(part) {
		case "application/json", "application/*":
			a.json = true
		case "text/event-stream", "text/*":
			a.events = true
		case "*/*":
			a.json, a.events = true, true
		}
	}
	return a
}

func mediaType(value string) string {
	base, _, _ := strings.Cut(value, ";")
	return strings.ToLower(strings.TrimSpace(base))
}

const (
	bodyTimeout   = 2 * time.Minute
	searchedForID = 8 // times MaxBody: how far a body above the limit is read for its id
)

// readBody reads the messages of a POST. Its error is a *RefusedError or of the transport.
func (h *HTTPHandler) readBody(w http.ResponseWriter, r *http.Request) ([]*Message, error) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer rc.SetReadDeadline(time.Time{})
	raw, err := io.ReadAll(io.LimitReader(r.Body, h.opts.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read request body: %w", err)
	}
	if int64(len(raw)) > h.opts.MaxBody {
		return nil, h.tooLarge(raw, r.Body)
	}
	parts, err := SplitBatch(raw)
	if err != nil {
		return nil, err
	}
	messages := make([]*Message, 0, len(parts))
	header := relayedHeader(r.Header)
	for _, part := range parts {
		m, err := ParseMessage(part, &Limits{MaxBytes: h.opts.MaxBody})
		if err != nil {
			return nil, err
		}
		m.Header = header
		messages = append(messages, m)
	}
	return messages, nil
}

// tooLargeError is a refusal with a status of its own.
type tooLargeError struct{ *RefusedError }

func (e *tooLargeError) Unwrap() error { return e.RefusedError }

// tooLarge looks for the id in a body above the limit, without keeping more of it.
func (h *HTTPHandler) tooLarge(head []byte, rest io.Reader) error {
	var s scanner
	s.scan(head)
	io.Copy(scanWriter{&s}, io.LimitReader(rest, searchedForID*h.opts.MaxBody))
	text := fmt.Sprintf("the request is above the limit of %d bytes", h.opts.MaxBody)
	return &tooLargeError{s.refusal(codeInvalidRequest, text)}
}

type scanWriter struct{ s *scanner }

func (w scanWriter) Write(p []byte) (int, error) {
	w.s.scan(p)
	return len(p), nil
}

// relayedHeader is what of an agent's HTTP headers goes along with its messages. Credentials do not.
func relayedHeader(header http.Header) map[string][]string {
	out := make(map[string][]string)
	for k, v := range header {
		switch k {
		case idempotencyHeader, "X-Undolog-Session-Id", "Traceparent", "Tracestate":
			out[k] = v
		default:
			if strings.HasPrefix(k, paramHeaderPrefix) {
				out[k] = v
			}
		}
	}
	return out
}

// writeRefusal answers a body that cannot be relayed.
func writeRefusal(w http.ResponseWriter, err error) {
	var large *tooLargeError
	var refused *RefusedError
	switch {
	case errors.As(err, &large):
		writeError(w, http.StatusRequestEntityTooLarge, large.ID, large.Code, large.Message)
	case errors.As(err, &refused):
		writeError(w, http.StatusBadRequest, refused.ID, refused.Code, refused.Message)
	default:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// writeError answers with a JSON-RPC error. A nil id is written as null.
func writeError(w http.ResponseWriter, status int, id json.RawMessage, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(NewError(id, code, text, nil).Raw) // the agent that has gone meanwhile needs no answer
}
