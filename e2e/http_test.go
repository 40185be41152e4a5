package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/internal/mcptest"
)

var listening = regexp.MustCompile(`listening on (http://\S+)`)

// serveHTTP starts a gateway (or another command) that says where it listens, and returns the URL.
func (w *world) serveHTTP(cmd *exec.Cmd) string {
	w.t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	urls := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				urls <- m[1]
			}
		}
	}()
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // an error says that it has ended
		<-done
		_ = cmd.Wait()
	})
	select {
	case url := <-urls:
		return url
	case <-done:
		w.t.Fatalf("%v ended before it listened", cmd.Args)
	}
	return ""
}

// generations are both generations of the protocol over HTTP.
var generations = map[string]func(t *testing.T, url string) *mcptest.HTTP{
	"2025-11-25": func(t *testing.T, url string) *mcptest.HTTP {
		c := &mcptest.HTTP{URL: url}
		c.Initialize(t, "2025-11-25")
		return c
	},
	"2026-07-28": func(_ *testing.T, url string) *mcptest.HTTP {
		return &mcptest.HTTP{URL: url, Version: "2026-07-28"}
	},
}

func (w *world) httpGateway(flags ...string) string {
	return w.serveHTTP(w.command(w.gatewayArgs(append([]string{"--http", "127.0.0.1:0"}, flags...)...)...))
}

// The response stream breaks after the tool committed; the client sends the call anew.
func TestHTTP_brokenStream(t *testing.T) {
	for name, connect := range generations {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			hold := w.dir + "/go"
			w.faults(faults.Set{"charge": {WaitAfter: hold, Times: 1}})
			url := w.httpGateway()
			first := connect(t, url)
			ctx, cut := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := first.Call(ctx, "1", "charge", charge10)
				failed <- err
			}()
			w.awaitEffects("charge", 1)
			cut()
			if err := <-failed; err == nil {
				t.Fatal("the cut call got an answer")
			}
			touch(t, hold)
			w.eventually("the outcome to be recorded", func() bool { return w.only("charge").State == "committed" })

			m, err := connect(t, url).Call(t.Context(), "2", "charge", charge10)
			if err != nil || !replayed(t, m) {
				t.Errorf("not replayed: %s (%v)", m.Raw, err)
			}
			w.wantEffects("charge", 1)
			if r, err := m.Tool(); err != nil || len(r.Content) != 1 {
				t.Errorf("the replay of an answer that never arrived says more than was recorded: %s", m.Raw)
			}
		})
	}
}

// The key in a header, on to the target.
func TestHTTP_keyInAHeader(t *testing.T) {
	for name, connect := range generations {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := connect(t, w.httpGateway())
			c.Header = http.Header{"Idempotency-Key": {"order-9"}}
			for i := range 3 {
				if _, err := c.Call(t.Context(), fmt.Sprint(i+1), "charge", charge10); err != nil {
					t.Fatal(err)
				}
			}
			w.wantEffects("charge", 1)
			if got := w.entries("charge")[0].Key; got != "order-9" {
				t.Errorf("the target got the key %q", got)
			}
			meta := `"idempotencyKey":"order-8"`
			if name == "2026-07-28" {
				meta += "," + mcptest.MetaMembers
			}
			params := mcptest.ToolParams("charge", charge10, meta)
			m, err := c.Do(t.Context(), "4", mcptest.Request("4", "tools/call", params))
			if err != nil {
				t.Fatal(err)
			}
			wantOutcome(t, m, "invalid")
			if _, reason := outcomeOf(t, m); !strings.Contains(reason, "idempotencyKey") || !strings.Contains(reason, "Idempotency-Key") {
				t.Errorf("two keys are refused without naming both: %s", reason)
			}
			w.wantEffects("charge", 1)
		})
	}
}

// A run handle in a header.
func TestHTTP_runInAHeader(t *testing.T) {
	w := newWorld(t)
	c := &mcptest.HTTP{URL: w.httpGateway(), Version: "2026-07-28", Header: http.Header{"X-Undolog-Session-Id": {"run-1"}}}
	for i := range 2 {
		if _, err := c.Call(t.Context(), fmt.Sprint(i), "charge", charge10); err != nil {
			t.Fatal(err)
		}
	}
	c.Header = http.Header{"X-Undolog-Session-Id": {"run-2"}}
	if _, err := c.Call(t.Context(), "3", "charge", charge10); err != nil {
		t.Fatal(err)
	}
	w.wantEffects("charge", 2)
}

