// Package subprocess runs a program that speaks on its standard streams, in a process group of its own, and
// ends it with all its children. What it says is its caller's business.
//
//	running ── its input is closed ──▶ Grace ──▶ SIGTERM to the group ──▶ Grace ──▶ SIGKILL
//	running ── it goes by itself ──▶ SIGKILL to what it left in its group
package subprocess

import (
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Options configures Start. The zero value is ready.
type Options struct {
	Env []string // defaults to our own environment
	Dir string   // defaults to our own directory
	// Stderr is called once, in a goroutine, and MUST read the standard error to its end. Defaults to
	// nowhere.
	Stderr func(r io.Reader)
	// Grace is how long End waits for the process to end by itself once its input is closed, and again
	// after SIGTERM, before it is killed. Defaults to 2 s.
	Grace time.Duration
}

// Process is a program under way. Its methods are safe for concurrent use.
type Process struct {
	// Stdin is closed by End.
	Stdin *os.File
	// Stdout ends when the process and all that hold it are gone, or are given up on. It MUST be closed by
	// its reader.
	Stdout io.ReadCloser

	cmd        *exec.Cmd
	grace      time.Duration
	stdout     *output
	exited     chan struct{} // closed when the process has been reaped
	stderrDone chan struct{}
	gone       chan struct{} // closed when its whole group is
	ending     chan struct{} // closed by End
	endOnce    sync.Once
}

// Start runs a command, which MUST NOT be empty. It makes the pipes by itself: cmd.StdoutPipe is closed by
// Wait, which would cut off the last lines of a process that answers and ends.
func Start(command []string, opts *Options) (*Process, error) {
	if opts == nil {
		opts = &Options{}
	}
	var ps pipes
	inR, inW := ps.open()
	outR, outW := ps.open()
	errR, errW := ps.open()
	if ps.err != nil {
		ps.close()
		return nil, ps.err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.Dir = opts.Env, opts.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		ps.close()
		return nil, err
	}
	for _, theirs := range []*os.File{inR, outW, errW} {
		theirs.Close()
	}
	out := &output{File: outR, ended: make(chan struct{})}
	p := &Process{
		Stdin: inW, Stdout: out, cmd: cmd, grace: opts.Grace, stdout: out,
		exited: make(chan struct{}), stderrDone: make(chan struct{}), gone: make(chan struct{}), ending: make(chan struct{}),
	}
	if p.grace <= 0 {
		p.grace = 2 * time.Second
	}
	go p.readStderr(errR, opts.Stderr)
	go p.watch(errR)
	return p, nil
}

// pipes opens pipes until one fails.
type pipes struct {
	files []*os.File
	err   error
}

func (ps *pipes) open() (r, w *os.File) {
	if ps.err != nil {
		return nil, nil
	}
	if r, w, ps.err = os.Pipe(); ps.err == nil {
		ps.files = append(ps.files, r, w)
	}
	return r, w
}

func (ps *pipes) close() {
	for _, f := range ps.files {
		f.Close()
	}
}

// output notes when it has been read to its end.
type output struct {
	*os.File
	once  sync.Once
	ended chan struct{}
}

func (o *output) Read(b []byte) (int, error) {
	n, err := o.File.Read(b)
	if err != nil {
		o.once.Do(func() { close(o.ended) })
	}
	return n, err
}

func (p *Process) readStderr(r *os.File, read func(io.Reader)) {
	defer close(p.stderrDone)
	defer r.Close()
	if read == nil {
		read = func(r io.Reader) { _, _ = io.Copy(io.Discard, r) } // it ends when the pipe does, in whatever way
	}
	read(r)
}

// watch reaps the process. A child that it leaves behind may hold our pipes open for ever, so its last
// output is given a moment, then the group is ended, and a pipe that is still held is closed. The group
// is signalled here alone once the process has been reaped: later its id may be somebody else's.
func (p *Process) watch(stderr io.Closer) {
	defer close(p.gone)
	_ = p.cmd.Wait() // its error is in ProcessState
	close(p.exited)
	await(p.grace, p.stderrDone, p.ending)
	killGroup(p.cmd)
	if !await(time.Second, p.stderrDone, nil) { // a child that has left the group
		stderr.Close()
		<-p.stderrDone
	}
	if !await(5*p.grace, p.stdout.ended, p.ending) {
		p.stdout.Close()
	}
}

// await reports whether one of the channels, of which the second may be nil, was closed within d.
func await(d time.Duration, first, second <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-first:
		return true
	case <-second:
		return true
	case <-t.C:
		return false
	}
}

// Exited waits up to the grace for the process to be reaped, and returns its state; nil when it runs on.
func (p *Process) Exited() *os.ProcessState {
	if !await(p.grace, p.exited, nil) {
		return nil
	}
	return p.cmd.ProcessState
}

// Wait returns the state of the process when it has been reaped, its standard error has been read and its
// group is gone.
func (p *Process) Wait() *os.ProcessState {
	<-p.gone
	return p.cmd.ProcessState
}

// End closes the process's input, waits, then ends the whole group, children included. The process has been
// reaped when End returns. It may be called more than once.
func (p *Process) End() {
	p.endOnce.Do(func() {
		close(p.ending)
		p.Stdin.Close()
		if await(p.grace, p.exited, nil) {
			return
		}
		terminateGroup(p.cmd)
		if !await(p.grace, p.exited, nil) {
			killGroup(p.cmd)
		}
	})
	<-p.gone
}
