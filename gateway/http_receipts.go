package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// receiptListener hands out connections that notice when an agent breaks one with an answer unread: the
// kernel of such an agent answers with a reset, and not with the end of the stream alone.
type receiptListener struct {
	net.Listener
	conns *receiptConns
}

func (l receiptListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &receiptConn{Conn: conn, conns: l.conns}
	l.conns.add(c)
	return c, nil
}

type receiptConn struct {
	net.Conn
	conns    *receiptConns
	receipts receipts
}

// Read implements net.Conn. net/http always reads: for the next request, or to notice a hang-up.
func (c *receiptConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	switch {
	case n > 0:
		c.receipts.confirm()
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF) && c.resetFollows():
		c.receipts.lose(0)
	}
	return n, err
}

// Close implements net.Conn.
func (c *receiptConn) Close() error {
	c.conns.remove(c)
	return c.Conn.Close()
}

// resetFollows reports whether the end of the stream is the first half of a reset: an agent that shuts a
// connection down before it closes it sends both, on a busy machine not at once.
func (c *receiptConn) resetFollows() bool {
	for pause := 100 * time.Microsecond; c.receipts.isOpen() && pause < 200*time.Millisecond; pause *= 2 {
		if wasReset(c.Conn) {
			return true
		}
		time.Sleep(pause)
	}
	return false
}

// receiptConns are the connections of one server. The zero value is ready.
type receiptConns struct {
	mu    sync.Mutex
	conns map[*receiptConn]bool
}

func (s *receiptConns) add(c *receiptConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.conns = map[*receiptConn]bool{}
	}
	s.conns[c] = true
}

func (s *receiptConns) remove(c *receiptConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// probeMost bounds how many connections are looked at for one request.
const probeMost = 512

// probe looks for connections that have been reset and whose reader has not noticed yet. It is called when
// a request comes: that may be the retry of what one of them was answered.
func (s *receiptConns) probe() {
	s.mu.Lock()
	waiting := make([]*receiptConn, 0, 8)
	for c := range s.conns {
		if len(waiting) < probeMost && c.receipts.isOpen() {
			waiting = append(waiting, c)
		}
	}
	s.mu.Unlock()
	for _, c := range waiting {
		if wasReset(c.Conn) {
			c.receipts.lose(0)
		}
	}
}

type receiptsKey struct{}

// withReceipts is an http.Server's ConnContext.
func withReceipts(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*receiptConn); ok {
		return context.WithValue(ctx, receiptsKey{}, &c.receipts)
	}
	return ctx
}

// receiptsOf are those of the connection of r; nil when it is not one of ours.
func receiptsOf(r *http.Request) *receipts {
	rs, _ := r.Context().Value(receiptsKey{}).(*receipts)
	return rs
}
