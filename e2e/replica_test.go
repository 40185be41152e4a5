package e2e_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
	"github.com/undolog/undolog/internal/pgtest"
)

// onPostgres moves the world's log into a database of its own.
func (w *world) onPostgres() *world {
	w.t.Helper()
	w.db = pgtest.New(w.t).URL
	return w
}

// replica is one of the programs that share a log.
type replica struct {
	cmd    *exec.Cmd
	url    string // of agents, or invokers
	admin  string
	exited chan struct{}
}

var adminAt = regexp.MustCompile(`health and metrics at (http://\S+)`)

// startReplica starts a program that serves HTTP and has an admin address.
func (w *world) startReplica(cmd *exec.Cmd) *replica {
	w.t.Helper()
	var out lockedOutput
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	r := &replica{cmd: cmd, exited: make(chan struct{})}
	go func() {
		defer close(r.exited)
		_ = cmd.Wait() // some are killed
	}()
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // an error says that it has ended
		<-r.exited
		if w.t.Failed() {
			w.t.Logf("%v said:\n%s", cmd.Args[1:], out.String())
		}
	})
	w.eventually("a replica to listen", func() bool { return listening.MatchString(out.String()) || r.hasExited() })
	if r.hasExited() {
		w.t.Fatalf("%v ended before it listened:\n%s", cmd.Args, out.String())
	}
	r.url = listening.FindStringSubmatch(out.String())[1]
	r.admin = adminAt.FindStringSubmatch(out.String())[1]
	return r
}

func (r *replica) hasExited() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

// get is the status and the body of one of the admin paths.
func (r *replica) get(t testing.TB, path string) (int, string) {
	t.Helper()
	res, err := http.Get(r.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// replicaFlags make the calls through every replica those of one caller to one server.
var replicaFlags = []string{"--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--name", "payments", "--principal", "agent:a"}

// gatewayReplica starts a gateway over HTTP with more environment, and flags.
func (w *world) gatewayReplica(env []string, flags ...string) *replica {
	w.t.Helper()
	cmd := w.command(w.gatewayArgs(append(replicaFlags, flags...)...)...)
	cmd.Env = append(os.Environ(), env...)
	return w.startReplica(cmd)
}

// side is a way to call tools.
type side func(ctx context.Context, id, tool, arguments, meta string) (mcptest.Message, error)

// through calls through a gateway, each call alone: no session ties a caller to it.
func through(r *replica) side {
	c := &mcptest.HTTP{URL: r.url, Version: "2026-07-28"}
	return func(ctx context.Context, id, tool, arguments, meta string) (mcptest.Message, error) {
		if meta != "" {
			meta = "," + meta
		}
		return c.Do(ctx, id, mcptest.ToolCall(id, tool, arguments, mcptest.MetaMembers+meta))
	}
}

// onStdio calls through a gateway on its standard streams.
func onStdio(agent *mcptest.Stdio) side {
	return func(ctx context.Context, id, tool, arguments, meta string) (mcptest.Message, error) {
		return agent.Do(ctx, id, mcptest.ToolCall(id, tool, arguments, meta))
	}
}

// told is what became of a call.
type told struct {
	m   mcptest.Message
	err error
}

// later makes a call while the test goes on.
func (s side) later(t testing.TB, id, tool, arguments, meta string) <-chan told {
	answered := make(chan told, 1)
	go func() {
		m, err := s(t.Context(), id, tool, arguments, meta)
		answered <- told{m, err}
	}()
	return answered
}

// sides starts gateways, and interceptor servers between which an engine changes with every invocation,
// and returns the ways through them.
func (w *world) sides(gateways, servers int) []side {
	w.t.Helper()
	var all []side
	for range gateways {
		all = append(all, through(w.gatewayReplica(nil)))
	}
	e := &engine{principal: "agent:a", server: "payments"}
	for range servers {
		r := w.startReplica(w.command("serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"))
		e.hosts = append(e.hosts, &mcptest.HTTP{URL: r.url, Version: "2026-07-28"})
		all = append(all, e.call)
	}
	tools := exec.Command(w.server[0], append(w.server[1:], "--http", "127.0.0.1:0")...)
	e.tools = &mcptest.HTTP{URL: mcptest.StartHTTP(w.t, tools), Version: "2026-07-28"}
	return all
}

// allAtOnce makes one call from every side n times at once, and returns the answers.
func allAtOnce(t *testing.T, sides []side, n int, call func(s side, i int) (mcptest.Message, error)) []mcptest.Message {
	t.Helper()
	answers := make([]mcptest.Message, len(sides)*n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			<-start
			m, err := call(sides[i%len(sides)], i)
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
			answers[i] = m
		})
	}
	close(start)
	all.Wait()
	return answers
}
