package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/undolog/undolog/conformance"
)

// Lines is a peer on newline-delimited JSON: MCP's stdio.
type Lines struct {
	onMessage func(m *Message) json.RawMessage
	revision  string
	w         io.WriteCloser
	closer    func() error

	mu      sync.Mutex // guards the writer, and what follows
	next    int64
	waiting map[string]chan []byte
	err     error // why no more answers come
	done    chan struct{}
}

// NewLines returns a connection over a reader and a writer. Start begins it.
func NewLines(r io.Reader, w io.WriteCloser) *Lines { return newLines(r, w, nil, nil) }

func newLines(r io.Reader, w io.WriteCloser, closer func() error, onMessage func(*Message) json.RawMessage) *Lines {
	l := &Lines{w: w, closer: closer, onMessage: onMessage, waiting: map[string]chan []byte{}, done: make(chan struct{})}
	go l.read(r)
	return l
}

// Start does what the revision begins with: the handshake, or nothing.
func (l *Lines) Start(ctx context.Context, revision string) (*conformance.Answer, error) {
	l.revision = revision
	if revision == Stateless {
		return nil, nil
	}
	a, err := l.send(ctx, "initialize", json.RawMessage(Initialize))
	if err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	if a.Error != nil {
		return a, fmt.Errorf("initialize: error %d: %s", a.Error.Code, a.Error.Message)
	}
	return a, l.write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

// CommandOptions configure Command. The zero value is ready.
type CommandOptions struct {
	Errs io.Writer // gets the program's standard error; nil discards it
	Env  []string  // is added to the environment
	// OnMessage gets the peer's requests and notifications, in order, in the reader's goroutine; what it
	// returns is sent back as the result of a request. Nil: requests are refused with −32601.
	OnMessage func(m *Message) json.RawMessage
}

// Command starts a program and speaks to its standard input and output.
func Command(argv []string, opts *CommandOptions) (*Lines, error) {
	var o CommandOptions
	if opts != nil {
		o = *opts
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = o.Errs
	if len(o.Env) > 0 {
		cmd.Env = append(cmd.Environ(), o.Env...)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	l := newLines(stdout, stdin, nil, o.OnMessage)
	l.closer = func() error { return l.reap(cmd) }
	return l, nil
}

// reap waits for the program to end, and ends it when it does not.
func (l *Lines) reap(cmd *exec.Cmd) error {
	select {
	case <-l.done:
	case <-time.After(5 * time.Second):
		_ = cmd.Process.Kill() // it may have ended by itself
		<-l.done
	}
	_ = cmd.Wait() // how the peer ends is not what is asked
	return nil
}

// Revision implements Conn.
func (l *Lines) Revision() string { return l.revision }

// Call implements Conn.
func (l *Lines) Call(ctx context.Context, method string, params json.RawMessage) (*conformance.Answer, error) {
	return l.CallAs(ctx, l.nextID(), method, params)
}

// CallAs implements Conn.
func (l *Lines) CallAs(ctx context.Context, id json.RawMessage, method string, params json.RawMessage) (*conformance.Answer, error) {
	if l.revision == Stateless {
		var err error
		if params, err = WithMeta(params); err != nil {
			return nil, err
		}
	}
	return l.sendAs(ctx, id, method, params)
}

// Notify implements Conn.
func (l *Lines) Notify(_ context.Context, method string, params json.RawMessage) (*conformance.Answer, error) {
	return nil, l.write(encodeNotification(method, params))
}

func (l *Lines) nextID() json.RawMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	return number(l.next)
}

// Request sends one request that a fixture describes, as far as there is no HTTP about it. A connection that
// was not started is what it needs: what a revision begins with is part of what is asked.
func (l *Lines) Request(ctx context.Context, r *conformance.Request) (*conformance.Answer, error) {
	params := r.Params
	if r.Revision == "" || r.Revision == Stateless {
		var err error
		if params, err = requestParams(r); err != nil {
			return nil, err
		}
	}
	return l.send(ctx, r.Method, params)
}

// Send is Call without anything added.
func (l *Lines) Send(ctx context.Context, method string, params json.RawMessage) (*conformance.Answer, error) {
	return l.send(ctx, method, params)
}

func (l *Lines) send(ctx context.Context, method string, params json.RawMessage) (*conformance.Answer, error) {
	return l.sendAs(ctx, l.nextID(), method, params)
}

func (l *Lines) sendAs(ctx context.Context, id json.RawMessage, method string, params json.RawMessage) (*conformance.Answer, error) {
	l.mu.Lock()
	got := make(chan []byte, 1)
	l.waiting[loose(id)] = got
	l.mu.Unlock()
	if err := l.write(encodeRequest(id, method, params)); err != nil {
		return nil, err
	}
	select {
	case raw := <-got:
		return answer(raw)
	case <-l.done:
		select {
		case raw := <-got:
			return answer(raw)
		default:
		}
		return nil, fmt.Errorf("call %s: %w", method, l.err)
	case <-ctx.Done():
		return nil, fmt.Errorf("call %s: no answer: %w", method, ctx.Err())
	}
}

func (l *Lines) write(raw []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.w.Write(append(raw, '\n')); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func (l *Lines) read(r io.Reader) {
	defer close(l.done)
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 1 {
			l.dispatch(line)
		}
		if err != nil {
			l.err = errors.New("the peer has closed the connection")
			return
		}
	}
}

func (l *Lines) dispatch(line []byte) {
	var m Message
	if json.Unmarshal(line, &m) != nil {
		return // a peer that logs to its output; the answer that is missing will be found
	}
	if m.Method == "" {
		if got := l.take(m.ID); got != nil {
			got <- line
		}
		return
	}
	var result json.RawMessage
	if l.onMessage != nil {
		result = l.onMessage(&m)
	}
	switch {
	case m.ID == nil:
	case result != nil:
		_ = l.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)) // a lost peer is found by the next call
	default:
		_ = l.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID))
	}
}

// take returns who waits for an answer under the id, nil when nobody does. An answer without an id is that
// of the only one who waits.
func (l *Lines) take(id json.RawMessage) chan []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := loose(id)
	if (id == nil || key == "null") && len(l.waiting) == 1 {
		for only := range l.waiting {
			key = only
		}
	}
	got := l.waiting[key]
	delete(l.waiting, key)
	return got
}

// Close ends the connection and waits for the peer.
func (l *Lines) Close() error {
	l.mu.Lock()
	err := l.w.Close()
	l.mu.Unlock()
	if l.closer != nil {
		err = errors.Join(err, l.closer())
	}
	return err
}
