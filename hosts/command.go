package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/internal/subprocess"
)

// command is a transport to a process of its own. It is ours where the SDK has mcp.CommandTransport, because
// that one reads no line above 16 MiB and ends the process alone, not its children.
type command struct {
	argv []string
	opts *subprocess.Options
}

func newCommand(argv []string, o *Options) *command {
	return &command{argv, &subprocess.Options{
		Env: append(os.Environ(), o.Env...), Stderr: copyTo(o.Stderr), Grace: o.Grace,
	}}
}

// copyTo reads to the end also when w takes no more: a command must not be held up by what reads its errors.
func copyTo(w io.Writer) func(io.Reader) {
	if w == nil {
		return nil
	}
	return func(r io.Reader) {
		if _, err := io.Copy(w, r); err != nil {
			_, _ = io.Copy(io.Discard, r) // until the pipe ends, in whatever way
		}
	}
}

// Connect starts the command. Closing the connection ends it, with its children, and waits for that.
func (t *command) Connect(ctx context.Context) (mcp.Connection, error) {
	p, err := subprocess.Start(t.argv, t.opts)
	if err != nil {
		return nil, err
	}
	lines := &mcp.IOTransport{Reader: io.NopCloser(p.Stdout), Writer: ender{p}, MaxLineLength: maxAnswer}
	c, err := lines.Connect(ctx)
	if err != nil {
		p.End()
		return nil, err
	}
	return &commandConn{c, t.argv[0], p}, nil
}

// ender is a command's input; to close it ends the command.
type ender struct{ process *subprocess.Process }

func (e ender) Write(b []byte) (int, error) { return e.process.Stdin.Write(b) }

func (e ender) Close() error {
	e.process.End()
	return e.process.Stdout.Close()
}

// commandConn tells how a command has ended, where the SDK says no more than EOF, or that a pipe is broken: which of
// them it meets first is chance.
type commandConn struct {
	mcp.Connection
	name    string
	process *subprocess.Process
}

func (c *commandConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err != io.EOF || ctx.Err() != nil {
		return m, err
	}
	return nil, c.ended(err)
}

func (c *commandConn) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	if !errors.Is(err, syscall.EPIPE) || ctx.Err() != nil {
		return err
	}
	return c.ended(err)
}

// ended says how the command has ended, or returns err when it has not.
func (c *commandConn) ended(err error) error {
	if state := c.process.Exited(); state != nil {
		return fmt.Errorf("%s has ended: %s", c.name, state)
	}
	return err
}
