package hosts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/hosts"
	"github.com/undolog/undolog/interceptors"
)

// playHost is what the test binary does as a host on its standard streams.
func playHost(role string) {
	switch role {
	case "child": // holds its parent's pipes and listens to nothing
		signal.Ignore(syscall.SIGTERM)
		select {}
	case "family":
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), asHost+"=child")
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		serveStdio(pidOf("child", child.Process.Pid))
	case "deaf": // takes no notice of its input's end or of SIGTERM
		signal.Ignore(syscall.SIGTERM)
		serveStdio(pidOf("own", os.Getpid()))
		select {}
	case "growing":
		serveGrowing()
	case "ends": // speaks no MCP
		os.Exit(7)
	default:
		serveStdio()
	}
}

func serveStdio(more ...interceptors.Interceptor) {
	h := house()
	if err := h.Add(more...); err != nil {
		panic(err)
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "host"}, &mcp.ServerOptions{Capabilities: h.Capabilities()})
	if err := h.Install(s); err != nil {
		panic(err)
	}
	_ = s.Run(context.Background(), &mcp.StdioTransport{MaxLineLength: 64 << 20}) // its end is the test's
}

// pidOf is an interceptor that tells the id of a process.
func pidOf(name string, pid int) interceptors.Interceptor {
	return &interceptors.Mutator{
		Descriptor: interceptors.Descriptor{Name: name, Hooks: always},
		Mutate: func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: fmt.Appendf(nil, `{"pid":%d}`, pid)}, nil
		},
	}
}

func play(t *testing.T, role string) *hosts.Host {
	t.Helper()
	h, err := hosts.Command("far", []string{os.Args[0]}, &hosts.Options{Env: []string{asHost + "=" + role}, Grace: 300 * time.Millisecond, Timeout: 10 * time.Minute, PingEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// askPid returns the process id that an interceptor of the host tells.
func askPid(t *testing.T, h *hosts.Host, name string) int {
	t.Helper()
	res, err := h.Invoke(t.Context(), invoke(name, 0))
	if err != nil {
		t.Fatal(err)
	}
	var told struct{ Pid int }
	if err := json.Unmarshal(res.Payload, &told); err != nil {
		t.Fatal(err)
	}
	return told.Pid
}

// waitGone returns when no process has the id any more.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil && syscall.Kill(pid, 0) == syscall.ESRCH || bytes.Contains(stat, []byte(") Z ")) {
			return // a zombie is for its new parent to reap
		}
		<-tick.C
	}
	t.Errorf("process %d is still there", pid)
}

func TestCommand_IsEndedWithItsChildren(t *testing.T) {
	t.Run("when it is closed", func(t *testing.T) {
		h := play(t, "family")
		child := askPid(t, h, "child")
		h.Close()
		waitGone(t, child)
	})
	t.Run("when it dies by itself", func(t *testing.T) {
		h := play(t, "family")
		child := askPid(t, h, "child")
		if _, err := h.Invoke(t.Context(), invoke("die", 0)); err == nil {
			t.Error("a dead process has answered")
		}
		waitGone(t, child)
	})
}

func TestCommand_ThatListensToNothingIsKilled(t *testing.T) {
	h := play(t, "deaf")
	pid := askPid(t, h, "own")
	h.Close()
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("after Close its process is there: %v", err)
	}
}

func TestCommand_AnswersAboveSixteenMebibytes(t *testing.T) {
	h := play(t, "plain")
	res, err := h.Invoke(t.Context(), invoke("large", 0))
	if err != nil {
		t.Fatal(err)
	}
	if want := 17<<20 + len(`""`); len(res.Payload) != want {
		t.Errorf("%d bytes came back, want %d", len(res.Payload), want)
	}
}

func TestCommand_ThatEndsSaysHow(t *testing.T) {
	answer := `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"unknown"}}`
	for name, command := range map[string][]string{
		"before it has said anything": {os.Args[0]},
		// What is written to it next finds its input closed, before its output is.
		"when it has stopped to listen": {"/bin/sh", "-c", "read -r question; exec 0<&-; echo '" + answer + "'; sleep 0.1; exit 7"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := hosts.Command("far", command, &hosts.Options{Env: []string{asHost + "=ends"}, Grace: patience})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(h.Close)
			if _, err := h.List(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 7") {
				t.Errorf("error %v, want its exit status", err)
			}
		})
	}
}

// closedWriter takes nothing.
type closedWriter struct{}

func (closedWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestCommand_IsNotHeldUpByWhoReadsItsErrors(t *testing.T) {
	h, err := hosts.Command("far", []string{"/bin/sh", "-c", "head -c 1000000 /dev/zero >&2; exec " + os.Args[0]},
		&hosts.Options{Env: []string{asHost + "=plain"}, Stderr: closedWriter{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if _, err := h.List(t.Context()); err != nil {
		t.Error(err)
	}
}
