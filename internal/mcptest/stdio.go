package mcptest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for one message before it fails.
const patience = time.Minute

// Stdio is a client of a child process on its standard streams. Methods that take no context fail the
// test; of them only Send and those that return an error may be used from other goroutines. The child
// is killed when the test ends.
type Stdio struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Closer
	stderr *lockedBuffer
	inbox  inbox
	write  sync.Mutex
	exited chan struct{} // closed when the child is reaped
}

// Start runs a command and speaks to it.
func Start(t testing.TB, name string, args ...string) *Stdio {
	t.Helper()
	return StartCommand(t, exec.Command(name, args...))
}

// StartCommand is Start for a command whose environment or directory is set. Its standard error is kept
// for Stderr and shown when the test fails.
func StartCommand(t testing.TB, cmd *exec.Cmd) *Stdio {
	t.Helper()
	c := &Stdio{t: t, cmd: cmd, stderr: &lockedBuffer{}, exited: make(chan struct{})}
	c.inbox.changed = make(chan struct{})
	cmd.Stderr = c.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatalf("pipe standard input: %v", err)
	}
	// A pipe of our own: Wait must not close it under the reader.
	stdout, child, err := os.Pipe()
	if err != nil {
		t.Fatalf("pipe standard output: %v", err)
	}
	c.stdin, c.stdout, cmd.Stdout = stdin, stdout, child
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	child.Close()
	go c.inbox.readLines(stdout)
	go func() {
		_ = cmd.Wait() // the status is in cmd.ProcessState
		close(c.exited)
	}()
	t.Cleanup(c.cleanUp)
	return c
}

func (c *Stdio) cleanUp() {
	_ = c.cmd.Process.Kill() // an error says that it has ended
	<-c.exited
	if c.t.Failed() {
		c.t.Logf("standard error of %s:\n%s", c.cmd.Path, c.stderr)
	}
}

// Send writes line and a newline.
func (c *Stdio) Send(line string) error {
	c.write.Lock()
	defer c.write.Unlock()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		return fmt.Errorf("write to child: %w", err)
	}
	return nil
}

// MustSend is Send that fails the test.
func (c *Stdio) MustSend(line string) {
	c.t.Helper()
	if err := c.Send(line); err != nil {
		c.t.Fatal(err)
	}
}

// Await takes the first message, in order of arrival, that match wants and that was not taken yet. It
// fails when ctx ends, and when the child's output ends without such a message (io.EOF).
func (c *Stdio) Await(ctx context.Context, match func(Message) bool) (Message, error) {
	return c.inbox.await(ctx, match)
}

// Response takes the response to the request whose id has the literal id.
func (c *Stdio) Response(id string) Message {
	c.t.Helper()
	return c.must("response to "+id, func(m Message) bool { return m.IsResponse(id) })
}

// Incoming takes the next request or notification of a method.
func (c *Stdio) Incoming(method string) Message {
	c.t.Helper()
	return c.must(method, func(m Message) bool { return m.Method == method })
}

func (c *Stdio) must(what string, match func(Message) bool) Message {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := c.Await(ctx, match)
	if err != nil {
		c.t.Fatalf("await %s: %v", what, err)
	}
	return m
}

// Initialize opens a session of a revision before 2026-07-28 under the id "init" and returns the
// answer.
func (c *Stdio) Initialize(version string) Message {
	c.t.Helper()
	c.MustSend(initializeRequest(version))
	m := c.Response(`"init"`)
	if m.Result == nil {
		c.t.Fatalf("initialize: %s", m.Raw)
	}
	c.MustSend(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return m
}

func initializeRequest(version string) string {
	return Request(`"init"`, "initialize", fmt.Sprintf(
		`{"protocolVersion":%q,"capabilities":{"elicitation":{},"sampling":{},"roots":{"listChanged":true}},"clientInfo":{"name":"mcptest","version":"1"}}`, version))
}

// Call sends a tools/call and takes its response.
func (c *Stdio) Call(id, tool, arguments string) Message {
	c.t.Helper()
	c.MustSend(ToolCall(id, tool, arguments, ""))
	return c.Response(id)
}

// Do sends a request line and takes the response to id. It may be used from any goroutine.
func (c *Stdio) Do(ctx context.Context, id, line string) (Message, error) {
	if err := c.Send(line); err != nil {
		return Message{}, err
	}
	return c.Await(ctx, func(m Message) bool { return m.IsResponse(id) })
}

// CloseStdin ends the child's input, as an agent does that leaves.
func (c *Stdio) CloseStdin() {
	c.t.Helper()
	if err := c.stdin.Close(); err != nil {
		c.t.Fatalf("close standard input: %v", err)
	}
}

// Leave ends the child's input and closes the reading end of its output, as an agent does that dies: nothing more that
// the child writes arrives.
func (c *Stdio) Leave() {
	c.t.Helper()
	if err := errors.Join(c.stdout.Close(), c.stdin.Close()); err != nil {
		c.t.Fatalf("leave: %v", err)
	}
}

// Kill sends SIGKILL and waits until the child is gone.
func (c *Stdio) Kill() {
	_ = c.cmd.Process.Kill() // an error says that it has ended
	<-c.exited
}

// Signal sends sig to the child alone.
func (c *Stdio) Signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatalf("signal child: %v", err)
	}
}

// Exited is closed when the child has ended and was reaped.
func (c *Stdio) Exited() <-chan struct{} { return c.exited }

// Wait waits for the child's end and returns its exit status, −1 after a signal.
func (c *Stdio) Wait() int {
	c.t.Helper()
	select {
	case <-c.exited:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		c.t.Fatalf("%s did not end", c.cmd.Path)
		return 0
	}
}

// PID returns the child's process id.
func (c *Stdio) PID() int { return c.cmd.Process.Pid }

// Stderr returns what the child has written to its standard error.
func (c *Stdio) Stderr() string { return c.stderr.String() }

// inbox keeps messages until they are taken.
type inbox struct {
	mu       sync.Mutex
	messages []Message
	err      error         // why no more will come
	changed  chan struct{} // closed and replaced at each change
}

func (b *inbox) readLines(r io.ReadCloser) {
	defer r.Close()
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			b.put(line)
		}
		if err != nil {
			b.end(err)
			return
		}
	}
}

func (b *inbox) put(raw []byte) {
	m, err := ParseMessage(raw)
	if err != nil {
		b.end(err)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages = append(b.messages, m)
	b.wake()
}

func (b *inbox) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.wake()
}

func (b *inbox) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *inbox) await(ctx context.Context, match func(Message) bool) (Message, error) {
	for {
		m, ok, changed, err := b.take(match)
		if ok || err != nil {
			return m, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Message{}, ctx.Err()
		}
	}
}

func (b *inbox) take(match func(Message) bool) (m Message, ok bool, changed <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, m := range b.messages {
		if match(m) {
			b.messages = append(b.messages[:i:i], b.messages[i+1:]...)
			return m, true, nil, nil
		}
	}
	return Message{}, false, b.changed, b.err
}

// lockedBuffer is a bytes.Buffer that a child may write to while a test reads it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
