package effectinterceptor_test

import (
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/splice"
)

func injecting(into string) change {
	return policy(strings.Replace(checked, "approve: never", "approve: never, inject: {"+into+": Request-Id}", 1))
}

const strictPay = `{"name":"pay","inputSchema":{"type":"object","additionalProperties":false,"properties":{"to":{},"Request-Id":{"type":"string"}},"required":["to","Request-Id"]}}`

// The key is the effect's, the same for every attempt of it, or the caller's.
func TestInject(t *testing.T) {
	for into, path := range map[string][]string{"argument": {"arguments", "Request-Id"}, "meta": {"_meta", "Request-Id"}} {
		t.Run(into, func(t *testing.T) {
			w := newWorld(t, injecting(into))
			if into == "argument" { // its schema asks us, not the caller
				w.alice().list(toolsList(strictPay))
			}
			c := w.alice().with(exchange("X"))
			first := c.mustClaim(payWith(`{"to":"bob"}`))
			if got, _ := splice.Text(splice.Get(first.payload, path...)); got != first.id {
				t.Errorf("key %q in %s, want the effect's id %s", got, first.payload, first.id)
			}
			c.settled(unsent)
			again := w.alice().with(exchange("Y")).mustClaim(payWith(`{"to":"bob"}`))
			if got, _ := splice.Text(splice.Get(again.payload, path...)); got != first.id || again.attempt != 2 {
				t.Errorf("key %q of attempt %d, want %s of attempt 2", got, again.attempt, first.id)
			}
			if r := w.only(); strings.Contains(string(r.Arguments), "Request-Id") {
				t.Errorf("recorded arguments %s have our key", r.Arguments)
			}
		})
	}
	t.Run("the caller's own", func(t *testing.T) {
		w := newWorld(t, injecting("argument"))
		w.alice().list(toolsList(strictPay))
		done := w.alice().with(exchange("X")).run(`{"name":"pay","arguments":{"to":"bob"},"_meta":{"idempotencyKey":"order-9"}}`, paid)
		if got, _ := splice.Text(splice.Get(done.payload, "arguments", "Request-Id")); got != "order-9" {
			t.Errorf("key %q, want the caller's", got)
		}
		w.alice().with(exchange("Y")).mustRespond(payWith(`{"to":"bob","Request-Id":"order-9"}`))
	})
	t.Run("a header", func(t *testing.T) {
		w := newWorld(t, injecting("header"))
		done := w.alice().with(exchange("X")).mustClaim(payWith(`{"to":"bob"}`))
		if got, _ := splice.Text(splice.Get(done.info, "dev.undolog/dispatch", "headers", "Request-Id")); got != done.id {
			t.Errorf("directive %s, want header Request-Id with %s", done.info, done.id)
		}
	})
}
