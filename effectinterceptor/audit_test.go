package effectinterceptor_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
)

func TestAudit_NotesOperationsThatAreNoEffects(t *testing.T) {
	w := newWorld(t, foreign)
	for _, event := range []string{"resources/read", "tools/call"} {
		for _, phase := range []interceptors.Phase{interceptors.PhaseRequest, interceptors.PhaseResponse} {
			p := w.remote().params(effectinterceptor.AuditName, phase, `{"uri":"SECRET"}`)
			p.Event = event
			p.Context = &interceptors.Context{TraceID: "4bf92f3577b34da6a3ce929d0e0e4736"}
			if r, err := w.host.Invoke(t.Context(), p); err != nil || !r.Valid {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
	ev := w.wantEvent(effect.EventOperation, 1)
	var detail map[string]string
	if err := json.Unmarshal(ev[0].Detail, &detail); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"event": "resources/read", "trace": "4bf92f3577b34da6a3ce929d0e0e4736"}, detail); diff != "" {
		t.Errorf("detail (-want +got)\n%s", diff)
	}
}

func TestStopped_IsKept(t *testing.T) {
	w := newWorld(t)
	w.ei.Stopped(effectinterceptor.Stop{Principal: "alice", Event: "tools/call", By: "acme/no-wipe", Reason: "not here"})
	if ev := w.wantEvent(effect.EventStopped, 1); ev[0].Principal != "alice" || !strings.Contains(string(ev[0].Detail), "acme/no-wipe") {
		t.Errorf("event is %+v", ev[0])
	}
}

// What differs in server, tool, caller or reason is not counted with others.
func TestStopped_CountsEqualOnesOnly(t *testing.T) {
	w := newWorld(t)
	stop := effectinterceptor.Stop{Principal: "alice", Event: "tools/call", Server: "bank", Tool: "wire", By: "acme/no-wipe", Reason: "not here"}
	other := func(change func(*effectinterceptor.Stop)) {
		changed := stop
		change(&changed)
		w.ei.Stopped(changed)
	}
	for range 3 {
		w.ei.Stopped(stop)
	}
	other(func(s *effectinterceptor.Stop) { s.Reason = "not now" })
	other(func(s *effectinterceptor.Stop) { s.Tool = "wipe" })
	other(func(s *effectinterceptor.Stop) { s.Server = "files" })
	other(func(s *effectinterceptor.Stop) { s.Principal = "bob" })
	w.ei.Close()
	for n, ev := range w.wantEvent(effect.EventStopped, 6) {
		if n == 0 && (ev.Server != "bank" || ev.Tool != "wire") {
			t.Errorf("event is %+v", ev)
		}
		if want := map[bool]int{true: 2}[n == 5]; more(t, ev) != want {
			t.Errorf("event %d counts %d more, want %d", n, more(t, ev), want)
		}
	}
}

// A call that another interceptor stops when it was claimed already has an effect.
func TestStopped_NamesTheEffect(t *testing.T) {
	w := newWorld(t)
	claim := w.alice().with(exchange("X")).mustClaim(pay)
	w.ei.Stopped(effectinterceptor.Stop{Exchange: "X", Event: "tools/call", By: "acme/no-wipe"})
	if ev := w.wantEvent(effect.EventStopped, 1); ev[0].Effect != claim.id {
		t.Errorf("event is %+v, want it of effect %s", ev[0], claim.id)
	}
}
