package gateway_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/undolog/undolog/gateway"
)

// playProcess is what the test binary does as an upstream process.
func playProcess(role string) int {
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	switch role {
	case "sdk":
		return playSDK()
	case "echo": // answers each line with itself, and ends with its input
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			say("%s", in.Text())
		}
	case "parting": // speaks and goes
		fmt.Fprintln(os.Stderr, "not feeling well")
		say(`{"jsonrpc":"2.0","method":"last/words"}`)
		return 3
	case "deaf": // takes no notice of its input's end or of SIGTERM
		signal.Ignore(syscall.SIGTERM)
		say(`{"jsonrpc":"2.0","method":"up"}`)
		select {}
	case "family": // has a child that holds all pipes
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "GATEWAY_TEST_PROCESS=deaf")
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			return 1
		}
		say(`{"jsonrpc":"2.0","method":"child","params":{"pid":"%d"}}`, child.Process.Pid)
		if os.Getenv("GATEWAY_TEST_LEAVE") != "" {
			return 4
		}
		io.Copy(io.Discard, os.Stdin)
	}
	return 0
}

func startProcess(t *testing.T, role string, opts *gateway.ProcessOptions, env ...string) gateway.Conn {
	t.Helper()
	if opts == nil {
		opts = &gateway.ProcessOptions{}
	}
	if opts.Grace == 0 {
		opts.Grace = 300 * time.Millisecond
	}
	opts.Env = append(append(os.Environ(), "GATEWAY_TEST_PROCESS="+role), env...)
	c, err := gateway.StartProcess(t.Context(), []string{os.Args[0]}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// readParam reads messages until one has the method, and returns its params.
func readMethod(t *testing.T, c gateway.Conn, method string) string {
	t.Helper()
	for {
		m, err := c.Read(t.Context())
		if err != nil {
			t.Fatalf("no %s: %v", method, err)
		}
		if m.Method == method {
			return string(m.Params)
		}
	}
}

// gone waits until no process has the id any more.
func gone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || bytes.Contains(stat, []byte(") Z ")) {
			return // a zombie is for its new parent to reap
		}
	}
	t.Errorf("process %d is still there", pid)
}

func childOf(t *testing.T, c gateway.Conn) int {
	t.Helper()
	params := readMethod(t, c, "child")
	pid, err := strconv.Atoi(strings.Trim(params, `{"pid:}`))
	if err != nil {
		t.Fatalf("child %s: %v", params, err)
	}
	return pid
}

func TestStartProcess(t *testing.T) {
	t.Run("a message comes back as it went", func(t *testing.T) {
		c := startProcess(t, "echo", nil)
		want := `{"jsonrpc":"2.0","id":9007199254740993,"method":"m","params":{"n":1.10}}`
		m, err := gateway.ParseMessage([]byte(want), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if m, err = c.Read(t.Context()); err != nil || string(m.Raw) != want {
			t.Errorf("Read = %+v, %v", m, err)
		}
	})
	t.Run("a command that is not there is named", func(t *testing.T) {
		_, err := gateway.StartProcess(t.Context(), []string{"no-such-command-here", "x"}, nil)
		if err == nil || !strings.Contains(err.Error(), "no-such-command-here") || !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("StartProcess = %v", err)
		}
	})
	t.Run("its last words are read before its exit, which says the status", func(t *testing.T) {
		var log lockedBuffer
		c := startProcess(t, "parting", &gateway.ProcessOptions{Logger: slog.New(slog.NewTextHandler(&log, nil)), Grace: patience})
		readMethod(t, c, "last/words")
		_, err := c.Read(t.Context())
		var exit *gateway.ExitError
		if !errors.As(err, &exit) || exit.State.ExitCode() != 3 || !strings.HasSuffix(err.Error(), "exited with status 3") {
			t.Errorf("Read = %v", err)
		}
		c.Close()
		if !strings.Contains(log.String(), "not feeling well") {
			t.Errorf("the log has no stderr: %s", log.String())
		}
	})
	t.Run("what it said on stderr is logged with a failure, also by a quiet log", func(t *testing.T) {
		var log lockedBuffer
		quiet := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c := startProcess(t, "parting", &gateway.ProcessOptions{Logger: quiet, Grace: patience}) // it is to end by itself
		readMethod(t, c, "last/words")
		c.Close()
		if !strings.Contains(log.String(), "not feeling well") {
			t.Errorf("the log has no stderr: %s", log.String())
		}
	})
	t.Run("one that listens to nothing is killed by Close", func(t *testing.T) {
		c := startProcess(t, "deaf", nil)
		readMethod(t, c, "up")
		c.Close()
		if written, err := c.Write(t.Context(), gateway.NewNotification("m", nil)); err == nil || written {
			t.Errorf("Write after Close = %v, %v", written, err)
		}
	})
	t.Run("Close ends its children too", func(t *testing.T) {
		c := startProcess(t, "family", nil)
		pid := childOf(t, c)
		c.Close()
		gone(t, pid)
	})
	t.Run("its own end ends its children too", func(t *testing.T) {
		c := startProcess(t, "family", nil, "GATEWAY_TEST_LEAVE=1")
		pid := childOf(t, c)
		for {
			if _, err := c.Read(t.Context()); err != nil {
				if !strings.HasSuffix(err.Error(), "exited with status 4") {
					t.Errorf("Read = %v", err)
				}
				break
			}
		}
		gone(t, pid)
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
