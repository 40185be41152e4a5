package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/internal/mcptest"
)

// lookedUp is a policy under which a charge whose answer was lost is looked up by its reference.
const lookedUp = `
version: 1
tools:
  - tool: charge
    tier: irreversible
    approve: never
    probe:
      tool: list_charges
      verdict: |
        is_error ? "unknown" :
        !result.structuredContent.charges.exists(c, c.reference == args.reference) ? "not_applied" :
        dyn({"verdict": "applied", "result": result.structuredContent.charges.filter(c, c.reference == args.reference)[0]})
  - {tool: list_charges, tier: read}
`

const chargeRef = `{"account":"ada","amount":10,"reference":"order-7"}`

func (w *world) lose(edge string) string {
	w.t.Helper()
	w.dieAt(edge, "charge", chargeRef)
	w.eventually("the charge to be in doubt", func() bool { return w.only("charge").State == "in_doubt" })
	return w.only("charge").ID
}

// wantFound fails unless the charge is on record as it is in the ledger, digit for digit, and took effect once.
func (w *world) wantFound() {
	w.t.Helper()
	e := w.only("charge")
	if e.State != "committed" || e.Answer == nil || !strings.Contains(string(e.Answer.Body), `"receipt":9007199254740993`) {
		w.t.Errorf("the charge is %s with %+v", e.State, e.Answer)
	}
	w.wantEffects("charge", 1)
}

func TestProbe_onTheNextIdenticalCall(t *testing.T) {
	t.Parallel()
	t.Run("it was applied", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "faults").withPolicy(lookedUp)
		w.lose("after-answer")
		if m := w.agent().Call("1", "charge", chargeRef); !replayed(t, m) {
			t.Errorf("not answered from the record: %s", m.Raw)
		}
		w.wantFound()
		w.eventually("the probe to be in the log", func() bool {
			list := w.log("--tool", "list_charges")
			return len(list) == 1 && list[0].Tier == "read" && list[0].Principal == "undolog:probe"
		})
	})
	t.Run("it was not", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "faults").withPolicy(lookedUp)
		w.lose("after-begin")
		if m := w.agent().Call("1", "charge", chargeRef); m.Error != nil || replayed(t, m) {
			t.Errorf("did not run: %s", m.Raw)
		}
		w.wantEffects("charge", 1)
		if e := w.only("charge"); e.Attempt != 2 {
			t.Errorf("ran as attempt %d", e.Attempt)
		}
	})
	t.Run("it cannot tell", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "faults").withPolicy(lookedUp)
		w.lose("after-answer")
		w.faults(faults.Set{"list_charges": {Before: faults.ToolError}})
		m := w.agent().Call("1", "charge", chargeRef)
		wantOutcome(t, m, "in_doubt")
		if _, reason := outcomeOf(t, m); !strings.Contains(reason, "looked up with list_charges, which could not tell") {
			t.Errorf("the reason is %q", reason)
		}
		w.wantEffects("charge", 1)
	})
}

// Nobody calls again: the gateway looks up what is in doubt by itself, on a connection of its own.
func TestProbe_byTheReaper(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "faults").withPolicy(lookedUp)
	w.lose("after-answer")
	w.agent("--reap-every", "200ms")
	w.eventually("the reaper to look it up", func() bool { return w.only("charge").State == "committed" })
	w.wantFound()
}

// A person has the log looked through, with the server named that the probe asks; without it is said what is
// missing.
func TestProbe_byReap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "faults").withPolicy(lookedUp)
	w.lose("after-answer")
	server := w.only("charge").Server
	if out := w.ran("reap"); !strings.Contains(out, "give --policy FILE") {
		t.Errorf("undolog reap says %s", out)
	}
	if out := w.ran("reap", "--policy", w.policy); !strings.Contains(out, "name it with --probe-server "+server+"=URL") {
		t.Errorf("undolog reap --policy says %s", out)
	}
	if out := w.ran("reap", "--policy", w.policy, "--probe-server", server+"="+strings.Join(w.server, " ")); !strings.Contains(out, "settled by probes 1") {
		t.Errorf("undolog reap --probe-server says %s", out)
	}
	w.wantFound()
}

// A probe of another server's tool is made there, by the name that the policy gives the server.
func TestProbe_onAnotherServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "faults").withPolicy(strings.Replace(lookedUp, "      tool: list", "      server: books\n      tool: list", 1))
	w.lose("after-answer")
	m := w.agent().Call("1", "charge", chargeRef)
	if _, reason := outcomeOf(t, m); !strings.Contains(reason, "--probe-server books=") {
		t.Errorf("without the server the reason is %q", reason)
	}
	if m := w.agent("--probe-server", "books="+strings.Join(w.server, " ")).Call("1", "charge", chargeRef); !replayed(t, m) {
		t.Errorf("not answered from the record: %s", m.Raw)
	}
	w.wantFound()
}

