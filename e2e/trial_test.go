package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/internal/mcptest"
)

// trial is one run of the fault harness: a few calls through real processes, each under a fault that its seed
// draws, and then the judgement of the ledger at the tool.
type trial struct {
	t      *testing.T
	w      *world
	random *rand.Rand
	agent  *mcptest.Stdio // a gateway that still runs; nil: none
	tools  *mcptest.HTTP  // the same server on HTTP, for somebody else's engine; nil: not started
	calls  int            // request ids
	asked  map[payment]bool
	told   []tale
	spoilt bool     // the log is corrupt, and calls were made on it
	story  []string // what was done, told when the trial fails
}

// payment is a call under an idempotency key of its own.
type payment struct {
	tool string
	n    int
}

// tale is what an agent was told of a call.
type tale struct {
	payment
	message mcptest.Message
}

// lapse is how soon a dead gateway's claims are in doubt.
const lapse = 300 * time.Millisecond

func newTrial(t *testing.T, seed uint64) *trial {
	tr := &trial{t: t, w: newWorld(t, "faults"), random: rand.New(rand.NewPCG(seed, 5)), asked: map[payment]bool{}}
	switch tr.random.IntN(4) {
	case 0:
		tr.w.withPolicy(askAll(", lease: 1s"))
	case 1, 2:
		tr.w.withPolicy("version: 1\ntools:\n  - {tool: charge, tier: irreversible, approve: never, lease: 1s}\n  - {tool: set_limit, tier: idempotent, lease: 1s}\n")
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was done:\n%s", strings.Join(tr.story, "\n"))
		}
	})
	return tr
}

func (tr *trial) note(format string, args ...any) {
	tr.story = append(tr.story, fmt.Sprintf(format, args...))
}

// draw is a call: one of few, so that most are repeats.
func (tr *trial) draw() payment {
	p := payment{"charge", tr.random.IntN(3)}
	if tr.random.IntN(4) == 0 {
		p.tool = "set_limit"
	}
	tr.asked[p] = true
	return p
}

func (p payment) arguments() string {
	if p.tool == "charge" {
		return fmt.Sprintf(`{"account":"a%d","amount":10}`, p.n)
	}
	return fmt.Sprintf(`{"account":"a%d","limit":10}`, p.n)
}

func (p payment) meta() string { return fmt.Sprintf(`"idempotencyKey":"%s-%d"`, p.tool, p.n) }

func (tr *trial) upTo(d time.Duration) time.Duration {
	return time.Duration(tr.random.Int64N(int64(d)))
}

// gatewayArgs are those of the trial's gateways. Nobody holds calls, nor waits for long.
func (tr *trial) gatewayArgs() []string {
	return tr.w.gatewayArgs("--heartbeat", lapse.String(), "--hold", "0", "--join-wait", "2s", "--reap-every", "100ms", "--drain", "2s", "--name", "payments", "--principal", "agent:a")
}

// start starts a gateway in place of the one that runs. It may die, or refuse.
func (tr *trial) start(env ...string) {
	cmd := tr.w.command(tr.gatewayArgs()...)
	cmd.Env = append(os.Environ(), env...)
	tr.startCommand(cmd)
}

func (tr *trial) startCommand(cmd *exec.Cmd) {
	tr.end()
	tr.agent = tr.open(cmd)
}

// open starts a gateway beside those that run; nil when it dies or refuses.
func (tr *trial) open(cmd *exec.Cmd) *mcptest.Stdio {
	agent := mcptest.StartCommand(tr.t, cmd)
	ctx, cancel := context.WithTimeout(tr.t.Context(), patience)
	defer cancel()
	params := fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"trial","version":"1"}}`, protocol)
	if _, err := agent.Do(ctx, `"init"`, mcptest.Request(`"init"`, "initialize", params)); err != nil {
		tr.note("  the gateway does not start: %v", err)
		agent.Kill()
		return nil
	}
	_ = agent.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`) // it may have died
	return agent
}

// patience is how long an answer may take that is to come.
const patience = 30 * time.Second

// end kills the gateway that runs.
func (tr *trial) end() {
	if tr.agent != nil {
		tr.agent.Kill()
		tr.agent = nil
	}
}

// ready starts a gateway if none runs.
func (tr *trial) ready() {
	if tr.agent != nil {
		select {
		case <-tr.agent.Exited():
		default:
			return
		}
	}
	tr.start()
}

// send makes a call and returns how to await its answer.
func (tr *trial) send(agent *mcptest.Stdio, p payment) (await func(d time.Duration) (mcptest.Message, bool)) {
	tr.calls++
	id := fmt.Sprint(tr.calls)
	if agent == nil || agent.Send(mcptest.ToolCall(id, p.tool, p.arguments(), p.meta())) != nil {
		return func(time.Duration) (mcptest.Message, bool) { return mcptest.Message{}, false }
	}
	return func(d time.Duration) (mcptest.Message, bool) {
		ctx, cancel := context.WithTimeout(tr.t.Context(), d)
		defer cancel()
		m, err := agent.Await(ctx, func(m mcptest.Message) bool { return m.IsResponse(id) })
		if err != nil {
			tr.note("  no answer: %v", err)
			return m, false
		}
		tr.note("  %.160s", m.Raw)
		tr.told = append(tr.told, tale{p, m})
		return m, true
	}
}

