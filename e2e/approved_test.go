package e2e_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

// wantSent fails unless the one charge that was made has these arguments, digit for digit.
func (w *world) wantSent(arguments string) {
	w.t.Helper()
	entries := w.entries("charge")
	if len(entries) != 1 || string(entries[0].Arguments) != arguments {
		w.t.Errorf("sent %+v, want one charge %s", entries, arguments)
	}
}

// What goes out is what people were shown, also where another spelling has the same digest: as doubles these two
// are one number.
func TestApproved_digitsAreThoseThatWereShown(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	agent := w.agent("--hold", "0")
	shown := `{"account":"alice","amount":9007199254740992}`
	wantOutcome(t, agent.Call("1", "charge", shown), "approval_required")
	w.ran("approve", w.pending()[0])
	wantPaid(t, agent.Call("2", "charge", `{"amount":9007199254740993.0, "account":"alice"}`))
	w.wantSent(shown)
}

// Where the amount is no identity argument, a call of a small one is the same call as one of a large one that was
// approved, and sends the large one. It may not pass the rules and limits as a small one.
func TestApproved_rulesAndLimitsAreThoseOfWhatIsSent(t *testing.T) {
	rule := "  - {tool: charge, tier: irreversible, approve: always, identity: [account]"
	for name, policy := range map[string]string{
		"limit": "version: 1\ntools:\n" + rule + ", limits: [{name: sum, max: 1000, units: args.amount}]}\n",
		"deny":  "version: 1\ntools:\n  - {tool: charge, when: args.amount > 100, deny: too much}\n" + rule + "}\n",
		"rule":  "version: 1\ntools:\n  - {tool: charge, when: args.amount > 100, quorum: 2, approve: always, identity: [account]}\n" + rule + "}\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).withPolicy("version: 1\ntools:\n" + rule + "}\n")
			first := w.agent("--hold", "0", "--name", "bank")
			wantOutcome(t, first.Call("1", "charge", `{"account":"alice","amount":900}`), "approval_required")
			w.ran("approve", w.pending()[0])
			first.Kill()

			agent := w.withPolicy(policy).agent("--hold", "0", "--name", "bank")
			if m := agent.Call("2", "charge", `{"account":"alice","amount":1}`); m.Error == nil {
				t.Errorf("answered %s", m.Raw)
			}
			w.wantEffects("charge", 0)
		})
	}
	t.Run("others that mean the same to both", func(t *testing.T) {
		w := newWorld(t).withPolicy("version: 1\ntools:\n  - {tool: charge, when: args.amount > 100, tier: irreversible, approve: always, " +
			"volatile: [reference], limits: [{name: sum, max: 1000, units: args.amount}]}\n")
		agent := w.agent("--hold", "0")
		shown := `{"account":"alice","amount":900,"reference":"one"}`
		wantOutcome(t, agent.Call("1", "charge", shown), "approval_required")
		w.ran("approve", w.pending()[0])
		wantPaid(t, agent.Call("2", "charge", `{"account":"alice","amount":900,"reference":"two"}`))
		w.wantSent(shown)
	})
}

// A form that was filled in decides on what it showed, not on what people have made of the call meanwhile; and
// nobody fills in a form that was not shown.
func TestApproved_aFormIsForWhatItShowed(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(", elicitation: true"))
	url := w.httpGateway("--hold", "0", "--principal", "agent:ada")
	c := &modern{t: t, http: &mcptest.HTTP{URL: url, Version: "2026-07-28"}, can: `"elicitation":{"form":{}}`}
	state := func(m mcptest.Message) string {
		var asks struct{ RequestState string }
		if json.Unmarshal(m.Result, &asks) != nil || asks.RequestState == "" {
			t.Fatalf("want a question: %s", m.Raw)
		}
		return asks.RequestState
	}
	yes := func(state string) string {
		return fmt.Sprintf(`,"inputResponses":{"approval":{"action":"accept","content":{"approve":true}}},"requestState":%q`, state)
	}
	if m := c.call(yes("undolog-wait1.")); !strings.Contains(string(m.Raw), "requestState") {
		t.Errorf("a form of nobody was answered %s", m.Raw)
	}
	w.wantEffects("charge", 0)
	first := state(c.call(""))
	edited := filepath.Join(w.dir, "edited.json")
	writeFile(t, edited, `{"account":"mallory","amount":99}`)
	w.ran("edit", w.pending()[0], "--arguments", edited, "--reason", "another account")
	second := state(c.call(yes(first)))
	w.wantEffects("charge", 0)
	wantPaid(t, c.call(yes(second)))
	w.wantSent(`{"account":"mallory","amount":99}`)
}

// Whom the policy does not let approve gives no grant that counts, and no further run; where two must approve, two
// must have given one.
func TestApproved_byNobodyInAdvanceWhoMayNot(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(`, quorum: 2, approvers: ["user:cfo-*"]`))
	agent := w.agent("--hold", "0", "--name", "bank")
	grant := func(by string) {
		w.ran("grant", "give", "--server", "bank", "--tool", "charge", "--any", "--for", "1h", "--reason", "shift", "--by", by)
	}
	grant("user:intern")
	wantOutcome(t, agent.Call("1", "charge", charge10), "approval_required")
	id := w.pending()[0]
	w.ran("approve", id, "--by", "user:cfo-a")
	w.ran("approve", id, "--by", "user:cfo-b")
	wantPaid(t, agent.Call("2", "charge", charge10))
	w.ran("again", id, "--by", "user:intern", "--reason", "once more")
	wantOutcome(t, agent.Call("3", "charge", charge10), "approval_required")
	grant("user:cfo-a")
	wantOutcome(t, agent.Call("4", "charge", charge10), "approval_required")
	w.wantEffects("charge", 1)
	grant("user:cfo-b")
	wantPaid(t, agent.Call("5", "charge", `{"account":"bob","amount":10}`))
	w.wantEffects("charge", 2)
}
