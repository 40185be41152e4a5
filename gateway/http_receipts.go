package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
)

// receiptListener hands out connections that notice when an agent breaks one with an answer unread: the
// kernel of such an agent answers with a reset, and not with the end of the stream.
type receiptListener struct{ net.Listener }

func (l receiptListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &receiptConn{Conn: conn}, nil
}

type receiptConn struct {
	net.Conn
	receipts receipts
}

// Read implements net.Conn. net/http always reads: for the next request, or to notice a hang-up.
func (c *receiptConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	switch {
	case n > 0:
		c.receipts.confirm()
	case errors.Is(err, syscall.ECONNRESET):
		c.receipts.lose(0)
	}
	return n, err
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
