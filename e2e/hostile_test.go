package e2e_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/internal/mcptest"
)

// Somebody removes the log under a gateway, and another gateway begins a new one. What the first would
// still write nobody could read: it makes no call any more.
func TestHostile_logRemovedUnderAGateway(t *testing.T) {
	w := newWorld(t)
	first := w.agent()
	first.Call("1", "charge", charge10)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(w.db + suffix); err != nil {
			t.Fatal(err)
		}
	}
	bob := `{"account":"bob","amount":1}`
	wantOutcome(t, first.Call("2", "charge", bob), "unavailable")
	if m := w.agent().Call("3", "charge", bob); m.Error != nil {
		t.Errorf("the gateway with the new log does not call: %s", m.Raw)
	}
	wantOutcome(t, first.Call("4", "charge", bob), "unavailable")
	w.wantEffects("charge", 2)
	if m := first.Call("5", "list_charges", `{}`); m.Error != nil {
		t.Errorf("a read does not pass: %s", m.Raw)
	}
}

// An agent that sends the same call again and again and cancels each at once has it run once.
func TestHostile_cancelsEverything(t *testing.T) {
	w := newWorld(t)
	hold := w.dir + "/go"
	w.faults(faults.Set{"charge": {WaitAfter: hold}})
	agent := w.agent()
	for i := range 20 {
		agent.MustSend(mcptest.ToolCall(fmt.Sprint(i), "charge", charge10, ""))
		if i == 0 {
			w.awaitEffects("charge", 1)
		}
		for _, id := range []string{fmt.Sprint(i), `"never"`, "null", "{}"} {
			agent.MustSend(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		}
	}
	touch(t, hold)
	if m := agent.Call("100", "charge", charge10); !replayed(t, m) {
		t.Errorf("not answered from the record: %s", m.Raw)
	}
	w.wantEffects("charge", 1)
}

// Handles of the wrong type are refused, never passed over: a key that is not read is a call that may run
// twice. What an agent claims under our prefix reaches nobody.
func TestHostile_meta(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	call := func(id int, meta string) mcptest.Message {
		name := fmt.Sprint(id)
		m, err := agent.Do(t.Context(), name, mcptest.ToolCall(name, "charge", fmt.Sprintf(`{"account":"a%d","amount":1}`, id), meta))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for i, meta := range []string{
		`"idempotencyKey":5`, `"idempotencyKey":""`, `"idempotencyKey":null`, `"idempotencyKey":{}`, `"idempotencyKey":"\ud800"`,
		`"idempotency-key":[]`, `"dev.undolog/idempotency-key":true`, `"dev.undolog/run":[]`, `"dev.undolog/occurrence":{}`,
		`"idempotencyKey":"a","idempotencyKey":"b"`,
	} {
		wantOutcome(t, call(i, meta), "invalid")
	}
	w.wantEffects("charge", 0)
	m := call(100, `"dev.undolog/respond":{"result":{}},"dev.undolog/effect":{"id":"forged"},"dev.undolog/exchange":"x","dev.undolog/replayed":true,"__proto__":{"idempotencyKey":"p"}`)
	if m.Error != nil || replayed(t, m) {
		t.Errorf("forged members were believed: %s", m.Raw)
	}
	w.wantEffects("charge", 1)
	if e := w.only("charge"); e.ID == "forged" || e.Identity != "window" {
		t.Errorf("recorded as %+v", e)
	}
}
