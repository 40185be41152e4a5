package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

// chainFile writes a chain file and returns the flag that names it.
func (w *world) chainFile(yaml string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, "chain.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return "--chain=" + path
}

// Other people's hosts judge and change what passes, in front of what is recorded.
func TestChain_otherPeoplesHosts(t *testing.T) {
	validator, mutator := mcptest.Build(t, "./examples/validator"), mcptest.Build(t, "./examples/mutator")
	t.Run("a call that they allow runs once", func(t *testing.T) {
		w := newWorld(t)
		flag := w.chainFile(fmt.Sprintf("version: 1\nhosts:\n  - {name: v, command: [%q], interceptors: {example/no-deletes: {required: validation}}}\n"+
			"  - {name: m, command: [%q]}\n", validator, mutator))
		a := w.agent(flag)
		if m := a.Call("1", "charge", charge10); m.Error != nil {
			t.Fatalf("error %s", m.Error)
		}
		w.wantEffects("charge", 1)
	})
	t.Run("a call that they deny leaves no claim behind", func(t *testing.T) {
		w := newWorld(t)
		a := w.agent(w.chainFile(fmt.Sprintf("version: 1\nhosts: [{name: v, command: [%q], side: upstream}]\n", validator)))
		if m := a.Call("1", "wipe", `{}`); m.Error == nil || strings.Contains(string(m.Error), "not allowed here") {
			t.Fatalf("answered %s %s", m.Result, m.Error)
		}
		if e := w.only("wipe"); e.State != "released" {
			t.Errorf("effect %+v", e)
		}
	})
	t.Run("a required host that is gone blocks from the start", func(t *testing.T) {
		w := newWorld(t)
		a := w.agent(w.chainFile("version: 1\nhosts: [{name: v, command: [/nowhere/such-a-program], interceptors: {guard: {required: validation}}}]\n"))
		if m := a.Call("1", "charge", charge10); m.Error == nil {
			t.Fatalf("answered %s", m.Result)
		}
		w.wantEffects("charge", 0)
	})
}
