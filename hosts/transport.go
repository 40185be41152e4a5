package hosts

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
)

// httpClient adds the headers to what the caller's client does.
func httpClient(o *Options) *http.Client {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if o.HTTPClient != nil {
		own := *o.HTTPClient
		client = &own
	}
	if client.Transport == nil {
		client.Transport = http.DefaultTransport
	}
	if len(o.Header) > 0 {
		client.Transport = &headers{o.Header, client.Transport}
	}
	client.Transport = &bounded{client.Transport}
	return client
}

// maxAnswer is the size above which an answer is not read, be it a line, a body or an event of a stream: as
// much as a gateway takes from a server.
const maxAnswer = 64 << 20

// bounded keeps a host from filling our memory by an answer that does not end.
type bounded struct{ next http.RoundTripper }

func (t *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(media), "text/event-stream") { // its events are bounded, one by one
		res.Body = &boundedBody{res.Body, maxAnswer}
	}
	return res, nil
}

type boundedBody struct {
	io.ReadCloser
	left int
}

var errAnswerTooLarge = fmt.Errorf("the answer is above %d bytes", maxAnswer)

func (b *boundedBody) Read(p []byte) (int, error) {
	if len(p) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errAnswerTooLarge
	}
	return n, err
}

// headers sets headers on every request.
type headers struct {
	set  http.Header
	next http.RoundTripper
}

func (t *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range t.set {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	return t.next.RoundTrip(r)
}

// watched hears the host's word that its interceptors have changed. The SDK passes on no notifications that it
// does not know, so it is heard below it. Over HTTP a listener hears it.
func (h *Host) watched(t mcp.Transport) mcp.Transport {
	if _, http := t.(*mcp.StreamableClientTransport); http {
		return t
	}
	return &watchTransport{t, h.tellChanged}
}

type watchTransport struct {
	mcp.Transport
	changed func()
}

func (t *watchTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &watchConn{c, t.changed}, nil
}

type watchConn struct {
	mcp.Connection
	changed func()
}

func (c *watchConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := c.Connection.Read(ctx)
		if r, ok := m.(*jsonrpc.Request); err == nil && ok && r.Method == interceptors.NotificationListChanged && !r.IsCall() {
			c.changed()
			continue
		}
		return m, err
	}
}
