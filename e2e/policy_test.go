package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

const denyLarge = `version: 1
tools:
  - tool: charge
    when: args.amount > 100
    deny: charges above 100 are made at the counter
  - tool: charge
    tier: irreversible
    approve: never
    repeat: run
`

const denyAll = `version: 1
tools:
  - tool: charge
    deny: closed for the night
`

// A policy that changes is taken whole while calls come, and one that cannot be read is not taken at all.
func TestPolicy_changesUnderARunningGateway(t *testing.T) {
	for name, change := range map[string]func(w *world, agent *mcptest.Stdio, text string){
		"written over": func(w *world, _ *mcptest.Stdio, text string) { writeFile(w.t, w.policy, text) },
		"another file in its place": func(w *world, _ *mcptest.Stdio, text string) {
			next := filepath.Join(w.dir, "next.yaml")
			writeFile(w.t, next, text)
			if err := os.Rename(next, w.policy); err != nil {
				w.t.Fatal(err)
			}
		},
		"SIGHUP": func(w *world, agent *mcptest.Stdio, text string) {
			writeFile(w.t, w.policy, text)
			agent.Signal(syscall.SIGHUP)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).withPolicy(denyLarge)
			agent := w.agent()
			wantOutcome(t, agent.Call("1", "charge", `{"account":"a","amount":101}`), "denied")
			agent.Call("2", "charge", `{"account":"a","amount":1}`)
			w.wantEffects("charge", 1)

			change(w, agent, "version: 1\ntools: [{tool: charge, approve: perhaps(}]\n")
			w.eventually("the refusal of the bad file", func() bool { return strings.Contains(agent.Stderr(), "the one before stays in force") })
			agent.Call("3", "charge", `{"account":"a","amount":2}`)
			w.wantEffects("charge", 2)

			change(w, agent, denyAll)
			w.eventually("the policy that changed", func() bool { return strings.Contains(agent.Stderr(), "policy changed") })
			refused := agent.Call("4", "charge", `{"account":"a","amount":3}`)
			wantOutcome(t, refused, "denied")
			if _, reason := outcomeOf(t, refused); !strings.Contains(reason, "closed for the night") {
				t.Errorf("the agent is told %q, want the policy's reason", reason)
			}
			w.wantEffects("charge", 2)
		})
	}
}

// In shadow nothing is held back, and the report says what would have been.
func TestShadow_runsEverythingAndTellsWhatWouldHaveBeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withPolicy(`version: 1
tools:
  - tool: charge
    when: args.amount > 100
    deny: too much
  - tool: charge
    tier: irreversible
    approve: always
    repeat: replay
`)
	agent := w.agent("--shadow")
	for id, amount := range map[string]string{"1": "101", "2": "5", "3": "6"} {
		if _, err := agent.Call(id, "charge", `{"account":"a","amount":`+amount+`}`).Tool(); err != nil {
			t.Errorf("charge of %s under --shadow: %v", amount, err)
		}
	}
	w.wantEffects("charge", 3)
	agent.CloseStdin()
	agent.Wait()
	report := w.ran("report")
	for _, want := range []string{"1 denied", "2 asked"} {
		if !strings.Contains(report, want) {
			t.Errorf("report says nothing of %q:\n%s", want, report)
		}
	}
	policy := filepath.Join(w.dir, "started.yaml")
	writeFile(t, policy, w.ran("report", "--policy"))
	if said := w.ran("policy", "check", policy); !strings.Contains(said, "is a valid policy") {
		t.Errorf("the policy to start from is none: %s", said)
	}
}

// Of calls that are made at once no more run than a limit has room for, counted at the tool.
func TestLimit_holdsForCallsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withPolicy(`version: 1
tools:
  - tool: charge
    tier: irreversible
    approve: never
    limits:
      - {name: spend, per: principal, max: 50, within: 1h, units: args.amount}
`)
	agents := []*mcptest.Stdio{w.agent(), w.agent(), w.agent()}
	answers := callAll(t, agents, 30, func(i int) string {
		return `{"name":"charge","arguments":{"account":"` + string(rune('a'+i)) + `","amount":10}}`
	})
	limited := 0
	for _, m := range answers {
		if m.Error != nil {
			wantOutcome(t, m, "limit")
			limited++
		}
	}
	w.wantEffects("charge", 5)
	if limited != 25 {
		t.Errorf("%d calls were told of the limit, want 25", limited)
	}
}
