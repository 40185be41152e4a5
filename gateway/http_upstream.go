package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// ErrSessionGone is what Read returns after the upstream has ended our session (HTTP 404 for its id).
// The connection is of no more use; a new one starts over with initialize.
var ErrSessionGone = errors.New("the upstream has ended the session")

const (
	noticeTimeout     = 30 * time.Second // for what has no answer: notifications, responses
	closeTimeout      = 5 * time.Second
	refusalBodyLimit  = 1 << 20
	firstListenDelay  = time.Second
	longestListenWait = 30 * time.Second
)

// UpstreamOptions configures DialHTTP.
type UpstreamOptions struct {
	// Header is sent with every request. The headers of MCP itself cannot be replaced by it.
	Header http.Header
	// Client does the requests. Its redirect policy and time-out are replaced: a redirect would send a
	// call twice, a time-out would make it lost. Defaults to a client with a transport of its own, which
	// alone can prove for a reused connection that not a byte was written.
	Client *http.Client
	// MaxResult is the size above which a message of the upstream is cut off. Defaults to 64 MiB.
	MaxResult int64
	// Logger defaults to silence.
	Logger *slog.Logger
}

// httpUpstream is the client side of Streamable HTTP, for both generations of the protocol: which one a
// message belongs to is read from its _meta.
type httpUpstream struct {
	url       string
	header    http.Header
	client    *http.Client
	transport *http.Transport // ours to close; nil when the caller brought a client
	maxResult int64
	logger    *slog.Logger

	life     context.Context // ends with Close; every request runs under it
	end      context.CancelFunc
	work     sync.WaitGroup
	incoming chan inbound
	broken   chan struct{} // closed when failure is set
	tools    toolHeaders

	mu        sync.Mutex
	failure   error
	session   string
	protocol  string // negotiated by initialize; empty in the stateless generation
	listening bool
	calls     map[string]*upstreamCall
}

var _ Conn = (*httpUpstream)(nil)

// inbound is what Read returns next.
type inbound struct {
	message *Message
	err     error // a *RefusedError
}

// DialHTTP returns a Conn to a Streamable HTTP upstream. Nothing is sent before the first Write.
//
// Every request that Write has accepted gets exactly one end from Read: the response, the response cut
// off (Truncated) or refused (*RefusedError), or Lost when none will come. No request is ever sent a second time, neither here
// nor by net/http. A request that the upstream's HTTP layer refuses without a JSON-RPC answer counts as
// not applied, code −32600, for the statuses in notApplied, and as Lost for every other status.
func DialHTTP(ctx context.Context, rawURL string, o *UpstreamOptions) (Conn, error) {
	if o == nil {
		o = &UpstreamOptions{}
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("parse upstream URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("parse upstream URL %q: want http://HOST/PATH or https://HOST/PATH", rawURL)
	}
	c := &httpUpstream{
		url:       rawURL,
		header:    o.Header.Clone(),
		maxResult: o.MaxResult,
		logger:    o.Logger,
		incoming:  make(chan inbound),
		broken:    make(chan struct{}),
		calls:     make(map[string]*upstreamCall),
	}
	if c.maxResult == 0 {
		c.maxResult = defaultMaxResult
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	c.client, c.transport = oneShotClient(o.Client)
	c.life, c.end = context.WithCancel(context.WithoutCancel(ctx))
	return c, nil
}

// oneShotClient returns a client that does each request once: no redirects, and no time-out of its own.
func oneShotClient(given *http.Client) (*http.Client, *http.Transport) {
	client := &http.Client{}
	var own *http.Transport
	if given != nil {
		*client = *given
	} else {
		own = countingTransport()
		client.Transport = own
	}
	client.Timeout = 0
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, own
}

// Read returns the next message of any of the upstream's streams.
func (c *httpUpstream) Read(ctx context.Context) (*Message, error) {
	select {
	case a := <-c.incoming:
		return a.message, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.life.Done():
		return nil, io.EOF
	case <-c.broken:
		return nil, c.failure
	}
}

// Write sends m. For a request it returns when the request has been written; the answer comes from
// Read, also after ctx has ended. For a notification or a response it returns when the upstream has
// taken it, so that what is written in order arrives in order.
func (c *httpUpstream) Write(ctx context.Context, m *Message) (written bool, err error) {
	switch {
	case m.Method != "" && m.ID != nil:
		return c.call(ctx, m)
	case m.Method == methodCancelled && c.hangUp(m):
		return true, nil
	}
	return c.notify(ctx, m)
}

// Close ends the session at the upstream and every open stream. It waits for all goroutines.
func (c *httpUpstream) Close() error {
	c.mu.Lock()
	c.end() // under the lock, so that nothing is started behind it
	c.mu.Unlock()
	c.work.Wait()
	err := c.endSession()
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
	return err
}

func (c *httpUpstream) endSession() error {
	c.mu.Lock()
	session := c.session
	if errors.Is(c.failure, ErrSessionGone) {
		session = ""
	}
	c.session = ""
	c.mu.Unlock()
	if session == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	req, err := c.request(ctx, http.MethodDelete, nil)
	if err != nil {
		return err
	}
	req.Header.Set(sessionHeader, session)
	resp, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("end upstream session: %w", withoutURL(err))
	}
	return resp.Body.Close()
}

// request builds one HTTP request. A nil message is for GET and DELETE.
func (c *httpUpstream) request(ctx context.Context, method string, m *Message) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url, nil)
	if err != nil {
		return nil, fmt.Errorf("build upstream request: %w", err)
	}
	for k, v := range c.header {
		req.Header[k] = v
	}
	c.mu.Lock()
	protocol, session := c.protocol, c.session
	c.mu.Unlock()
	if m == nil {
		req.Header.Set("Accept", "text/event-stream")
	} else {
		protocol = c.carry(req, m, protocol)
	}
	if protocol != "" {
		req.Header.Set(protocolHeader, protocol)
	}
	begins := m != nil && m.Method == methodInitialize
	if session != "" && protocol < statelessProtocol && !begins {
		req.Header.Set(sessionHeader, session)
	}
	return req, nil
}

