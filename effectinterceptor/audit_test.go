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
