package postgres

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// link is a connection to the server on which an answer can be waited for in the kernel. Elsewhere a goroutine that
// waits is parked, and woken by the runtime's poller: when nothing else is going on, that takes a third of the time
// of a short statement, and a second thread looks for work meanwhile, on a processor that the server may need. A
// thread that waits is woken as soon as there is something to read. Deadlines and Close take effect after at most
// eagerness.
type link struct {
	net.Conn
	raw   syscall.RawConn
	await func(fd uintptr) bool
	eager atomic.Bool
}

// eagerness is how long an answer is waited for in the kernel.
const eagerness = 20 * time.Millisecond

// linked has connections made as before, and be links where they can.
func linked(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newLink(conn), nil
	}
}

func newLink(conn net.Conn) net.Conn {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return conn
	}
	return &link{Conn: conn, raw: raw, await: func(fd uintptr) bool {
		awaitInput(fd, eagerness)
		return true // whatever has come, Read says what it is
	}}
}

func (l *link) Read(p []byte) (int, error) {
	if l.eager.Load() {
		if err := l.raw.Read(l.await); err != nil {
			return 0, err
		}
	}
	return l.Conn.Read(p)
}

// readEagerly says whether the answers to come are waited for in the kernel: for one caller and not for groups, which
// are larger when a thread is free to take in more.
func readEagerly(conn *pgx.Conn, yes bool) {
	if l := linkOf(conn.PgConn().Conn()); l != nil {
		l.eager.Store(yes)
	}
}

// linkOf finds the link below TLS; nil where there is none.
func linkOf(conn net.Conn) *link {
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = c.NetConn()
	}
	l, _ := conn.(*link)
	return l
}
