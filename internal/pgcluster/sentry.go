package pgcluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// sentry is a small process that outlives us: when we end, however we end, its input does, and then it
// ends the server that it was told of and removes its directory.
type sentry struct {
	dir   string
	cmd   *exec.Cmd
	input io.WriteCloser
}

// posted holds the sentries on duty: one that was collected as garbage would think that we have ended.
var posted sync.Map

// A zombie that nobody collects still has its number, so that the wait is bounded.
const sentryScript = `
pid=0
while read -r line; do pid=$line; done
if [ "$pid" != 0 ] && kill -QUIT "$pid" 2>/dev/null; then
	n=0
	while kill -0 "$pid" 2>/dev/null && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done
fi
rm -rf "$1"
`

// newSentry makes a temporary directory that belongs to whom servers run as, and watches over it.
func newSentry() (s *sentry, err error) {
	s = &sentry{}
	if s.dir, err = os.MkdirTemp("", "undolog-pg-"); err != nil {
		return nil, fmt.Errorf("make directory of server: %w", err)
	}
	s.cmd = exec.Command("sh", "-c", sentryScript, "sentry", s.dir)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what interrupts us does not interrupt it
	if s.input, err = s.cmd.StdinPipe(); err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start sentry: %w", err), os.RemoveAll(s.dir))
	}
	posted.Store(s, nil)
	if err := giveAway(s.dir); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// guard says which process must end with us; 0 is none.
func (s *sentry) guard(pid int) error {
	if _, err := fmt.Fprintln(s.input, pid); err != nil {
		return fmt.Errorf("tell sentry of process %d: %w", pid, err)
	}
	return nil
}

// close returns when the directory is gone.
func (s *sentry) close() error {
	posted.Delete(s)
	err := s.input.Close()
	if waitErr := s.cmd.Wait(); waitErr != nil {
		return fmt.Errorf("remove %s: %w", s.dir, waitErr)
	}
	return err
}

// server is a running PostgreSQL or PgBouncer.
type server struct {
	sentry *sentry
	cmd    *exec.Cmd
	ended  *os.File // ends when the last process of the server has
}

// start runs a program as an unprivileged user, with its output in the file log. The program waits until
// the sentry knows it.
func (s *sentry) start(log string, command ...string) (*server, error) {
	out, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of server: %w", err)
	}
	defer out.Close()
	ended, lifeline, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	defer lifeline.Close()
	cmd := exec.Command("sh", append([]string{"-c", `read -r go && exec "$@"`, "start"}, command...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = s.dir, out, out, []*os.File{lifeline}
	if cmd.SysProcAttr, err = unprivileged(); err != nil {
		return nil, errors.Join(err, ended.Close())
	}
	p := &server{sentry: s, cmd: cmd, ended: ended}
	if err := p.run(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", command[0], err), ended.Close())
	}
	return p, nil
}

func (p *server) run() error {
	input, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	if err := p.sentry.guard(p.cmd.Process.Pid); err != nil {
		return errors.Join(err, input.Close(), p.cmd.Wait())
	}
	_, err = io.WriteString(input, "go\n")
	return errors.Join(err, input.Close())
}

// hasEnded waits for at most d until every process of the server has ended.
func (p *server) hasEnded(d time.Duration) bool {
	_ = p.ended.SetReadDeadline(time.Now().Add(d)) // a pipe has deadlines
	_, err := p.ended.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// stop sends the signal and returns when the server has ended, whatever its exit status.
func (p *server) stop(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop server: %w", err)
	}
	if !p.hasEnded(2 * time.Minute) {
		return fmt.Errorf("stop server: %s was sent two minutes ago, and it still runs", signal)
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("stop server: %w", err)
	}
	return errors.Join(p.sentry.guard(0), p.ended.Close())
}

// nobody is whom servers run as when we are root, as which they refuse to run.
func nobody() (uid, gid int, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		if u, lookupErr := user.Lookup(name); lookupErr == nil {
			uid, uidErr := strconv.Atoi(u.Uid)
			gid, gidErr := strconv.Atoi(u.Gid)
			return uid, gid, errors.Join(uidErr, gidErr)
		}
	}
	return 0, 0, errors.New("there is neither a user postgres nor a user nobody to run servers as")
}

// unprivileged is how a server's process begins: in a session of its own, and never as root.
func unprivileged() (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() != 0 {
		return attr, nil
	}
	uid, gid, err := nobody()
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, err
}

// giveAway makes the file, when we are root, one of whom servers run as.
func giveAway(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := nobody()
	if err != nil {
		return err
	}
	return os.Chown(path, uid, gid)
}
