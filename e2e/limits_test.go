package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/internal/mcptest"
)

// A result of 20 MB passes; one above --max-result is a clear error, and recorded as one.
func TestLimits_bigResults(t *testing.T) {
	connect := map[string]func(t *testing.T, w *world, flags ...string) caller{
		"stdio": func(t *testing.T, w *world, flags ...string) caller { return w.stdioCaller(t, w.gatewayArgs(flags...)) },
		"http":  func(t *testing.T, w *world, flags ...string) caller { return httpCaller(t, w.httpGateway(flags...)) },
	}
	t.Parallel()
	for name, connect := range connect {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.faults(faults.Set{"charge": {ResultBytes: 20_000_000}, "refund": {ResultBytes: 30_000_000}})
			call := connect(t, w, "--max-result", "25MB")
			first := call("1", "charge", charge10, `"idempotencyKey":"k"`)
			if len(first.Result) < 20_000_000 {
				t.Fatalf("got %d bytes: %.300s", len(first.Raw), first.Raw)
			}
			again := call("2", "charge", charge10, `"idempotencyKey":"k"`)
			if len(again.Result) < len(first.Result) || !replayed(t, again) {
				t.Errorf("replay has %d bytes of %d", len(again.Result), len(first.Result))
			}
			w.wantEffects("charge", 1)

			refund := `{"charge":"ch_1","amount":1}`
			for i := range 2 {
				m := call(fmt.Sprint(i+3), "refund", refund, "")
				e, err := m.Err()
				if err != nil || !strings.Contains(e.Message, "--max-result") {
					t.Fatalf("want an error that names the limit: %.300s", m.Raw)
				}
			}
			w.wantEffects("refund", 1)
			if e := w.only("refund"); e.State != "committed" || e.Answer.Kind != "error" {
				t.Errorf("effect = %s %+v, want the error as its record", e.State, e.Answer)
			}
		})
	}
}

// Hostile requests are refused under their own id, and the connection lives on.
func TestLimits_hostileRequests(t *testing.T) {
	for name, arguments := range map[string]string{
		"10,000 deep":             `{"account":` + strings.Repeat(`[`, 10_000) + strings.Repeat(`]`, 10_000) + `}`,
		"a member name of 1 MB":   `{"` + strings.Repeat("k", 1<<20) + `":1}`,
		"a key of 1 MB":           `{"account":"a","amount":1,"idempotencyKey":"` + strings.Repeat("k", 1<<20) + `"}`,
		"a duplicate member":      `{"account":"a","amount":1,"amount":2}`,
		"a lone surrogate":        `{"account":"\ud800","amount":1}`,
		"a number out of range":   `{"account":"a","amount":1e999}`,
		"arguments not an object": `[1]`,
		"arguments null":          `null`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			agent := w.agent()
			m := agent.Call("77", "charge", arguments)
			e, err := m.Err()
			if err != nil {
				t.Fatalf("want a refusal: %.300s", m.Raw)
			}
			if e.Code != -32602 && e.Code != -32600 || len(e.Message) > 2000 {
				t.Errorf("refused with %d and %d bytes of text: %.300s", e.Code, len(e.Message), e.Message)
			}
			if m := agent.Call("78", "charge", charge10); m.Error != nil {
				t.Errorf("the next call failed: %s", m.Raw)
			}
			w.wantEffects("charge", 1)
		})
	}
}

func TestLimits_linesThatAreNoJSON(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	for _, line := range []string{"", "}", "null", "[]", `"x"`, `{"jsonrpc":"2.0"`, `{"id":1}`, "\x00\xff", `{"jsonrpc":"2.0","id":{},"method":"ping"}`} {
		agent.MustSend(line)
	}
	if m := agent.Call("78", "charge", charge10); m.Error != nil {
		t.Errorf("the next call failed: %s", m.Raw)
	}
	w.wantEffects("charge", 1)
}

// A call without an id has no answer to record, so it is not made.
func TestLimits_callWithoutAnID(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	agent.MustSend(`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"charge","arguments":` + charge10 + `}}`)
	agent.MustSend(mcptest.ToolCall("1", "append_note", `{"text":"x"}`, ""))
	agent.Response("1")
	w.wantEffects("charge", 0)
}
