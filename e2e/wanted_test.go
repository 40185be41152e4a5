package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

// Wanted calls are not swallowed.

func TestWanted_toggleTogglesEachTime(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	for i := range 6 {
		if m := agent.Call(fmt.Sprint(i), "toggle", `{}`); m.Error != nil || replayed(t, m) {
			t.Fatalf("toggle %d was not run: %s", i+1, m.Raw)
		}
	}
	w.wantEffects("toggle", 6)
}

// An agent that is quicker with its next call than we are with noting that the last answer is out.
func TestWanted_toggleAsFastAsAnswersCome(t *testing.T) {
	const times = 200
	for name, connect := range map[string]func(*testing.T, *world) caller{
		"stdio":           func(t *testing.T, w *world) caller { return w.stdioCaller(t, w.gatewayArgs()) },
		"http":            func(t *testing.T, w *world) caller { return httpCaller(t, w.httpGateway()) },
		"http, stateless": func(t *testing.T, w *world) caller { return statelessCaller(t, w.httpGateway()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server = append(w.server, "--no-sync")
			call := connect(t, w)
			for i := range times {
				call(fmt.Sprint(i), "toggle", `{}`, "")
			}
			w.wantEffects("toggle", times)
		})
	}
}

func TestWanted_toggleFromAgentToAgent(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		agent := w.agent()
		if m := agent.Call("1", "toggle", `{}`); m.Error != nil || replayed(t, m) {
			t.Fatalf("toggle %d was not run: %s", i+1, m.Raw)
		}
		agent.CloseStdin()
		agent.Wait()
	}
	w.wantEffects("toggle", 3)
}

func TestWanted_thereBackThereAgain(t *testing.T) {
	for name, policy := range map[string]string{"without a policy": "", "with one that replays": allowAll + "\n    repeat: replay\n"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if policy != "" {
				w.withPolicy(policy)
			}
			agent := w.agent()
			for i, limit := range []string{"1", "2", "1", "2", "1"} {
				m := agent.Call(fmt.Sprint(i), "charge", `{"account":"alice","amount":`+limit+`}`)
				if m.Error != nil || replayed(t, m) {
					t.Fatalf("move %d was not made: %s", i+1, m.Raw)
				}
			}
			w.wantEffects("charge", 5)
		})
	}
}

func TestWanted_readWriteReadGivesTheNewContent(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	before := agent.Call("1", "list_charges", `{}`)
	agent.Call("2", "charge", charge10)
	after := agent.Call("3", "list_charges", `{}`)
	if string(before.Result) == string(after.Result) {
		t.Errorf("the second read gave the old content: %s", after.Result)
	}
	// A read under a key or a run is still a read.
	for i := range 2 {
		id := fmt.Sprint(10 + i)
		m, err := agent.Do(t.Context(), id, mcptest.ToolCall(id, "list_charges", `{}`, `"idempotencyKey":"k"`))
		if err != nil || replayed(t, m) {
			t.Errorf("a read was replayed: %s (%v)", m.Raw, err)
		}
		agent.Call(fmt.Sprint(20+i), "append_note", `{"text":"x"}`)
	}
	w.wantEffects("append_note", 2)
}

func TestWanted_idempotentRunsAgain(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	for i := range 3 {
		agent.Call(fmt.Sprint(i), "set_limit", `{"account":"alice","limit":5}`)
	}
	w.wantEffects("set_limit", 3)
}

func TestWanted_anApprovedRepeatRuns(t *testing.T) {
	w := newWorld(t).withPolicy(allowAll + "\n    repeat: ask\n")
	agent := w.agent("--hold", "0")
	agent.Call("1", "charge", charge10)
	first := w.only("charge").ID
	m := agent.Call("2", "charge", charge10)
	wantOutcome(t, m, "approval_required")
	w.wantEffects("charge", 1)
	if _, reason := outcomeOf(t, m); !strings.Contains(reason, first) {
		t.Errorf("the reason does not say what the call repeats: %s", reason)
	}
	w.ran("approve", w.pending()[0], "--reason", "a second parcel")
	if m := agent.Call("3", "charge", charge10); m.Error != nil || replayed(t, m) {
		t.Errorf("the approved repeat was not run: %s", m.Raw)
	}
	wantOutcome(t, agent.Call("4", "charge", charge10), "approval_required")
	w.wantEffects("charge", 2)
}

