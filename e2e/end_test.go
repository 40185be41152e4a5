package e2e_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/internal/mcptest"
)

// A gateway that is told to end awaits what it has claimed, records it, and takes its server with it.
func TestEnd_drainsOnSIGTERM(t *testing.T) {
	w := newWorld(t)
	hold := w.dir + "/go"
	w.faults(faults.Set{"charge": {WaitAfter: hold, Times: 1}})
	agent := w.agent()
	agent.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	w.awaitEffects("charge", 1)
	agent.Signal(syscall.SIGTERM)
	touch(t, hold)
	if code := agent.Wait(); code != 0 {
		t.Errorf("the gateway exited with %d", code)
	}
	if e := w.only("charge"); e.State != "committed" {
		t.Errorf("state = %s, want committed", e.State)
	}
	w.eventually("the server to be gone", func() bool { return !serverRuns(w) })
}

// What is not answered within --drain is in doubt, and the gateway ends all the same.
func TestEnd_drainIsBounded(t *testing.T) {
	w := newWorld(t)
	w.faults(faults.Set{"charge": {After: faults.Drop}})
	agent := w.agent("--drain", "200ms")
	agent.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	w.awaitEffects("charge", 1)
	agent.CloseStdin()
	agent.Wait()
	w.eventually("the effect to be in doubt", func() bool { return w.only("charge").State == "in_doubt" })
	w.eventually("the server to be gone", func() bool { return !serverRuns(w) })
	wantOutcome(t, w.agent().Call("2", "charge", charge10), "in_doubt")
	w.wantEffects("charge", 1)
}

// An upstream that cannot be started, a log that cannot be opened: said in a sentence, with exit code 1.
func TestEnd_startUpErrors(t *testing.T) {
	w := newWorld(t)
	for name, args := range map[string][]string{
		"no such program":   {"gateway", "--", "no-such-program-anywhere"},
		"no such policy":    {"gateway", "--policy", "/nowhere/policy.yaml", "--", "true"},
		"log is a folder":   {"--db", w.dir, "log"},
		"log is not SQLite": {"--db", w.notSQLite(), "log"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := w.command(args...)
			cmd.Stdin = nil
			out, err := cmd.CombinedOutput()
			if err == nil || cmd.ProcessState.ExitCode() != 1 || len(out) == 0 {
				t.Errorf("%v: %v, exit code %d, said %s", args, err, cmd.ProcessState.ExitCode(), out)
			}
		})
	}
	for name, args := range map[string][]string{
		"no server named":      {"gateway"},
		"two servers named":    {"gateway", "--upstream", "http://127.0.0.1:1", "--", "true"},
		"open to the network":  {"gateway", "--http", "0.0.0.0:0", "--", "true"},
		"unknown flag":         {"log", "--no-such-flag"},
		"resolve says nothing": {"resolve", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := w.command(args...)
			out, _ := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != 2 {
				t.Errorf("%v: exit code %d, want 2: %s", args, cmd.ProcessState.ExitCode(), out)
			}
		})
	}
	cmd := w.command("show", "0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42")
	if _, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("show of nothing: exit code %d, want 3", cmd.ProcessState.ExitCode())
	}
}

// An interceptor server that is told to end still answers the invocations that it has begun: an engine
// that gets no answer does not dispatch, and the claim that was made for it would be in doubt.
func TestEnd_serveAnswersWhatIsUnderWay(t *testing.T) {
	w := newWorld(t)
	cmd := w.command("serve", "--http", "127.0.0.1:0", "--join-wait", "1s")
	engine := &mcptest.HTTP{URL: mcptest.StartHTTP(t, cmd), Version: "2026-07-28"}
	older := &mcptest.HTTP{URL: engine.URL}
	older.Initialize(t, protocol)
	stream, err := older.Listen(t.Context()) // which does not hold the end up
	if err != nil || stream.Status != http.StatusOK {
		t.Fatalf("listen: %v, status %d", err, stream.Status)
	}
	defer stream.Close()
	invoke := func(ctx context.Context, engine *mcptest.HTTP, id string) (mcptest.Message, error) {
		params := `{"name":"undolog/effect","event":"tools/call","phase":"request","payload":{"name":"charge","arguments":` + charge10 + `},` +
			`"context":{"principal":{"type":"service","id":"agent:a"}},"_meta":{` + mcptest.MetaMembers + `}}`
		return engine.Do(ctx, id, mcptest.Request(id, "interceptor/invoke", params))
	}
	if m, err := invoke(t.Context(), engine, "1"); err != nil || m.Result == nil {
		t.Fatalf("the first call: %s, %v", m.Raw, err)
	}
	// On a connection of its own: one that has answered counts as idle until the server has read what it brings.
	own := func() *mcptest.HTTP {
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		return &mcptest.HTTP{URL: engine.URL, Version: engine.Version, Client: &http.Client{Transport: transport}}
	}
	sent := make(chan struct{})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) }})
	type answer struct {
		m   mcptest.Message
		err error
	}
	joined := make(chan answer, 1)
	go func() {
		m, err := invoke(ctx, own(), "2")
		joined <- answer{m, err}
	}()
	<-sent
	// The server has taken that one when it has answered on one that came later.
	if _, err := own().Do(t.Context(), "3", mcptest.Request("3", "interceptors/list", `{"_meta":{`+mcptest.MetaMembers+`}}`)); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections() // one that was never used keeps a server waiting for 5 s
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	a := <-joined
	if a.err != nil {
		t.Fatalf("the call under way was not answered: %v", a.err)
	}
	wantOutcome(t, a.m, "in_progress")
	if m, err := stream.Next(); err == nil {
		t.Errorf("the session's stream said %s", m.Raw)
	}
}

func (w *world) notSQLite() string {
	path := w.dir + "/text"
	if err := os.WriteFile(path, []byte("this is not a database, and it is long enough to have a header of one"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// What stands in a command line or a URL is not told to logs, agents or the record.
func TestEnd_secretsAreNotShown(t *testing.T) {
	const canary = "sk-canary-4711"
	w := newWorld(t)
	for name, args := range map[string][]string{
		"a command's arguments": {"--", "/nowhere/server", "--api-key=" + canary},
		"a URL's query":         {"--upstream", "http://127.0.0.1:1/mcp?api_key=" + canary},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := w.command(append([]string{"--log-level", "debug", "gateway", "--drain", "0s"}, args...)...)
			cmd.Stdin = strings.NewReader(mcptest.Request("1", "initialize", `{"protocolVersion":"2025-11-25"}`) + "\n" +
				mcptest.ToolCall("2", "charge", charge10, "") + "\n")
			out, _ := cmd.CombinedOutput() // it fails, and says so
			if len(out) == 0 || strings.Contains(string(out), canary) {
				t.Errorf("%v said:\n%s", args, out)
			}
		})
	}
	if data, err := os.ReadFile(w.db); err == nil && bytes.Contains(data, []byte(canary)) {
		t.Error("the log holds it")
	}
}
