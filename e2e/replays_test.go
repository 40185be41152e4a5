package e2e_test

import (
	"fmt"
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
	const chunk = 200
	w := newWorld(t)
	agent := w.agent()
	params := mcptest.ToolParams("charge", charge10, `"idempotencyKey":"k"`)
	first, err := agent.Do(t.Context(), "1", mcptest.Request("1", "tools/call", params))
	if err != nil {
		t.Fatal(err)
	}
	took := make([]time.Duration, replays/chunk)
	for i := range took {
		begun := time.Now()
		answers := callAll(t, []*mcptest.Stdio{agent}, chunk, func(int) string { return params })
		took[i] = time.Since(begun)
		for _, again := range answers {
			wantReplay(t, first, again)
		}
		if t.Failed() {
			t.FailNow()
		}
		if early, late := fastest(took[:min(i+1, 5)]), fastest(took[max(0, i-4):i+1]); late > 8*early {
			t.Fatalf("after %d replays %d of them take %v, and took %v at first", (i+1)*chunk, chunk, late, early)
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

// fastest is the least disturbed of several measurements.
func fastest(took []time.Duration) time.Duration {
	best := took[0]
	for _, d := range took {
		best = min(best, d)
	}
	return best
}
