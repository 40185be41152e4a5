package gateway

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// countingConn counts what has been written to a connection, so that a request which failed on a reused
// one can be proved to have never left.
type countingConn struct {
	net.Conn
	sent atomic.Int64
}

// Write counts before it writes: what may have left counts as sent.
func (c *countingConn) Write(p []byte) (int, error) {
	c.sent.Add(int64(len(p)))
	return c.Conn.Write(p)
}

// countingTransport is a transport whose connections count.
func countingTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &countingConn{Conn: conn}, nil
		},
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     30 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
	}
}

// writeTrace follows one request on its way out.
type writeTrace struct {
	onWritten func() // called when the whole request has been written; nil: nobody asks

	mu    sync.Mutex
	got   bool          // a connection was there, so bytes may have left
	conn  *countingConn // nil: it does not count
	start int64
}

func (t *writeTrace) attach(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: t.gotConn,
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil && t.onWritten != nil {
				t.onWritten()
			}
		},
	})
}

func (t *writeTrace) gotConn(info httptrace.GotConnInfo) {
	conn := info.Conn
	if tls, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = tls.NetConn()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.got = true
	if t.conn, _ = conn.(*countingConn); t.conn != nil {
		t.start = t.conn.sent.Load()
	}
}

// written says of a request that has failed whether any byte of it may have left. cancelled says that
// it failed because its context ended: then net/http may still be at writing it, and a count proves
// nothing.
func (t *writeTrace) written(cancelled bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.got:
		return false
	case t.conn == nil || cancelled:
		return true
	}
	return t.conn.sent.Load() != t.start
}
