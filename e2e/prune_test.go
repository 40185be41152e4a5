package e2e_test

import (
	"strings"
	"testing"
)

// Payloads that are pruned make nothing happen again: the call that comes again is known, and told that its
// answer is gone.
func TestPrune(t *testing.T) {
	t.Parallel()
	const keyed = `{"account":"ada","amount":10,"idempotencyKey":"k"}`
	for name, on := range map[string]func(*world) *world{
		"SQLite": func(w *world) *world { return w }, "PostgreSQL": (*world).onPostgres,
	} {
		t.Run("by command on "+name, func(t *testing.T) {
			t.Parallel()
			w := on(newWorld(t))
			agent := w.agent()
			agent.Call("1", "charge", keyed)
			if said := w.ran("prune", "--older-than", "1h"); !strings.HasPrefix(said, "pruned 0 effects") {
				t.Errorf("what is young: %s", said)
			}
			if said := w.ran("prune", "--older-than", "1ms", "--dry-run"); !strings.HasPrefix(said, "would prune 1 effects of 1") {
				t.Errorf("a trial: %s", said)
			}
			if len(w.only("charge").Arguments) == 0 {
				t.Error("a trial took the arguments away")
			}
			if said := w.ran("prune", "--older-than", "1ms", "--tenant", "another"); !strings.HasPrefix(said, "pruned 0 effects") {
				t.Errorf("another tenant's: %s", said)
			}
			if said := w.ran("prune", "--older-than", "1ms", "--all-tenants"); !strings.HasPrefix(said, "pruned 1 effects of 1") {
				t.Errorf("in earnest: %s", said)
			}
			if said := w.ran("prune", "--older-than", "1ms"); !strings.HasPrefix(said, "pruned 0 effects of 1") {
				t.Errorf("once more: %s", said)
			}
			shown := w.ran("show", w.only("charge").ID)
			if strings.Count(shown, "(pruned)") != 3 || strings.Contains(shown, "bytes") {
				t.Errorf("shown is\n%s", shown)
			}
			w.wantPruned(agent.Call("2", "charge", keyed).Raw)
			w.wantPruned(w.agent().Call("1", "charge", keyed).Raw)
			w.wantEffects("charge", 1)
		})
		t.Run("by policy on "+name, func(t *testing.T) {
			t.Parallel()
			w := on(newWorld(t)).withPolicy("version: 1\nretention: 1s\ntools:\n  - {tool: charge, tier: irreversible, approve: never}\n")
			agent := w.agent("--reap-every", "100ms")
			agent.Call("1", "charge", keyed)
			w.eventually("the arguments to be pruned", func() bool { return len(w.only("charge").Arguments) == 0 })
			w.wantPruned(agent.Call("2", "charge", keyed).Raw)
			w.wantEffects("charge", 1)
		})
	}
}

// wantPruned fails unless the answer says that the recorded one is gone.
func (w *world) wantPruned(answer []byte) {
	w.t.Helper()
	if !strings.Contains(string(answer), "The recorded answer is no longer kept. The call was not run again.") {
		w.t.Errorf("answered %s", answer)
	}
}
