package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// LineOptions configures a line connection.
type LineOptions struct {
	// Limits of what is read. A line above MaxBytes comes as a Message that is Truncated.
	Limits *Limits
}

// NewLineConn returns a Conn that speaks JSON-RPC as one line a message, as MCP's stdio transport does.
// Close closes both r and w. It is our own code where go-sdk has mcp.IOTransport, because that one reads
// ids as float64 and drops members it does not know, and a relay must do neither.
func NewLineConn(r io.ReadCloser, w io.WriteCloser, opts *LineOptions) Conn {
	return newLineConn(r, w, opts)
}

type lineConn struct {
	r      io.ReadCloser
	w      io.WriteCloser
	limits Limits

	start sync.Once
	lines chan line     // filled by pump
	done  chan struct{} // closed by Close

	broken    chan struct{} // closed when a write has failed: what follows it could not be told apart
	breakOnce sync.Once

	written  atomic.Int64
	receipts receipts

	queue []line        // the rest of a batch; owned by Read
	write chan struct{} // holds one token: the right to write

	closeOnce sync.Once
	closeErr  error
}

// line is one message read, or why there is none.
type line struct {
	m   *Message
	err error
}

func newLineConn(r io.ReadCloser, w io.WriteCloser, opts *LineOptions) *lineConn {
	if opts == nil {
		opts = &LineOptions{}
	}
	c := &lineConn{
		r: r, w: w, limits: opts.Limits.orDefaults(),
		lines: make(chan line), done: make(chan struct{}),
		broken: make(chan struct{}), write: make(chan struct{}, 1),
	}
	c.write <- struct{}{}
	return c
}

// Read implements Conn. The bytes are read by a goroutine of the connection, because a read from a
// terminal or an inherited pipe cannot be interrupted.
func (c *lineConn) Read(ctx context.Context) (*Message, error) {
	c.start.Do(func() { go c.pump() })
	broken, late := c.broken, (<-chan time.Time)(nil)
	for len(c.queue) == 0 {
		select {
		case l := <-c.lines:
			if l.m == nil {
				return nil, l.err
			}
			c.queue = c.parse(l.m)
		case <-c.done:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-broken: // the peer takes nothing more; it may have said its last words
			broken, late = nil, time.After(lastWords)
		case <-late:
			return nil, errWriteFailed
		}
	}
	next := c.queue[0]
	c.queue = c.queue[1:]
	return next.m, next.err
}

// parse turns one line into its messages: several when it is a batch.
func (c *lineConn) parse(m *Message) []line {
	if m.Truncated {
		return []line{{m: m}}
	}
	batch, err := SplitBatch(m.Raw)
	if err != nil {
		return []line{{err: err}}
	}
	lines := make([]line, len(batch))
	for i, raw := range batch {
		lines[i].m, lines[i].err = ParseMessage(raw, &c.limits)
	}
	return lines
}

// pump reads lines until the reader ends or the connection is closed.
func (c *lineConn) pump() {
	br := bufio.NewReaderSize(c.r, 64<<10)
	for {
		m, err := readLine(br, c.limits.MaxBytes)
		if m != nil && !c.hand(line{m: m}) {
			return
		}
		if err != nil {
			c.peerGone()
			for c.hand(line{err: err}) { // a second Read after the end gets the same answer
			}
			return
		}
	}
}

func (c *lineConn) hand(l line) bool {
	select {
	case c.lines <- l:
		return true
	case <-c.done:
		return false
	}
}

// readLine returns the next line that is not blank. It keeps at most limit bytes of it: a longer line
// is read to its end for its id alone.
func readLine(br *bufio.Reader, limit int64) (*Message, error) {
	for {
		var buf []byte
		var over *scanner
		for {
			part, err := br.ReadSlice('\n')
			switch {
			case over != nil:
				over.scan(part)
			case int64(len(buf)+len(part)) > limit+1: // the newline is not counted
				over = &scanner{}
				over.scan(buf)
				over.scan(part)
				buf = nil
			default:
				if len(buf)+len(part) > cap(buf) { // doubled: append itself grows large slices by a quarter
					buf = slices.Grow(buf, max(len(part), len(buf)))
				}
				buf = append(buf, part...)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if over != nil {
				return over.truncated(), err
			}
			if buf = bytes.TrimSpace(buf); len(buf) > 0 {
				return &Message{Raw: buf}, err
			}
			if err != nil {
				return nil, err
			}
			break
		}
	}
}

// Write implements Conn. One message is one line: newlines between tokens, which JSON allows and an
// HTTP body may have, become spaces.
func (c *lineConn) Write(ctx context.Context, m *Message) (written bool, err error) {
	select {
	case <-c.done:
		return false, io.ErrClosedPipe
	default:
	}
	select {
	case <-c.write:
		defer func() { c.write <- struct{}{} }()
	case <-c.done:
		return false, io.ErrClosedPipe
	case <-ctx.Done():
		return false, ctx.Err()
	}
	n, err := c.w.Write(oneLine(m.Raw))
	end := c.written.Add(int64(n))
	if err != nil {
		c.breakOnce.Do(func() { close(c.broken) })
	} else if m.OnLoss != nil {
		c.receipts.expect(m.OnLoss, end)
	}
	return n > 0, err
}

// peerGone tells whose answers the peer has left unread, when it has closed its end.
func (c *lineConn) peerGone() {
	written := c.written.Load()
	if left, ok := unread(c.w); ok && left > 0 {
		c.receipts.lose(written - left)
	}
}

// lastWords is how long a peer that takes nothing more may still speak.
const lastWords = time.Second

var errWriteFailed = errors.New("the peer does not take what it is sent")

func oneLine(raw []byte) []byte {
	b := make([]byte, len(raw)+1)
	copy(b, raw)
	b[len(raw)] = '\n'
	for i := range raw {
		if b[i] == '\n' || b[i] == '\r' {
			b[i] = ' '
		}
	}
	return b
}

// Close implements Conn.
func (c *lineConn) Close() error {
	c.closeOnce.Do(func() {
		close(c.done)
		c.closeErr = errors.Join(c.w.Close(), c.r.Close())
	})
	return c.closeErr
}
