package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/undolog/undolog/internal/subprocess"
)

// ProcessOptions configures StartProcess.
type ProcessOptions struct {
	Logger *slog.Logger // gets the process's stderr line by line; nil is silent
	Limits *Limits      // of what the process writes. MaxDepth defaults to 10,000 here
	Env    []string     // defaults to our own environment
	Dir    string       // defaults to our own directory
	// Grace is how long Close waits for the process to end by itself once its input is closed, and again
	// after SIGTERM, before it is killed. Defaults to 2 s.
	Grace time.Duration
}

// ExitError says how an upstream process ended.
type ExitError struct {
	Command string
	State   *os.ProcessState
}

func (e *ExitError) Error() string {
	if code := e.State.ExitCode(); code >= 0 {
		return fmt.Sprintf("%s exited with status %d", e.Command, code)
	}
	return fmt.Sprintf("%s ended: %s", e.Command, e.State)
}

// StartProcess starts an upstream that speaks MCP over its stdin and stdout, in a process group of its
// own. ctx bounds the start alone. Close closes its input, waits, then ends the whole group, children
// included; the process has been reaped when Close returns. When the process goes by itself, Read
// returns an *ExitError and its children are ended.
func StartProcess(ctx context.Context, command []string, opts *ProcessOptions) (Conn, error) {
	if opts == nil {
		opts = &ProcessOptions{}
	}
	if len(command) == 0 {
		return nil, errors.New("start upstream: no command given")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start upstream %s: %w", command[0], err)
	}
	p := &process{name: command[0], logger: opts.Logger, reported: make(chan struct{})}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	started, err := subprocess.Start(command, &subprocess.Options{Env: opts.Env, Dir: opts.Dir, Stderr: p.logStderr, Grace: opts.Grace})
	if err != nil {
		return nil, fmt.Errorf("start upstream %s: %w", command[0], err)
	}
	p.proc = started
	p.lineConn = newLineConn(started.Stdout, started.Stdin, &LineOptions{Limits: upstreamLimits(opts.Limits)})
	go p.report()
	return p, nil
}

// process is a lineConn over a process's pipes, and the process.
type process struct {
	*lineConn
	proc   *subprocess.Process
	name   string
	logger *slog.Logger

	tail      []string      // the last lines of stderr; read when the process is gone
	reported  chan struct{} // closed when its end has been logged
	closeOnce sync.Once
}

// upstreamLimits lets an upstream nest as deep as the parser goes: what an agent may send is bounded by
// us, what it may be told by nobody but its upstream.
func upstreamLimits(l *Limits) *Limits {
	d := Limits{MaxBytes: defaultMaxResult, MaxDepth: 10_000, MaxName: defaultMaxResult}
	if l == nil {
		return &d
	}
	if l.MaxBytes > 0 {
		d.MaxBytes = l.MaxBytes
	}
	if l.MaxDepth > 0 {
		d.MaxDepth = l.MaxDepth
	}
	if l.MaxName > 0 {
		d.MaxName = l.MaxName
	}
	return &d
}

// report says what a process has failed with, once it is gone.
func (p *process) report() {
	defer close(p.reported)
	state := p.proc.Wait()
	if !state.Success() && !p.logger.Enabled(context.Background(), slog.LevelInfo) {
		p.logger.Warn("upstream failed", slog.String("command", p.name), slog.Any("stderr", p.tail))
	}
}

// stderrTail is how many lines of stderr a failure is logged with where the log does not have them yet.
const stderrTail = 10

func (p *process) logStderr(r io.Reader) {
	br := bufio.NewReaderSize(r, 16<<10)
	for {
		text, err := br.ReadSlice('\n') // a longer line comes in pieces
		if line := strings.TrimRight(string(text), "\r\n"); line != "" {
			p.logger.Info("upstream stderr", slog.String("line", line))
			p.tail = append(p.tail[max(0, len(p.tail)+1-stderrTail):], line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// Read implements Conn.
func (p *process) Read(ctx context.Context) (*Message, error) {
	m, err := p.lineConn.Read(ctx)
	if err == nil || ctx.Err() != nil || isRefused(err) {
		return m, err
	}
	if state := p.proc.Exited(); state != nil { // its output has ended: it is about to go
		return nil, &ExitError{Command: p.name, State: state}
	}
	return nil, fmt.Errorf("%s closed its output: %w", p.name, err)
}

// Close implements Conn.
func (p *process) Close() error {
	p.closeOnce.Do(func() {
		p.proc.End()
		<-p.reported
		p.lineConn.Close()
	})
	return nil
}

func isRefused(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}