func TestResolve_byProbe(t *testing.T) {
	t.Parallel()
	resolve := func(w *world, id string) (string, error) {
		args := append([]string{"resolve", id, "--probe", "--policy", w.policy, "--"}, w.server...)
		out, err := w.command(args...).CombinedOutput()
		return string(out), err
	}
	t.Run("it was applied", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "faults").withPolicy(lookedUp)
		id := w.lose("after-answer")
		if out, err := resolve(w, id); err != nil || !strings.Contains(out, "list_charges says: applied\neffect "+id+" is committed") {
			t.Errorf("resolve --probe: %v\n%s", err, out)
		}
		w.wantFound()
		if out, err := resolve(w, id); err == nil || !strings.Contains(out, "nothing was changed") {
			t.Errorf("resolve of what is settled: %v\n%s", err, out)
		}
	})
	t.Run("it was not", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "faults").withPolicy(lookedUp)
		if out, err := resolve(w, w.lose("after-begin")); err != nil || !strings.Contains(out, "not_applied") {
			t.Errorf("resolve --probe: %v\n%s", err, out)
		}
		if e := w.only("charge"); e.State != "failed" {
			t.Errorf("the charge is %s", e.State)
		}
	})
	t.Run("it cannot tell", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "faults").withPolicy(lookedUp)
		id := w.lose("after-answer")
		w.faults(faults.Set{"list_charges": {Before: faults.ToolError}})
		if out, err := resolve(w, id); err == nil || !strings.Contains(out, "the probe cannot tell: nothing was changed") {
			t.Errorf("resolve --probe: %v\n%s", err, out)
		}
	})
}

// A gateway is stopped until its lease is over and others have recorded that its claim was lost. Then it goes
// on, and the answer that was there all the time settles the call.
func TestLate_answerOfALostLeaseSettlesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	answer := filepath.Join(w.dir, "answer")
	w.faults(faults.Set{"charge": {WaitAfter: answer}})
	stopped := mcptest.StartCommand(t, w.command(w.gatewayArgs("--heartbeat", "2s", "--reap-every", "0")...))
	stopped.Initialize(protocol)
	answered := w.untilEffect(1, onStdio(stopped), "charge", charge10, "")
	stopped.Signal(syscall.SIGSTOP)
	w.eventually("the lease to be over", func() bool { return w.only("charge").State == "in_doubt" })
	if out := w.ran("reap"); !strings.Contains(out, "in doubt 1") {
		t.Errorf("undolog reap says %s", out)
	}
	wantOutcome(t, w.agent().Call("1", "charge", charge10), "in_doubt")
	if err := os.WriteFile(answer, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stopped.Signal(syscall.SIGCONT)
	if got := <-answered; got.err != nil || got.m.Error != nil {
		t.Errorf("its agent is answered with %s (%v)", got.m.Raw, got.err)
	}
	if e := w.only("charge"); e.State != "committed" {
		t.Errorf("the charge is %s", e.State)
	}
	w.wantEffects("charge", 1)
}

// A gateway is stopped between its claim and the dispatch until a probe has found that nothing was applied and
// the same call has run through another gateway. When it goes on it does not send what it had claimed.
func TestLate_dispatchOfALostClaimIsNotMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "faults").withPolicy(lookedUp)
	cmd := w.command(w.gatewayArgs("--heartbeat", "2s", "--reap-every", "0")...)
	cmd.Env = append(os.Environ(), "UNDOLOG_FAULT=stop:after-begin")
	stopped := mcptest.StartCommand(t, cmd)
	stopped.Initialize(protocol)
	stopped.MustSend(mcptest.ToolCall("1", "charge", chargeRef, ""))
	w.eventually("the claim to be lost", func() bool {
		list := w.log("--tool", "charge")
		return len(list) == 1 && list[0].State == "in_doubt"
	})
	if m := w.agent().Call("1", "charge", chargeRef); m.Error != nil || replayed(t, m) {
		t.Errorf("did not run: %s", m.Raw)
	}
	w.wantEffects("charge", 1)
	stopped.Signal(syscall.SIGCONT)
	if m := stopped.Response("1"); m.Error == nil {
		t.Errorf("what had lost its claim was answered with %s", m.Raw)
	}
	w.wantFound()
}
