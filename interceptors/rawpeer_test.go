package interceptors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// rawPeer says and hears messages as they are on the wire.
type rawPeer struct {
	t    *testing.T
	conn mcp.Connection
}

// newRawPeer connects to a server; decorate, unless nil, wraps the server's transport.
func newRawPeer(t *testing.T, server *mcp.Server, decorate func(mcp.Transport) mcp.Transport) *rawPeer {
	t.Helper()
	near, far := mcp.NewInMemoryTransports()
	var theirs mcp.Transport = far
	if decorate != nil {
		theirs = decorate(far)
	}
	ss, err := server.Connect(t.Context(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := near.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		ss.Wait()
	})
	return &rawPeer{t, conn}
}

func (p *rawPeer) say(message string) {
	p.t.Helper()
	m, err := jsonrpc.DecodeMessage([]byte(message))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.conn.Write(p.t.Context(), m); err != nil {
		p.t.Fatal(err)
	}
}

// hear returns the next message.
func (p *rawPeer) hear() string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	m, err := p.conn.Read(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	raw, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(raw)
}

// greet makes the peer one of the revision. The stateless ones need no greeting.
func (p *rawPeer) greet(revision string) {
	p.t.Helper()
	if revision >= "2026-07-28" {
		return
	}
	p.say(strings.ReplaceAll(initialize, "2025-11-25", revision))
	p.hear()
	p.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// ask sends a request with these members of params, and returns the answer.
func (p *rawPeer) ask(revision, method, params string) string {
	p.t.Helper()
	if revision >= "2026-07-28" {
		params = strings.TrimPrefix(params+","+currentMeta, ",")
	}
	p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s}}`, method, params))
	return p.hear()
}
