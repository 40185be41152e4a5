package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
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
	p := &process{
		name: command[0], grace: opts.Grace, logger: opts.Logger,
		exited: make(chan struct{}), stderrDone: make(chan struct{}),
		ended: make(chan struct{}), closing: make(chan struct{}),
	}
	if p.grace <= 0 {
		p.grace = 2 * time.Second
	}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	if err := p.start(command, opts); err != nil {
		return nil, fmt.Errorf("start upstream %s: %w", command[0], err)
	}
	return p, nil
}

// process is a lineConn over a process's pipes, and the process.
type process struct {
	*lineConn
	name   string
	grace  time.Duration
	logger *slog.Logger
	cmd    *exec.Cmd

	stdin      io.Closer
	tail       []string      // the last lines of stderr; read after stderrDone
	exited     chan struct{} // closed when the process has been reaped
	stderrDone chan struct{}
	ended      chan struct{} // closed when its whole group is gone
	closing    chan struct{} // closed by Close
	closeOnce  sync.Once
}

// start makes the pipes by itself: cmd.StdoutPipe is closed by Wait, which would cut off the last
// lines of a process that answers and ends.
func (p *process) start(command []string, opts *ProcessOptions) (err error) {
	var files []*os.File
	defer func() {
		if err != nil {
			closeAll(files)
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			if r, w, err = os.Pipe(); err == nil {
				files = append(files, r, w)
			}
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Env, p.cmd.Dir = opts.Env, opts.Dir
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, errW
	ownGroup(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return err
	}
	closeAll([]*os.File{inR, outW, errW})
	p.stdin = inW
	p.lineConn = newLineConn(outR, inW, &LineOptions{Limits: processLimits(opts.Limits)})
	go p.logStderr(errR)
	go p.watch(errR)
	return nil
}

// processLimits lets an upstream nest as deep as the parser goes: what an agent may send is bounded by
// us, what it may be told by nobody but its upstream.
func processLimits(l *Limits) *Limits {
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

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// watch reaps the process. A child that it leaves behind may hold our pipes open for ever, so its last
// output is given a moment, then the group is ended, and a pipe that is still held is closed. The group
// is signalled here alone: later its id may be somebody else's.
func (p *process) watch(stderr io.Closer) {
	defer close(p.ended)
	p.cmd.Wait() // its error is in ProcessState
	close(p.exited)
	await(p.grace, p.stderrDone, p.closing)
	killGroup(p.cmd)
	if !await(time.Second, p.stderrDone) { // a child that has left the group
		stderr.Close()
		<-p.stderrDone
	}
	if !p.cmd.ProcessState.Success() && !p.logger.Enabled(context.Background(), slog.LevelInfo) {
		p.logger.Warn("upstream failed", slog.String("command", p.name), slog.Any("stderr", p.tail))
	}
	if !await(5*p.grace, p.lineConn.ended, p.closing) {
		p.lineConn.r.Close()
	}
}

// await reports whether one of the channels was closed within d.
func await(d time.Duration, chans ...<-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	var second <-chan struct{}
	if len(chans) > 1 {
		second = chans[1]
	}
	select {
	case <-chans[0]:
		return true
	case <-second:
		return true
	case <-t.C:
		return false
	}
}

// stderrTail is how many lines of stderr a failure is logged with where the log does not have them yet.
const stderrTail = 10

func (p *process) logStderr(r io.ReadCloser) {
	defer close(p.stderrDone)
	defer r.Close()
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
	if await(p.grace, p.exited) { // its output has ended: it is about to go
		return nil, &ExitError{Command: p.name, State: p.cmd.ProcessState}
	}
	return nil, fmt.Errorf("%s closed its output: %w", p.name, err)
}

// Close implements Conn.
func (p *process) Close() error {
	p.closeOnce.Do(p.end)
	return nil
}

func (p *process) end() {
	close(p.closing)
	p.stdin.Close()
	if !await(p.grace, p.exited) {
		terminateGroup(p.cmd)
		if !await(p.grace, p.exited) {
			killGroup(p.cmd)
		}
	}
	<-p.ended
	p.lineConn.Close()
}

func isRefused(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}
