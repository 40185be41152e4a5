package e2e_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/internal/mcptest"
)

// crashPlaces are where the log is while gateways are killed, and how often each edge is tried there; make
// soak tries ten times as often.
var crashPlaces = []struct {
	name   string
	world  func(t testing.TB) *world
	rounds int
}{
	{"SQLite", func(t testing.TB) *world { return newWorld(t, "faults") }, 50},
	{"PostgreSQL", func(t testing.TB) *world { return newWorld(t, "faults").onPostgres() }, 3},
}

func soaking() bool { return os.Getenv("UNDOLOG_SOAK") != "" }

// The edges of one call at which the gateway is killed, as SIGKILL kills. in says in which states the
// effect may be found afterwards, per tier; "" is no record.
var edges = []struct {
	name    string
	effects int // at the tool, when the gateway has died
	state   string
}{
	{"before-begin", 0, ""},
	{"after-begin", 0, "in_doubt"},
	{"after-dispatch", -1, "in_doubt"}, // the tool may or may not have got to it
	{"after-effect", 1, "in_doubt"},
	{"after-answer", 1, "in_doubt"},
	{"after-settle", 1, "committed"},
}

func TestCrash_everyEdgeOfACall(t *testing.T) {
	for _, place := range crashPlaces {
		rounds := place.rounds
		if soaking() {
			rounds *= 10
		}
		for _, edge := range edges {
			t.Run(edge.name+" on "+place.name, func(t *testing.T) {
				t.Parallel()
				for round := range rounds {
					crashRound(place.world(t), edge.name, edge.effects, edge.state, round)
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}

// crashRound makes one irreversible and one idempotent call, each with a gateway that dies at the edge,
// and sends each again through a new one on the same log.
func crashRound(w *world, edge string, effects int, state string, round int) {
	for _, call := range []struct{ tool, arguments string }{
		{"charge", fmt.Sprintf(`{"account":"a%d","amount":10}`, round)},
		{"set_limit", fmt.Sprintf(`{"account":"a%d","limit":10}`, round)},
	} {
		w.dieAt(edge, call.tool, call.arguments)
		dead := w.effects(call.tool)
		if effects >= 0 && dead != effects {
			w.t.Errorf("%s: %d effects when the gateway died, want %d", call.tool, dead, effects)
		}
		if state != "" && call.tool == "charge" {
			w.eventually("the dead claim to show as "+state, func() bool { return w.only(call.tool).State == state })
		}
		w.sendAgain(edge, call.tool, call.arguments, state)
	}
}

// dieAt makes a call through a gateway that dies at the edge.
func (w *world) dieAt(edge, tool, arguments string) {
	w.t.Helper()
	w.faults(nil)
	kill := edge == "after-effect"
	cmd := w.command(w.gatewayArgs("--heartbeat", "300ms")...)
	if kill {
		w.faults(faults.Set{tool: {DelayAfterMs: 10_000, Times: 1}})
	} else {
		cmd.Env = append(os.Environ(), "UNDOLOG_FAULT="+edge)
	}
	before := w.effects(tool)
	agent := mcptest.StartCommand(w.t, cmd)
	agent.Initialize(protocol)
	if kill {
		w.untilEffect(before+1, onStdio(agent), tool, arguments, "")
		agent.Kill()
	} else {
		w.dieOf(onStdio(agent), tool, arguments, "")
		agent.Wait()
	}
	if edge == "after-dispatch" {
		w.settleServer(tool, before)
	}
	w.faults(nil)
}

// dieOf makes a call until the gateway has died of it: one whose claim ran out on a busy machine does not send it.
func (w *world) dieOf(call side, tool, arguments, meta string) {
	w.t.Helper()
	for id := 1; ; id++ {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		m, err := call(ctx, fmt.Sprint(id), tool, arguments, meta)
		cancel()
		if err != nil {
			return // it has died, or does not answer
		}
		w.wantUnsent(m)
	}
}

// untilEffect makes a call until the tool has had n effects, and returns how to await the answer of the one that had
// the last: one whose claim ran out on a busy machine is not sent.
func (w *world) untilEffect(n int, call side, tool, arguments, meta string) <-chan told {
	w.t.Helper()
	for id := 1; ; id++ {
		answered := call.later(w.t, fmt.Sprint(id), tool, arguments, meta)
		w.eventually("the call to take effect", func() bool { return w.effects(tool) >= n || len(answered) > 0 })
		if w.effects(tool) >= n {
			return answered
		}
		got := <-answered
		if got.err != nil {
			w.t.Fatalf("call %d: %v", id, got.err)
		}
		w.wantUnsent(got.m)
	}
}

// wantUnsent fails unless the answer says that the call was not sent because its claim might have run out.
func (w *world) wantUnsent(m mcptest.Message) {
	w.t.Helper()
	if m.Error == nil {
		w.t.Fatalf("the gateway lives, and answers %s", m.Raw)
	}
	if outcome, reason := outcomeOf(w.t, m); outcome != "unavailable" {
		w.t.Fatalf("the gateway lives, and answers %s: %s", outcome, reason)
	}
}

// settleServer gives a payments server that has lost its gateway the time to act on what it was sent.
func (w *world) settleServer(tool string, before int) {
	w.t.Helper()
	w.eventually("the orphaned server to end", func() bool { return w.effects(tool) > before || !serverRuns(w) })
}

// sendAgain sends the call through a new gateway and says what may come of it.
func (w *world) sendAgain(edge, tool, arguments, state string) {
	w.t.Helper()
	before := w.effects(tool)
	agent := w.agent()
	m := agent.Call("2", tool, arguments)
	again := w.effects(tool)
	switch {
	case state == "committed" && tool == "charge": // settled: replayed
		if !replayed(w.t, m) || again != before {
			w.t.Errorf("%s at %s: not replayed (%d → %d effects): %s", tool, edge, before, again, m.Raw)
		}
	case state == "in_doubt" && tool == "charge": // irreversible: never silently run
		wantOutcome(w.t, m, "in_doubt")
		if again != before || again > 1 {
			w.t.Errorf("%s at %s: run again although in doubt (%d → %d)", tool, edge, before, again)
		}
	case state == "": // nothing recorded: it runs
		if m.Error != nil || again != 1 {
			w.t.Errorf("%s at %s: nothing was recorded and it did not run: %s", tool, edge, m.Raw)
		}
	default: // idempotent: it runs, or is replayed where it was settled
		if m.Error != nil {
			w.t.Errorf("%s at %s: the idempotent call did not run: %s", tool, edge, m.Raw)
		}
	}
	agent.CloseStdin()
	agent.Wait()
}

// Killed between dispatch and record; then a person settles it, both ways.
func TestCrash_aPersonSettlesWhatWasLost(t *testing.T) {
	t.Run("it took effect", func(t *testing.T) {
		w := newWorld(t, "faults")
		w.dieAt("after-answer", "charge", charge10)
		id := w.lost(t)
		w.ran("resolve", id, "--committed", "--reason", "it is in the ledger")
		if m := w.agent().Call("1", "charge", charge10); !replayed(t, m) {
			t.Errorf("not answered from the record: %s", m.Raw)
		}
		w.wantEffects("charge", 1)
	})
	t.Run("it did not", func(t *testing.T) {
		w := newWorld(t, "faults")
		w.dieAt("after-begin", "charge", charge10)
		id := w.lost(t)
		w.ran("resolve", id, "--not-applied", "--reason", "no such charge")
		if m := w.agent().Call("1", "charge", charge10); m.Error != nil || replayed(t, m) {
			t.Errorf("did not run: %s", m.Raw)
		}
		w.wantEffects("charge", 1)
	})
}

// lost waits for the one effect in doubt and returns its id.
func (w *world) lost(t *testing.T) string {
	t.Helper()
	w.eventually("the effect to be in doubt", func() bool { return w.only("charge").State == "in_doubt" })
	if pending := w.ran("pending", "--json"); len(pending) == 0 {
		t.Error("undolog pending does not list it")
	}
	return w.only("charge").ID
}
