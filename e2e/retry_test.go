package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/internal/mcptest"
)

const charge10 = `{"account":"alice","amount":10}`

// The agent dies in mid-call; the same call comes under a new id on a new connection.
func TestRetry_answerNeverArrived(t *testing.T) {
	w := newWorld(t)
	hold := w.dir + "/go"
	w.faults(faults.Set{"charge": {WaitAfter: hold, Times: 1}})
	first := w.agent()
	first.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	w.awaitEffects("charge", 1)
	first.Leave()
	touch(t, hold)
	first.Wait() // the gateway drains: the outcome is recorded

	second := w.agent()
	m := second.Call("2", "charge", charge10)
	if !replayed(t, m) {
		t.Errorf("answer is not marked as a replay: %s", m.Raw)
	}
	w.wantEffects("charge", 1)
	third := second.Call(`"three"`, "list_charges", `{}`)
	if replayed(t, third) {
		t.Errorf("a read was replayed: %s", third.Raw)
	}
}

// The words of the promise: the replayed answer is the recorded bytes plus our mark.
func TestRetry_replayIsTheRecordedBytes(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	key := `"dev.undolog/idempotency-key":"order-1"`
	first, err := agent.Do(t.Context(), "1", mcptest.ToolCall("1", "charge", charge10, key))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		id := fmt.Sprint(i + 2)
		again, err := agent.Do(t.Context(), id, mcptest.ToolCall(id, "charge", charge10, key))
		if err != nil {
			t.Fatal(err)
		}
		wantReplay(t, first, again)
	}
	w.wantEffects("charge", 1)
}

// A key in each of the places where clients put it.
func TestRetry_keyWhereverItIs(t *testing.T) {
	for name, send := range map[string]func(id string) string{
		"in _meta under our name": func(id string) string {
			return mcptest.ToolCall(id, "charge", charge10, `"dev.undolog/idempotency-key":"k-1"`)
		},
		"in _meta.idempotencyKey": func(id string) string {
			return mcptest.ToolCall(id, "charge", charge10, `"idempotencyKey":"k-1"`)
		},
		"in _meta.idempotency-key": func(id string) string {
			return mcptest.ToolCall(id, "charge", charge10, `"idempotency-key":"k-1"`)
		},
		"in an argument of that name": func(id string) string {
			return mcptest.ToolCall(id, "charge", `{"account":"alice","amount":10,"idempotencyKey":"k-1"}`, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			agent := w.agent()
			for _, id := range []string{"1", "2"} {
				if _, err := agent.Do(t.Context(), id, send(id)); err != nil {
					t.Fatal(err)
				}
			}
			w.wantEffects("charge", 1)
			if got := w.entries("charge")[0].Key; got != "k-1" {
				t.Errorf("the target was sent the key %q, want the caller's", got)
			}
		})
	}
}

func TestRetry_sameKeyForAnotherCallIsAConflict(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	key := `"idempotencyKey":"k-1"`
	if _, err := agent.Do(t.Context(), "1", mcptest.ToolCall("1", "charge", charge10, key)); err != nil {
		t.Fatal(err)
	}
	m, err := agent.Do(t.Context(), "2", mcptest.ToolCall("2", "charge", `{"account":"alice","amount":11}`, key))
	if err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, m, "conflict")
	w.wantEffects("charge", 1)
}