// carry makes m the body of req and returns the protocol revision that it belongs to.
func (c *httpUpstream) carry(req *http.Request, m *Message, protocol string) string {
	// The body has no GetBody, else net/http sends the request again by itself when a reused connection
	// drops.
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(m.Raw)), int64(len(m.Raw))
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	if key := http.Header(m.Header).Get(idempotencyHeader); key != "" {
		req.Header.Set(idempotencyHeader, key)
	}
	for name, value := range m.Added {
		if mayAdd(name, value) {
			req.Header.Set(name, value)
		} else {
			c.logger.Warn("header not sent: it is the protocol's, or no header", slog.String("name", name))
		}
	}
	if m.Method == methodInitialize { // it is what settles the revision
		return ""
	}
	if v, ok := stringAt(m.Params, "_meta", metaProtocol); ok {
		protocol = v
	}
	if protocol >= statelessProtocol && m.Method != "" {
		setStandardHeaders(req.Header, m, &c.tools)
	}
	return protocol
}

// notify posts what has no answer: a notification, or our response to a request of the upstream.
func (c *httpUpstream) notify(ctx context.Context, m *Message) (written bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	trace := &writeTrace{}
	req, err := c.request(trace.attach(ctx), http.MethodPost, m)
	if err != nil {
		return false, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return trace.written(ctx.Err() != nil), fmt.Errorf("post to upstream: %w", withoutURL(err))
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, refusalBodyLimit))
	switch {
	case c.sessionGone(resp):
		c.fail(ErrSessionGone)
		return true, ErrSessionGone
	case resp.StatusCode/100 != 2:
		return true, fmt.Errorf("post to upstream: HTTP %s", resp.Status)
	}
	return true, nil
}

// sessionGone reports whether resp says that our session is over.
func (c *httpUpstream) sessionGone(resp *http.Response) bool {
	return resp.StatusCode == http.StatusNotFound && resp.Request.Header.Get(sessionHeader) != ""
}

// deliver hands m to Read.
func (c *httpUpstream) deliver(m *Message) { c.arrive(inbound{message: m}) }

func (c *httpUpstream) arrive(a inbound) {
	select {
	case c.incoming <- a:
	case <-c.life.Done():
	}
}

// fail makes Read return err once what has been delivered is read.
func (c *httpUpstream) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil {
		c.failure = err
		close(c.broken)
	}
}

// noteInitialized keeps what the answer to initialize says of the session, and listens: some servers
// speak as soon as they are told that the client is ready.
func (c *httpUpstream) noteInitialized(session string, result json.RawMessage) {
	version, _ := stringAt(result, "protocolVersion")
	c.mu.Lock()
	c.session, c.protocol = session, version
	c.mu.Unlock()
	c.listen()
}

// withoutURL is a client's error without the URL that it failed for: a key can stand in its query, and
// the error is logged, recorded and told to the agent.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