// A run that was allowed before anybody asked is used once.
func TestWanted_againLetsARepeatRun(t *testing.T) {
	w := newWorld(t).withPolicy(allowAll + "\n    repeat: ask\n")
	agent := w.agent("--hold", "0")
	agent.Call("1", "charge", charge10)
	w.ran("again", w.only("charge").ID, "--reason", "a second parcel")
	if m := agent.Call("2", "charge", charge10); m.Error != nil || replayed(t, m) {
		t.Errorf("the allowed repeat was not run: %s", m.Raw)
	}
	wantOutcome(t, agent.Call("3", "charge", charge10), "approval_required")
	w.wantEffects("charge", 2)
}

func TestWanted_replayedRepeatTellsTheModel(t *testing.T) {
	w := newWorld(t).withPolicy(allowAll + "\n    repeat: replay\n")
	agent := w.agent()
	agent.Call("1", "charge", charge10)
	m := agent.Call("2", "charge", charge10)
	r, err := m.Tool()
	if err != nil || len(r.Content) < 2 {
		t.Fatalf("want the recorded answer and a text for the model: %s (%v)", m.Raw, err)
	}
	text := r.Content[len(r.Content)-1].Text
	for _, want := range []string{"nothing was run", "undolog again " + w.only("charge").ID} {
		if !strings.Contains(text, want) {
			t.Errorf("text for the model %q lacks %q", text, want)
		}
	}
	w.wantEffects("charge", 1)
}

// Integers beyond 2^53 are stored, signed, shown and replayed exactly.
func TestWanted_bigIntegersAreExact(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	for i, amount := range []string{"9007199254740993", "9007199254740992", "1915883588174806058", "18446744073709551617", "18446744073709551618"} {
		id := fmt.Sprint(i)
		call := mcptest.ToolCall(id, "charge", `{"account":"a","amount":`+amount+`}`, `"dev.undolog/run":"r1"`)
		m, err := agent.Do(t.Context(), id, call)
		if err != nil || !strings.Contains(string(m.Result), `"amount":`+amount) {
			t.Fatalf("answer lost digits of %s: %s (%v)", amount, m.Raw, err)
		}
		again, err := agent.Do(t.Context(), id, call)
		if err != nil {
			t.Fatal(err)
		}
		wantReplay(t, m, again)
	}
	w.wantEffects("charge", 5)
	for i, e := range w.log("--tool", "charge") {
		want := w.entries("charge")[4-i].Arguments
		if string(e.Arguments) != string(want) {
			t.Errorf("logged arguments %s, the tool got %s", e.Arguments, want)
		}
	}
	shown := w.ran("show", w.log("--tool", "charge")[0].ID)
	if !strings.Contains(shown, `"amount":18446744073709551618`) {
		t.Errorf("show does not show the exact amount:\n%s", shown)
	}
}

// Odd strings are stored and replayed.
func TestWanted_oddStrings(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	for i, account := range []string{`a\u0000b`, `\ud83d\ude00 \uff20`, `\u2028`, `\u00e9`, `e\u0301`, strings.Repeat("x", 100_000)} {
		id := fmt.Sprint(i)
		call := mcptest.ToolCall(id, "charge", `{"account":"`+account+`","amount":1}`, `"dev.undolog/run":"r1"`)
		first, err := agent.Do(t.Context(), id, call)
		if err != nil || first.Error != nil {
			t.Fatalf("charge %.40s: %.200s (%v)", account, first.Raw, err)
		}
		again, err := agent.Do(t.Context(), id, call)
		if err != nil {
			t.Fatal(err)
		}
		wantReplay(t, first, again)
	}
	w.wantEffects("charge", 6)
}

// What a caller does with an answer does not change the next one.
func TestWanted_manyReplaysAreAllTheSame(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	call := func(i int) mcptest.Message {
		id := fmt.Sprint(i)
		m, err := agent.Do(t.Context(), id, mcptest.ToolCall(id, "charge", charge10, `"idempotencyKey":"k"`))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := call(0)
	for i := range 200 {
		again := call(i + 1)
		for j := range again.Result {
			again.Raw[j] = 'x' // a caller that writes over its answer
		}
		wantReplay(t, first, call(i+1000))
	}
	w.wantEffects("charge", 1)
}

func TestWanted_logIsPrivate(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	agent.Call("1", "charge", charge10)
	files, err := filepath.Glob(w.db + "*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files at %s (%v)", w.db, err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o, want 0600", f, info.Mode().Perm())
		}
	}
}