// The deadline passes, the agent sends the call anew while the first still runs: it joins.
func TestRetry_joinsTheCallUnderWay(t *testing.T) {
	w := newWorld(t)
	hold := w.dir + "/go"
	w.faults(faults.Set{"charge": {WaitAfter: hold, Times: 1}})
	agent := w.agent()
	agent.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	w.awaitEffects("charge", 1)
	agent.MustSend(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"timeout"}}`)
	agent.MustSend(mcptest.ToolCall("2", "charge", charge10, ""))
	agent.MustSend(mcptest.ToolCall("3", "charge", charge10, ""))
	agent.Call("4", "list_charges", `{}`) // the gateway has read them: one that it reads once another is answered is a repeat
	touch(t, hold)
	second, third := agent.Response("2"), agent.Response("3")
	if second.Error != nil || third.Error != nil {
		t.Fatalf("joined calls failed: %s %s", second.Raw, third.Raw)
	}
	if a, b := unmarked(t, second.Result), unmarked(t, third.Result); a != b {
		t.Errorf("joined calls got different answers:\n%s\n%s", a, b)
	}
	w.wantEffects("charge", 1)
	if e := w.only("charge"); e.State != "committed" {
		t.Errorf("state = %s, want committed", e.State)
	}
}

// A call that waits longer than it may gets a typed answer, and the first one's commit succeeds.
func TestRetry_inProgressWhenTheWaitIsOver(t *testing.T) {
	w := newWorld(t)
	hold := w.dir + "/go"
	w.faults(faults.Set{"charge": {WaitAfter: hold, Times: 1}})
	agent := w.agent("--join-wait", "50ms")
	agent.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	w.awaitEffects("charge", 1)
	wantOutcome(t, agent.Call("2", "charge", charge10), "in_progress")
	touch(t, hold)
	if m := agent.Response("1"); m.Error != nil {
		t.Errorf("the first call failed: %s", m.Raw)
	}
	w.wantEffects("charge", 1)
}

// A run that is resumed, with regenerated but equal calls, is answered from the record.
func TestRetry_resumedRun(t *testing.T) {
	calls := []struct{ tool, arguments, regenerated string }{
		{"charge", `{"account":"alice","amount":10}`, `{ "amount": 10.0, "account": "alice" }`},
		{"send_receipt", `{"to":"a@x","charge":"ch_1"}`, `{"charge":"ch_1","to":"a@x"}`},
		{"append_note", `{"text":"done"}`, `{"text":"done"}`},
	}
	w := newWorld(t).withPolicy(allowAll + `
    lookalike: ask
`)
	run := func(run string, regenerated bool) []mcptest.Message {
		agent := w.agent("--hold", "0")
		var answers []mcptest.Message
		for i, c := range calls {
			id, arguments := fmt.Sprint(i+1), c.arguments
			if regenerated {
				arguments = c.regenerated
			}
			m, err := agent.Do(t.Context(), id, mcptest.ToolCall(id, c.tool, arguments, fmt.Sprintf(`"dev.undolog/run":%q`, run)))
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, m)
		}
		return answers
	}
	first, resumed := run("r1", false), run("r1", true)
	for i := range calls {
		wantReplay(t, first[i], resumed[i])
	}
	for _, c := range calls {
		w.wantEffects(c.tool, 1)
	}
	for _, m := range run("r2", false) { // another run asks
		wantOutcome(t, m, "approval_required")
	}
	for _, c := range calls {
		w.wantEffects(c.tool, 1)
	}
}

const allowAll = `version: 1
tools:
  - tool: "get_*"
    tier: read
  - tool: "list_*"
    tier: read
  - tool: "*"
    tier: irreversible
    approve: never`

// A tool that says it destroys nothing (destructiveHint false) still writes.
func TestRetry_notDestructiveIsAWrite(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	agent.Call("1", "charge", charge10) // annotated destructiveHint: false, readOnlyHint: false
	if e := w.only("charge"); e.Tier != "irreversible" || e.State != "committed" {
		t.Errorf("effect = %+v, want an irreversible one that is committed", e)
	}
}

// Nothing was accepted, so it may be tried again; something was, so it is in doubt.
func TestRetry_transportErrors(t *testing.T) {
	t.Run("before any byte was accepted", func(t *testing.T) {
		w := newWorld(t)
		url := "http://127.0.0.1:1/mcp" // nobody listens there
		agent := mcptest.StartCommand(t, w.command("gateway", "--name", "pay", "--upstream", url))
		agent.MustSend(mcptest.Request("0", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`))
		if m := agent.Response("0"); m.Error == nil {
			t.Errorf("initialize of a server that is not there succeeded: %s", m.Raw)
		}
	})
	t.Run("after the request was accepted", func(t *testing.T) {
		w := newWorld(t)
		w.faults(faults.Set{"charge": {After: faults.Kill, Times: 1}})
		agent := w.agent()
		wantOutcome(t, agent.Call("1", "charge", charge10), "in_doubt")
		wantOutcome(t, agent.Call("2", "charge", charge10), "in_doubt")
		w.wantEffects("charge", 1)
		if m := agent.Call("3", "list_charges", `{}`); m.Error != nil {
			t.Errorf("the server was not started again: %s", m.Raw)
		}
	})
}

