package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/drivertest"
	"github.com/undolog/undolog/store/sqlite"
)

// childEnv names what a copy of the test binary does instead of testing.
const childEnv = "UNDOLOG_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "sharer":
		exitWith(runSharer(os.Args[1], os.Args[2]))
	case "writer":
		exitWith(runWriter(os.Args[1], os.Args[2]))
	case "approver":
		exitWith(runApprover(os.Args[1], os.Args[2]))
	case "decider":
		exitWith(runDecider(os.Args[1], os.Args[2]))
	}
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const (
	sharers   = 8
	identical = 64
)

// shared is what a sharer reports after each of its two parts.
type shared struct {
	Claims, Joins, Done int
	Errors              []string
}

// Eight processes on one file: of 64 identical calls one is claimed, thousands of different ones all run,
// and nobody ever hears that the file is locked.
func TestProcesses_ShareOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	different := drivertest.Scale(10_000) / sharers * sharers
	children := make([]*child, sharers)
	for i := range children {
		children[i] = startChild(t, "sharer", path, fmt.Sprint(i))
	}
	var total shared
	for _, each := range []int{identical / sharers, different / sharers} {
		for _, c := range children {
			c.send(t, fmt.Sprintln(each))
		}
		for _, c := range children {
			var report shared
			if err := json.Unmarshal(c.line(t), &report); err != nil {
				t.Fatal(err)
			}
			for _, e := range report.Errors {
				t.Error(e)
			}
			total.Claims, total.Joins, total.Done = total.Claims+report.Claims, total.Joins+report.Joins, total.Done+report.Done
		}
	}
	for _, c := range children {
		c.wait(t)
	}
	if total.Claims != 1 || total.Joins != identical-1 || total.Done != different {
		t.Errorf("%d claims, %d joins and %d effects done; want 1, %d and %d", total.Claims, total.Joins, total.Done, identical-1, different)
	}
	l := openLog(t, path)
	records, err := l.List(t.Context(), &store.Filter{Tenant: "default", Limit: 20_000, States: []effect.State{effect.StateCommitted}})
	if err != nil || len(records) != different {
		t.Errorf("%d effects committed, want %d (%v)", len(records), different, err)
	}
	assertIntact(t, path)
}

func runSharer(path, name string) error {
	d, err := sqlite.Open(context.Background(), path, nil)
	if err != nil {
		return err
	}
	l, err := store.Open(d, nil)
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	for _, part := range []func(n int) shared{
		func(n int) shared { return beginIdentical(l, n) },
		func(n int) shared { return runDifferent(l, name, n) },
	} {
		var n int // how many calls, which is also the start
		if _, err := fmt.Fscanln(in, &n); err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(part(n)); err != nil {
			return err
		}
	}
	return l.Close()
}

// counter gathers what the callers of one sharer saw.
type counter struct {
	mu sync.Mutex
	shared
}

func (c *counter) add(see func(*shared)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	see(&c.shared)
}

func beginIdentical(l *store.Log, n int) shared {
	var c counter
	share(n, n, func(int) {
		p, err := childParams(`{"same":true}`)
		if err != nil {
			c.add(func(s *shared) { s.Errors = append(s.Errors, err.Error()) })
			return
		}
		begun, err := l.Begin(context.Background(), p)
		c.add(func(s *shared) {
			switch {
			case err != nil:
				s.Errors = append(s.Errors, err.Error())
			case begun.Claim != nil:
				s.Claims++
			case begun.Verdict.Action == effect.ActJoin:
				s.Joins++
			}
		})
	})
	return c.shared
}

func runDifferent(l *store.Log, name string, n int) shared {
	var c counter
	share(n, 8, func(i int) {
		_, err := runOne(l, fmt.Sprintf(`{"process":%q,"n":%d}`, name, i))
		c.add(func(s *shared) {
			if err != nil {
				s.Errors = append(s.Errors, err.Error())
				return
			}
			s.Done++
		})
	})
	return c.shared
}

func childParams(arguments string) (*store.BeginParams, error) {
	call := &effect.Call{Principal: "agent:a", Server: "payments", Tool: "charge", Arguments: []byte(arguments)}
	id, err := irreversible.Identify(call)
	return &store.BeginParams{Call: call, Identity: id, Contract: irreversible}, err
}

// runOne is one whole effect; it returns its id once it is acknowledged.
func runOne(l *store.Log, arguments string) (string, error) {
	p, err := childParams(arguments)
	if err != nil {
		return "", err
	}
	begun, err := l.Begin(context.Background(), p)
	if err != nil {
		return "", err
	}
	if begun.Claim == nil {
		return "", fmt.Errorf("begin = %s: %s", begun.Verdict.Action, begun.Verdict.Reason)
	}
	r, err := l.Settle(context.Background(), *begun.Claim, irreversible, answer)
	if err != nil {
		return "", err
	}
	return r.ID, nil
}

// A process that is killed at any moment leaves a whole file, and everything it was told is recorded is.
func TestProcesses_KilledWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	acknowledged := map[string]bool{}
	for round := range max(3, drivertest.Scale(20)) {
		c := startChild(t, "writer", path, fmt.Sprint(round))
		survivor := openLog(t, path) // another process's log that goes on meanwhile
		for range 1 + rand.IntN(60) {
			acknowledged[string(c.line(t))] = true
		}
		c.kill(t)
		for rest := bufio.NewScanner(c.out); rest.Scan(); { // said before it died
			acknowledged[rest.Text()] = true
		}
		if _, err := runOne(survivor, fmt.Sprintf(`{"survivor":%d}`, round)); err != nil {
			t.Fatalf("round %d: the survivor cannot write: %v", round, err)
		}
		assertIntact(t, path)
	}
	l := openLog(t, path)
	for id := range acknowledged {
		if len(id) != 36 {
			continue // the last line was cut off by the kill
		}
		s, err := l.Show(t.Context(), "default", id)
		if err != nil {
			t.Fatal(err)
		}
		if s.Record.State != effect.StateCommitted || string(s.Record.Answer.Body) != string(answer.Answer.Body) {
			t.Errorf("effect %s is %s", id, s.Record.State)
		}
	}
}

// runWriter writes effects until it is killed and says which are recorded.
func runWriter(path, round string) error {
	d, err := sqlite.Open(context.Background(), path, nil)
	if err != nil {
		return err
	}
	l, err := store.Open(d, nil)
	if err != nil {
		return err
	}
	share(1_000_000, 4, func(i int) {
		id, err := runOne(l, fmt.Sprintf(`{"round":%q,"n":%d}`, round, i))
		if err == nil {
			_, err = os.Stdout.WriteString(id + "\n")
		}
		if err != nil {
			exitWith(err)
		}
	})
	return nil
}

func assertIntact(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
		t.Fatalf("integrity_check: %s, %v", verdict, err)
	}
}

// child is a copy of the test binary at work.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(t *testing.T, role, path, name string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, path, name)
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil { // the test failed before it ended
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return &child{cmd: cmd, in: in, out: bufio.NewReader(out)}
}

func (c *child) send(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c.in, line); err != nil {
		t.Fatal(err)
	}
}

func (c *child) line(t *testing.T) []byte {
	t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line[:len(line)-1]
}

func (c *child) wait(t *testing.T) {
	t.Helper()
	if err := c.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// kill sends SIGKILL. What the child had written to its pipe can still be read.
func (c *child) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.cmd.Process.Wait(); err != nil {
		t.Fatal(err)
	}
}
