package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const explainedPolicy = `version: 1
tools:
  - {server: payments, tool: charge, when: args.amount > 1000, deny: too much for an agent}
  - server: payments
    tool: charge
    tier: irreversible
    identity: [account, amount]
    approve: args.amount > 100
    quorum: 2
    approvers: ["user:finance-*"]
    limits: [{name: daily, max: 5000, within: 1d, units: args.amount}]
    redact: [card]
  - {tool: "get_*", tier: read}
  - {tool: sync}
`

func TestPolicyExplain_saysWhatHoldsAndWhy(t *testing.T) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "p.yaml")
	if err := os.WriteFile(policy, []byte(explainedPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, call string
		args       []string
		want       []string
	}{
		{"a denied call", `{"name":"charge","arguments":{"amount":2000}}`, []string{"--server", "payments"},
			[]string{"line 3 yes when args.amount > 1000 is true", "Decided by policy p.yaml:3", "it is denied: too much for an agent"}},
		{"a call that asks", `{"name":"charge","arguments":{"account":"DE1","amount":200}}`, []string{"--server", "payments", "--principal", "agent:bot"},
			[]string{"line 3 no when args.amount > 1000 is false", "line 4 yes it names the tool, and approve args.amount > 100 is true",
				"approval by 2 of user:finance-*, within 24h0m0s; to be used within 1h0m0s", "daily: 5000 of args.amount within 24h0m0s, per principal",
				"who calls, server, tool and account, amount, for 10m0s", "in doubt until a person settles it", "kept nowhere card"}},
		{"a whole request, of another server", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","_meta":{"dev.undolog/idempotency-key":"k1"}}}`, nil,
			[]string{`line 4 no server "" is not payments`, "Decided by policy p.yaml (no rule), default", "recognised by its key k1"}},
		{"a call with its surroundings", `{"server":"files","principal":"agent:bot","run":"r1","annotations":{"idempotentHint":true},"params":{"name":"sync"}}`, nil,
			[]string{"Decided by policy p.yaml:14, annotations", "tier idempotent", "its run r1, server, tool and all arguments", "it runs again"}},
		{"a call that cannot be judged", `{"name":"charge"}`, []string{"--server", "payments"},
			[]string{"line 3 no when args.amount > 1000 has no value (no such key: amount", "The call is refused: ", "p.yaml:3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			call := filepath.Join(t.TempDir(), "call.json")
			if err := os.WriteFile(call, []byte(tt.call), 0o600); err != nil {
				t.Fatal(err)
			}
			out, code := said(t, append([]string{"policy", "explain", "--policy", policy, call}, tt.args...)...)
			if code != exitOK {
				t.Errorf("exit code %d", code)
			}
			words := strings.Join(strings.Fields(out), " ")
			for _, want := range tt.want {
				if !strings.Contains(words, want) {
					t.Errorf("said\n%s\nwant in it %q", out, want)
				}
			}
			out, _ = said(t, append([]string{"policy", "explain", "--json", "--policy", policy, call}, tt.args...)...)
			var x explanationJSON
			if err := json.Unmarshal([]byte(out), &x); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if (x.Contract == nil) == (x.Refused == "") || x.Policy == "" || len(x.Rules) == 0 {
				t.Errorf("as JSON: %s", out)
			}
		})
	}
}

func TestPolicyExplain_refusesWhatIsNoCall(t *testing.T) {
	dir := t.TempDir()
	policy, call := filepath.Join(dir, "p.yaml"), filepath.Join(dir, "call.json")
	if err := os.WriteFile(policy, []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"{}": "it has no name", "[": "call.json", `{"name":7}`: "call.json"} {
		if err := os.WriteFile(call, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := said(t, "policy", "explain", "--policy", policy, call); code != exitFailed || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, said %q", text, code, out)
		}
	}
	if out, code := said(t, "policy", "explain", "--policy", filepath.Join(dir, "none.yaml"), call); code != exitFailed || !strings.Contains(out, "none.yaml") {
		t.Errorf("without a policy: exit code %d, said %q", code, out)
	}
}
