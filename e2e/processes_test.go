package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

// 8 gateways on one log: 64 identical calls are one effect, and 10,000 different ones are 10,000.
func TestProcesses_shareOneLog(t *testing.T) {
	const gateways, identical = 8, 64
	different := 10_000
	if testing.Short() {
		different = 1_000
	}
	w := newWorld(t)
	w.server = append(w.server, "--no-sync")
	agents := make([]*mcptest.Stdio, gateways)
	var starting sync.WaitGroup
	for i := range agents {
		agents[i] = mcptest.StartCommand(t, w.command(w.gatewayArgs("--name", "payments", "--heartbeat", "30s")...))
		starting.Go(func() {
			if _, err := agents[i].Do(t.Context(), `"init"`, mcptest.Request(`"init"`, "initialize",
				`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)); err != nil {
				t.Error(err)
			}
			if err := agents[i].Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()

	answers := makeAll(t, agents, identical, func(int) string { return mcptest.ToolParams("charge", charge10, `"idempotencyKey":"k"`) })
	for _, m := range answers {
		if m.Error != nil {
			t.Errorf("identical call failed: %s", m.Raw)
		}
	}
	w.wantEffects("charge", 1)

	answers = makeAll(t, agents, different, func(i int) string {
		return mcptest.ToolParams("append_note", fmt.Sprintf(`{"text":"n%d"}`, i), "")
	})
	failed := 0
	for _, m := range answers {
		if m.Error != nil {
			if failed++; failed < 5 {
				t.Errorf("call failed: %s", m.Raw)
			}
		}
	}
	seen := map[string]int{}
	for _, e := range w.entries("append_note") {
		var a struct{ Text string }
		if err := json.Unmarshal(e.Arguments, &a); err != nil {
			t.Fatal(err)
		}
		seen[a.Text]++
	}
	for i := range different {
		if n := seen[fmt.Sprintf("n%d", i)]; n != 1 {
			t.Errorf("note %d took effect %d times", i, n)
		}
	}
	if got := len(w.log("--tool", "append_note")); got != different {
		t.Errorf("the log has %d of %d effects", got, different)
	}
	for _, a := range agents {
		for line := range strings.Lines(a.Stderr()) {
			if strings.Contains(line, "database is locked") && !strings.Contains(line, "for 30s") { // nobody waits for longer
				t.Errorf("a gateway said: %s", line)
			}
		}
	}
}

// makeAll is callAll, and makes those calls again that were not made: so it goes on a machine so busy that the others
// have the log for as long as one waits.
func makeAll(t *testing.T, agents []*mcptest.Stdio, n int, params func(i int) string) []mcptest.Message {
	t.Helper()
	answers := callAll(t, agents, n, params)
	for i := range answers {
		for try := 0; answers[i].Error != nil && try < 20; try++ {
			if outcome, _ := outcomeOf(t, answers[i]); outcome != "unavailable" {
				break
			}
			id := fmt.Sprintf(`"%d, try %d"`, i, try)
			m, err := agents[0].Do(t.Context(), id, mcptest.Request(id, "tools/call", params(i)))
			if err != nil {
				t.Fatal(err)
			}
			answers[i] = m
		}
	}
	return answers
}

// callAll spreads n calls over the agents, eight of each under way at a time, and returns the answers.
func callAll(t *testing.T, agents []*mcptest.Stdio, n int, params func(i int) string) []mcptest.Message {
	answers := make([]mcptest.Message, n)
	next := make(chan int)
	var workers sync.WaitGroup
	for _, a := range agents {
		for range 8 {
			workers.Go(func() {
				for i := range next {
					id := fmt.Sprint(n + i)
					m, err := a.Do(t.Context(), id, mcptest.Request(id, "tools/call", params(i)))
					if err != nil {
						t.Errorf("call %d: %v", i, err)
					}
					answers[i] = m
				}
			})
		}
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return answers
}
