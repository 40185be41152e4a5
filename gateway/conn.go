package gateway

import "context"

// Conn is one end of the relay: the agent's or the upstream's. Read is called by one goroutine; Write
// by any number.
type Conn interface {
	// Read returns the next message. io.EOF when the peer has gone in good order.
	Read(ctx context.Context) (*Message, error)
	// Write sends m. When it fails, written says whether any byte may have left: false is proof that
	// nothing was sent.
	Write(ctx context.Context, m *Message) (written bool, err error)
	// Close ends the connection and whatever stands behind it (a process and its children).
	Close() error
}