// callAgain makes a call through a gateway without faults, which must answer.
func (tr *trial) callAgain(p payment) mcptest.Message {
	tr.ready()
	for deadline := time.Now().Add(patience); ; {
		m, answered := tr.send(tr.agent, p)(patience)
		if !answered {
			tr.t.Fatalf("%+v is not answered by a sound gateway", p)
		}
		if m.Error == nil {
			return m
		}
		switch outcome, reason := outcomeOf(tr.t, m); outcome {
		case "in_progress", "unavailable": // the latter on a busy machine, on which a heart pauses for longer than it may
			if time.Now().After(deadline) {
				tr.t.Fatalf("%+v is %s for ever: %s", p, outcome, reason)
			}
		case "in_doubt", "approval_required", "replay", "": // the last two are errors of the tool
			return m
		default:
			tr.t.Fatalf("%+v is answered with %s: %s", p, outcome, reason)
		}
	}
}

// approveAll decides on all that waits for people.
func (tr *trial) approveAll() {
	for _, id := range tr.w.pending() {
		out, err := tr.w.command("approve", id).CombinedOutput()
		tr.note("  approve %s: %s %v", id, strings.TrimSpace(string(out)), err)
	}
}

var chargeID = regexp.MustCompile(`ch_[0-9]+`)

// judge makes every call once more, and compares log, ledger and what agents were told.
func (tr *trial) judge() {
	tr.w.faults(nil)
	tr.end()
	tr.note("judge")
	if tr.spoilt {
		tr.judgeTales()
		return
	}
	for p := range tr.asked {
		tr.callAgain(p)
	}
	var log []logged
	tr.w.eventually("all claims to end", func() bool {
		log = tr.w.log()
		for _, e := range log {
			if e.State == "claimed" {
				return false
			}
		}
		return true
	})
	tr.judgeLog(log)
	tr.judgeTales()
	tr.judgePending(log)
}

// accountOf is which payment's arguments these are.
func accountOf(t *testing.T, arguments json.RawMessage) string {
	t.Helper()
	var a struct{ Account string }
	if err := json.Unmarshal(arguments, &a); err != nil {
		t.Fatalf("read arguments %s: %v", arguments, err)
	}
	return a.Account
}

// charges are the ids of what happened, by account.
func (tr *trial) charges() map[string][]string {
	ids := map[string][]string{}
	for _, e := range tr.w.entries("charge") {
		account := accountOf(tr.t, e.Arguments)
		ids[account] = append(ids[account], e.ID)
	}
	return ids
}

func (tr *trial) judgeLog(log []logged) {
	charges, known := tr.charges(), map[string]bool{}
	for account, ids := range charges {
		if len(ids) > 1 {
			tr.t.Errorf("the charge of %s happened %d times", account, len(ids))
		}
	}
	for _, e := range log {
		account := accountOf(tr.t, e.Arguments)
		known[e.Tool+account] = true
		if e.Tool != "charge" {
			continue
		}
		happened := len(charges[account]) > 0
		switch isReceipt := e.Answer != nil && !e.Answer.IsError && e.Answer.Kind == "result"; {
		case e.State == "committed" && isReceipt && !happened:
			tr.t.Errorf("effect %s is committed and never happened", e.ID)
		case happened && e.State != "committed" && e.State != "in_doubt":
			tr.t.Errorf("effect %s is %s, and happened as %v", e.ID, e.State, charges[account])
		}
	}
	for _, tool := range []string{"charge", "set_limit"} {
		for _, entry := range tr.w.entries(tool) {
			if account := accountOf(tr.t, entry.Arguments); !known[tool+account] {
				tr.t.Errorf("%s of %s happened and has no record", tool, account)
			}
		}
	}
}

// judgeTales fails where an agent was told of a charge that is not the one that happened.
func (tr *trial) judgeTales() {
	charges := tr.charges()
	for _, tale := range tr.told {
		id := chargeID.FindString(string(tale.message.Result))
		if tale.tool != "charge" || id == "" {
			continue
		}
		if ids := charges[fmt.Sprintf("a%d", tale.n)]; len(ids) != 1 || ids[0] != id {
			tr.t.Errorf("an agent was told of %s, the tool did %v", id, ids)
		}
	}
}

// judgePending fails where an effect is open and people are not told so.
func (tr *trial) judgePending(log []logged) {
	listed := tr.w.ran("pending", "--json")
	for _, e := range log {
		switch e.State {
		case "in_doubt", "waiting", "awaiting_approval":
			if !strings.Contains(listed, e.ID) {
				tr.t.Errorf("effect %s is %s and not pending:\n%s", e.ID, e.State, listed)
			}
		}
	}
}
