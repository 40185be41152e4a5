package interceptors

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Announcing returns a transport, for mcp.Server.Connect or Run, on which peers before 2026-07-28 are told
// when interceptors were added or removed, by NotificationListChanged. Later peers get no notification that
// they did not ask for: they have ListTTL. Handler does the same where it serves a peer's GET stream.
//
// It stands around the transport since the SDK's server sends no notifications of methods that it does not
// know. The SDK then takes JSON-RPC batches from peers of every revision before 2026-07-28.
func (s *Server) Announcing(t mcp.Transport) mcp.Transport { return &announcing{t, s} }

type announcing struct {
	mcp.Transport
	server *Server
}

// SupportsProtocolVersion says what the transport itself says: all, unless it says otherwise.
func (t *announcing) SupportsProtocolVersion(version string) bool {
	s, ok := t.Transport.(mcp.ProtocolVersionSupporter)
	return !ok || s.SupportsProtocolVersion(version)
}

// Connect has the server's changes announced until the connection is closed.
func (t *announcing) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	a := &announcedConn{Connection: c}
	a.news.server, a.news.send = t.server, a.send
	a.stop = t.server.changes.add(a.changed)
	return a, nil
}

// announcedConn is a connection whose peer is told of changes once it has shown that it is of a revision that
// has sessions.
type announcedConn struct {
	mcp.Connection
	stop   func()
	legacy atomic.Bool // it has said that it is initialized, which later revisions do not know
	news   news
}

func (c *announcedConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); err == nil && ok && r.Method == "notifications/initialized" {
		c.legacy.Store(true)
	}
	return m, err
}

func (c *announcedConn) Close() error {
	c.stop()
	return c.Connection.Close()
}

func (c *announcedConn) changed() {
	if c.legacy.Load() {
		c.news.tell()
	}
}

func (c *announcedConn) send() error {
	return c.Write(context.Background(), &jsonrpc.Request{Method: NotificationListChanged})
}

// news tells one peer of changes, once for those that come while it is being told.
type news struct {
	server *Server
	send   func() error
	due    atomic.Bool
	turn   sync.Mutex
}

// tell does not wait for the peer, which may be slow to read.
func (n *news) tell() {
	if n.due.Swap(true) {
		return
	}
	n.server.late.Go(func() {
		n.turn.Lock()
		defer n.turn.Unlock()
		n.due.Store(false) // before it is sent: what changes from here on is told again
		if err := n.send(); err != nil {
			n.server.log.Debug("peer not told that interceptors have changed", slog.Any("error", err))
		}
	})
}