// An error is an answer. The call is not sent a second time by us.
func TestRetry_toolErrorIsAnAnswer(t *testing.T) {
	w := newWorld(t)
	w.faults(faults.Set{"charge": {Before: faults.ToolError}})
	agent := w.agent()
	m := agent.Call("1", "charge", charge10)
	if r, err := m.Tool(); err != nil || !r.IsError {
		t.Fatalf("want the tool's own error, got %s (%v)", m.Raw, err)
	}
	if n, err := faults.Hits(w.control, "charge"); err != nil || n != 1 {
		t.Errorf("the tool was called %d times, want 1 (%v)", n, err)
	}
	if e := w.only("charge"); e.State != "committed" || !e.Answer.IsError {
		t.Errorf("effect = %+v, want the error as its record", e)
	}
}

// A client that tries three more times, against a tool that fails after its effect.
func TestRetry_clientThatRetriesErrors(t *testing.T) {
	for _, act := range []faults.Act{faults.ToolError, faults.RPCError, faults.Kill, faults.Exit} {
		t.Run(string(act), func(t *testing.T) {
			w := newWorld(t)
			w.faults(faults.Set{"charge": {After: act}})
			agent := w.agent()
			for i := range 4 {
				agent.Call(fmt.Sprint(i+1), "charge", charge10)
			}
			w.wantEffects("charge", 1)
		})
	}
}

// A request id used again for something else is another call; one still in flight is refused.
func TestRetry_requestIDsAreNotIdentity(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	agent.Call("7", "charge", charge10)
	agent.Call("7", "charge", `{"account":"alice","amount":11}`)
	w.wantEffects("charge", 2)

	hold := w.dir + "/go"
	w.faults(faults.Set{"charge": {WaitBefore: hold}})
	agent.MustSend(mcptest.ToolCall("8", "charge", `{"account":"bob","amount":1}`, ""))
	agent.MustSend(mcptest.ToolCall("8", "charge", `{"account":"bob","amount":2}`, ""))
	m := agent.Response("8")
	if e, err := m.Err(); err != nil || e.Code != -32600 {
		t.Errorf("an id in flight was used again and got %s, want -32600", m.Raw)
	}
	touch(t, hold)
	if m := agent.Response("8"); m.Error != nil {
		t.Errorf("the first call failed: %s", m.Raw)
	}
	w.wantEffects("charge", 3)
}

// Proof that the target was not reached lets the next identical call run.
func TestRetry_targetNotReached(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	agent.Call("1", "list_charges", `{}`)
	w.faults(faults.Set{"list_charges": {Before: faults.Kill, Times: 1}})
	agent.Call("2", "list_charges", `{}`) // the server is gone
	m := callUntilSettled(t, agent, "charge", charge10)
	if m.Error != nil {
		t.Errorf("charge after the server came back: %s", m.Raw)
	}
	w.wantEffects("charge", 1)
}

// callUntilSettled sends a call again while the answer says that it was not made.
func callUntilSettled(t *testing.T, agent *mcptest.Stdio, tool, arguments string) mcptest.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i := 100; ; i++ {
		m, err := agent.Do(ctx, fmt.Sprint(i), mcptest.ToolCall(fmt.Sprint(i), tool, arguments, ""))
		if err != nil {
			t.Fatal(err)
		}
		if m.Error == nil || !strings.Contains(string(m.Error), `"unavailable"`) {
			return m
		}
	}
}