// Two tenants and two principals share nothing but the server.
func TestHTTP_tenantsAreSeparate(t *testing.T) {
	w := newWorld(t)
	tokens := filepath.Join(w.dir, "tokens.yaml")
	list := `- {token: aaaaaaaaaaaaaaaaaaaa, tenant: acme, principal: alice}
- {token: bbbbbbbbbbbbbbbbbbbb, tenant: bolt, principal: alice}
- {token: cccccccccccccccccccc, tenant: acme, principal: carol}
`
	if err := os.WriteFile(tokens, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	url := w.httpGateway("--tokens", tokens)
	call := func(token, id, meta string) mcptest.Message {
		c := &mcptest.HTTP{URL: url, Version: "2026-07-28", Header: http.Header{"Authorization": {"Bearer " + strings.Repeat(token, 20)}}}
		m, err := c.Do(t.Context(), id, mcptest.ToolCall(id, "charge", charge10, mcptest.MetaMembers+meta))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	key := `,"idempotencyKey":"same"`
	call("a", "1", key)
	call("b", "2", key) // another tenant: another call
	w.wantEffects("charge", 2)
	m := call("c", "3", key) // another principal of the tenant: a conflict that reveals nothing
	wantOutcome(t, m, "conflict")
	if id := w.log("--tenant", "acme")[0].ID; strings.Contains(string(m.Raw), id) || strings.Contains(string(m.Raw), "alice") {
		t.Errorf("the conflict reveals the other's call: %s", m.Raw)
	}
	w.wantEffects("charge", 2)
	if !replayed(t, call("a", "4", key)) {
		t.Error("its own principal is not answered from the record")
	}
	for tenant, n := range map[string]int{"acme": 1, "bolt": 1, "default": 0} {
		if got := len(w.log("--tenant", tenant)); got != n {
			t.Errorf("tenant %s sees %d effects, want %d", tenant, got, n)
		}
	}

	// One tenant's failing calls leave the other's alone.
	w.faults(faults.Set{"refund": {After: faults.RPCError}})
	for i := range 5 {
		c := &mcptest.HTTP{URL: url, Version: "2026-07-28", Header: http.Header{"Authorization": {"Bearer " + strings.Repeat("b", 20)}}}
		if _, err := c.Call(t.Context(), fmt.Sprint(100+i), "refund", fmt.Sprintf(`{"charge":"ch_1","amount":%d}`, i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if m := call("a", "5", ""); m.Error != nil {
		t.Errorf("the other tenant's call failed: %s", m.Raw)
	}
	c := &mcptest.HTTP{URL: url, Version: "2026-07-28"}
	stream, err := c.Post(t.Context(), mcptest.ToolCall("9", "charge", charge10, mcptest.MetaMembers))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if stream.Status != http.StatusUnauthorized {
		t.Errorf("a call without a token got %d, want 401", stream.Status)
	}
}

// An HTTP upstream: the same promises, and a dropped connection never sends a call twice.
func TestHTTP_upstream(t *testing.T) {
	for _, client := range []string{"stdio", "http"} {
		t.Run(client, func(t *testing.T) {
			w := newWorld(t)
			server := exec.Command(w.server[0], append(w.server[1:], "--http", "127.0.0.1:0")...)
			upstream := mcptest.StartHTTP(t, server)
			args := []string{"gateway", "--upstream", upstream}
			call := w.stdioCaller(t, args)
			if client == "http" {
				url := w.serveHTTP(w.command(append(args, "--http", "127.0.0.1:0")...))
				call = httpCaller(t, url)
			}
			first := call("1", "charge", charge10, `"idempotencyKey":"k"`)
			wantReplay(t, first, call("2", "charge", charge10, `"idempotencyKey":"k"`))
			w.wantEffects("charge", 1)
			if replayed(t, call("3", "toggle", `{}`, "")) || replayed(t, call("4", "toggle", `{}`, "")) {
				t.Error("a wanted toggle was replayed")
			}
			w.wantEffects("toggle", 2)

			w.faults(faults.Set{"refund": {After: faults.Kill}})
			wantOutcome(t, call("5", "refund", `{"charge":"ch_1","amount":1}`, ""), "in_doubt")
			w.wantEffects("refund", 1)
			m := call("6", "append_note", `{"text":"x"}`, "") // nobody listens any more: proof that nothing was sent
			wantOutcome(t, m, "unavailable")
			if e := w.only("append_note"); e.State != "released" {
				t.Errorf("state of a call that was never sent = %s, want released", e.State)
			}
		})
	}
}

type caller func(id, tool, arguments, meta string) mcptest.Message

func (w *world) stdioCaller(t *testing.T, args []string) caller {
	agent := mcptest.StartCommand(t, w.command(args...))
	agent.Initialize(protocol)
	return func(id, tool, arguments, meta string) mcptest.Message {
		m, err := agent.Do(t.Context(), id, mcptest.ToolCall(id, tool, arguments, meta))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

func httpCaller(t *testing.T, url string) caller {
	c := &mcptest.HTTP{URL: url}
	c.Initialize(t, protocol)
	return func(id, tool, arguments, meta string) mcptest.Message {
		m, err := c.Do(t.Context(), id, mcptest.ToolCall(id, tool, arguments, meta))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

func statelessCaller(t *testing.T, url string) caller {
	c := &mcptest.HTTP{URL: url, Version: "2026-07-28"}
	return func(id, tool, arguments, meta string) mcptest.Message {
		if meta != "" {
			meta = "," + meta
		}
		m, err := c.Do(t.Context(), id, mcptest.ToolCall(id, tool, arguments, mcptest.MetaMembers+meta))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}
