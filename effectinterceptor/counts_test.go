package effectinterceptor_test

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
)

const countedPolicy = `
version: 1
tools:
  - {tool: look, tier: read}
  - {tool: never, tier: irreversible, deny: not today}
  - {tool: ask, tier: irreversible, approve: always}
  - {tool: "*", tier: irreversible, approve: never}
`

// Each call is counted once, by what it came to, and each refusal by its reason.
func TestCounts(t *testing.T) {
	w := newWorld(t, policy(countedPolicy), impatient)
	n := 0
	next := func() *caller {
		n++
		return w.alice().with(exchange(strconv.Itoa(n)))
	}
	call := func(tool string) string { return `{"name":"` + tool + `","_meta":{"idempotencyKey":"` + tool + `"}}` }
	ends := func(tool string, end effectinterceptor.End) *caller {
		c := next()
		if _, err := c.call(call(tool)); err != nil {
			t.Fatal(err)
		}
		c.settled(end)
		w.ei.Delivered(c.exchange, w.clock.Now(), true)
		return c
	}
	ends("look", answered(paid))
	ends("pay", answered(paid))
	ends("refuse", failed(`{"code":-32602,"message":"no"}`))
	ends("unsent", unsent)
	ends("lost", lost).settled(answered(paid)) // late: the same call, counted already
	task := ends("task", answered(`{"resultType":"task","taskId":"1"}`))
	w.ei.Settled(t.Context(), task.exchange, answered(paid))
	for range 3 {
		next().mustRespond(call("pay"))
	}
	next().mustClaim(call("slow"))
	next().mustBlock(call("slow")) // under way, and it is not waited for
	ends("gone", lost)
	next().mustBlock(call("gone"))
	next().mustBlock(call("never"))
	next().mustBlock(call("ask"))
	next().mustBlock(`{"name":"pay","arguments":{"n":1},"_meta":{"idempotencyKey":"pay"}}`)
	next().mustBlock(`{"name":"pay","arguments":[]}`)
	w.ei.Stopped(effectinterceptor.Stop{Event: "tools/call", By: "acme/no-wipe", Tool: "pay"})
	w.ei.Stopped(effectinterceptor.Stop{Event: "tools/list", By: "acme/no-wipe"})
	w.ei.Stopped(effectinterceptor.Stop{Event: "tools/call", By: effectinterceptor.EffectName, Tool: "pay"})
	want := effectinterceptor.Counts{
		Calls:   map[string]int64{"ran": 2, "failed": 1, "not_sent": 1, "in_doubt": 2, "waiting": 1, "replayed": 3, "refused": 7},
		Refused: map[string]int64{"in_progress": 1, "in_doubt": 1, "denied": 1, "approval_required": 1, "conflict": 1, "invalid": 1, "interceptor": 1},
	}
	if diff := cmp.Diff(want, countedOf(w)); diff != "" {
		t.Errorf("counts (-want +got)\n%s", diff)
	}
}

func TestCounts_WhoWaitedForAnEqualCallHasJoined(t *testing.T) {
	w := newWorld(t)
	first := w.alice().with(exchange("1"))
	first.mustClaim(keyed)
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		w.alice().with(exchange("2")).mustRespond(keyed)
	}()
	select {
	case <-w.looked:
	case <-time.After(time.Minute):
		t.Fatal("nobody joins")
	}
	first.settled(answered(paid))
	<-joined
	if diff := cmp.Diff(map[string]int64{"ran": 1, "joined": 1}, countedOf(w).Calls); diff != "" {
		t.Errorf("counts (-want +got)\n%s", diff)
	}
}

// A foreign engine is told by a verdict what it would be told in process by an error.
func TestCounts_AtARemoteEngine(t *testing.T) {
	w := newWorld(t, foreign)
	first := w.remote().with(exchange("1"))
	first.mustClaim(keyed)
	first.answer(paid)
	w.remote().with(exchange("2")).mustRespond(keyed)
	if r, err := w.remote().call(`{"name":"pay","arguments":[]}`); err != nil || r.Valid {
		t.Fatalf("a malformed call: %+v, %v", r, err)
	}
	want := effectinterceptor.Counts{
		Calls: map[string]int64{"ran": 1, "replayed": 1, "refused": 1}, Refused: map[string]int64{"invalid": 1},
	}
	if diff := cmp.Diff(want, countedOf(w)); diff != "" {
		t.Errorf("counts (-want +got)\n%s", diff)
	}
	w.wantState(w.only().ID, effect.StateCommitted)
}

// countedOf is what was counted, without what never was.
func countedOf(w *world) effectinterceptor.Counts {
	c := w.ei.Counts()
	none := func(_ string, n int64) bool { return n == 0 }
	maps.DeleteFunc(c.Calls, none)
	maps.DeleteFunc(c.Refused, none)
	return c
}
