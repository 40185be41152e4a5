package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/internal/mcptest"
)

// The forty thousandth replay is the recorded answer still, costs what the first one cost, and what
// `undolog show` prints stays readable.
func TestReplays_fortyThousand(t *testing.T) {
	replays := 40_000
	if testing.Short() {
		replays = 5_000
	}
	const chunk, window, sample = 200, 5, 2000
	w := newWorld(t)
	agent := w.agent()
	params := mcptest.ToolParams("charge", charge10, `"idempotencyKey":"k"`)
	first, err := agent.Do(t.Context(), "1", mcptest.Request("1", "tools/call", params))
	if err != nil {
		t.Fatal(err)
	}
	calls := func(params string) (answers []mcptest.Message, took time.Duration) {
		begun := time.Now()
		answers = callAll(t, []*mcptest.Stdio{agent}, chunk, func(int) string { return params })
		return answers, time.Since(begun)
	}
	var costs []float64 // of a replay, in reads: whatever else the machine does slows both down
	for made := chunk; made <= replays; made += chunk {
		answers, took := calls(params)
		for _, again := range answers {
			wantReplay(t, first, again)
		}
		if t.Failed() {
			t.FailNow()
		}
		if made > window*chunk && made <= replays-window*chunk && made%sample != 0 {
			continue // measured are the first, the last, and some between
		}
		_, reads := calls(mcptest.ToolParams("list_charges", `{}`, ""))
		costs = append(costs, took.Seconds()/reads.Seconds())
		if n := len(costs); slices.Min(costs[max(0, n-window):]) > 8*slices.Min(costs[:min(n, window)]) {
			t.Fatalf("after %d replays one of them costs as much as so many reads: %.2f", made, costs)
		}
	}
	w.wantEffects("charge", 1)
	agent.CloseStdin()
	agent.Wait()
	shown := w.ran("show", w.only("charge").ID)
	if n := len(strings.Split(shown, "\n")); n > 100 {
		t.Errorf("show prints %d lines", n)
	}
	if want := fmt.Sprintf("%d times", replays); !strings.Contains(shown, want) {
		t.Errorf("show does not say %q:\n%s", want, shown)
	}
}
