package gateway

import "context"

// Conn is one end of the relay: the agent's or the upstream's. Read is called by one goroutine; Write
// by any number. Neither Read nor Write may keep or change a message after it has returned it, or after
// it was given it.
type Conn interface {
	// Read returns the next message. io.EOF when the peer has gone in good order. A *RefusedError is one
	// message that cannot be relayed: the connection stands and Read may be called again. Every other error
	// ends the connection. It returns when ctx ends.
	Read(ctx context.Context) (*Message, error)
	// Write sends m. When it fails, written says whether any byte may have left: false is proof that
	// nothing was sent. ctx bounds the sending alone, never the wait for an answer.
	Write(ctx context.Context, m *Message) (written bool, err error)
	// Close ends the connection and whatever stands behind it (a process and its children), and makes a
	// blocked Read and Write return. It may be called more than once.
	Close() error
}
