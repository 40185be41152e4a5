package effect_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undolog/undolog/effect"
)

func callWith(tool, arguments string) *effect.Call {
	return &effect.Call{Server: "payments", Tool: tool, Principal: "agent:bot", Arguments: json.RawMessage(arguments)}
}

func TestPolicy_ForTakesTheFirstRuleWhoseConditionHolds(t *testing.T) {
	p := parse(t, `version: 1
tools:
  - {tool: charge, when: "args.amount > 1000", deny: too much}
  - {tool: charge, when: "args.amount > 100", tier: irreversible, quorum: 2}
  - {tool: "*", when: "principal == 'agent:auditor'", tier: read}
  - {tool: charge, tier: idempotent, approve: "args.currency != 'EUR'"}
  - {tool: "*", when: "annotations.destructiveHint", tier: irreversible}
`)
	auditor := callWith("charge", `{"amount":1,"currency":"EUR"}`)
	auditor.Principal = "agent:auditor"
	for _, tt := range []struct {
		name   string
		call   *effect.Call
		source string
		want   effect.Contract
	}{
		{"the first", callWith("charge", `{"amount":1001}`), "undolog.yaml:3", effect.Contract{Tier: effect.TierIrreversible, Deny: "too much", Asking: effect.Asking{Quorum: 1}}},
		{"the second", callWith("charge", `{"amount":101}`), "undolog.yaml:4", effect.Contract{Tier: effect.TierIrreversible, Approve: true, Asking: effect.Asking{Quorum: 2}}},
		{"by who calls", auditor, "undolog.yaml:5", effect.Contract{Tier: effect.TierRead, Asking: effect.Asking{Quorum: 1}}},
		{"the last, where it asks", callWith("charge", `{"amount":1,"currency":"USD"}`), "undolog.yaml:6", effect.Contract{Tier: effect.TierIdempotent, Approve: true, Asking: effect.Asking{Quorum: 1}}},
		{"the last, where it does not", callWith("charge", `{"amount":1,"currency":"EUR"}`), "undolog.yaml:6", effect.Contract{Tier: effect.TierIdempotent, Asking: effect.Asking{Quorum: 1}}},
		{"by what is taken for granted of a tool that nobody describes", callWith("refund", `{}`), "undolog.yaml:7", effect.Contract{Tier: effect.TierIrreversible, Approve: true, Asking: effect.Asking{Quorum: 1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // the second comes from the cache
				got, err := p.For(tt.call, false)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(got.Source, "policy "+tt.source) {
					t.Errorf("decided by %s, want %s", got.Source, tt.source)
				}
				brief := effect.Contract{Tier: got.Tier, Deny: got.Deny, Approve: got.Approve, Asking: effect.Asking{Quorum: got.Asking.Quorum}}
				if diff := cmp.Diff(tt.want, brief); diff != "" {
					t.Errorf("contract (-want +got)\n%s", diff)
				}
			}
		})
	}
}

func TestPolicy_ForSharesContracts(t *testing.T) {
	p := parse(t, "version: 1\ntools:\n  - {tool: charge, approve: 'args.amount > 1'}\n")
	get := func(arguments string) *effect.Contract {
		c, err := p.For(callWith("charge", arguments), false)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if small, large := get(`{"amount":1}`), get(`{"amount":2}`); small == large || small.Approve || !large.Approve {
		t.Error("both contracts are the same")
	}
	if get(`{"amount":1}`) != get(`{"amount":0}`) || get(`{"amount":2}`) != get(`{"amount":3}`) {
		t.Error("a contract was resolved twice")
	}
}

// Fail closed: where it cannot be said which rule holds, or whether it asks, nothing runs.
func TestPolicy_ForRefusesWhatItCannotJudge(t *testing.T) {
	const rules = `version: 1
tools:
  - tool: charge
    when: args.amount > 1000
    deny: too much
  - tool: refund
    tier: idempotent
    approve: args.to.name == "x"
  - {tool: "*", tier: read}
`
	for _, tt := range []struct {
		name string
		call *effect.Call
		want []string
	}{
		{"a condition over an argument that is not there", callWith("charge", `{}`), []string{"when of policy undolog.yaml:3", "no such key: amount", "has(args.amount)"}},
		{"a condition over another type", callWith("charge", `{"amount":"9"}`), []string{"when of policy undolog.yaml:3", "another type"}},
		{"an approval that depends on what is not there", callWith("refund", `{}`), []string{"approve of policy undolog.yaml:6", "no such key: to", "has(args.to)"}},
		{"arguments that are no object", callWith("charge", `[]`), []string{"cannot be read"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := parse(t, rules)
			c, err := p.For(tt.call, false)
			invalid, ok := errors.AsType[*effect.InvalidError](err)
			if !ok || c != nil || invalid.Pointer != "/arguments" {
				t.Fatalf("For = %+v, %v, want an *InvalidError of the arguments", c, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(invalid.Reason, want) {
					t.Errorf("reason %q does not contain %q", invalid.Reason, want)
				}
			}
			shadow, err := p.InShadow().For(tt.call, false)
			if err != nil || !shadow.Shadow || !strings.Contains(shadow.Deny, tt.want[0]) {
				t.Errorf("in shadow: %+v, %v", shadow, err)
			}
		})
	}
	p := parse(t, rules)
	if c, err := p.For(callWith("list", `[]`), false); err != nil || c.Tier != effect.TierRead {
		t.Errorf("a tool whose rules look at no arguments: %+v, %v", c, err)
	}
	if c, err := p.InShadow().For(callWith("refund", `{"to":{"name":"x"}}`), false); err != nil || !c.Shadow || !c.Approve {
		t.Errorf("in shadow, what can be judged: %+v, %v", c, err)
	}
}

func TestPolicy_ConditionsBelieveTrustedServersOnly(t *testing.T) {
	p := parse(t, `version: 1
servers: [{server: files, trust: true}, {server: evil, trust: false}]
tools:
  - {tool: get, when: annotations.readOnlyHint, tier: read}
  - {tool: get, when: "!annotations.destructiveHint", tier: idempotent}
  - {tool: get, tier: irreversible}
`)
	harmless := &effect.Annotations{Harmless: true}
	for _, tt := range []struct {
		server  string
		ann     *effect.Annotations
		trusted bool
		want    effect.Tier
	}{
		{"files", readOnly, false, effect.TierRead},
		{"files", harmless, false, effect.TierIdempotent},
		{"files", nil, false, effect.TierIrreversible},
		{"evil", readOnly, true, effect.TierIrreversible},
		{"unnamed", readOnly, true, effect.TierRead},
		{"unnamed", readOnly, false, effect.TierIrreversible},
	} {
		if got := contractOf(t, p, tt.server, "get", tt.ann, tt.trusted).Tier; got != tt.want {
			t.Errorf("%s, %+v, trusted %t: %s, want %s", tt.server, tt.ann, tt.trusted, got, tt.want)
		}
	}
}

func TestPolicy_ReadsThatAreHeldCountAsIdempotent(t *testing.T) {
	p := parse(t, `version: 1
servers: [{server: "*", trust: true}]
tools:
  - {tool: asked, approve: always}
  - {tool: sometimes, approve: "has(args.x)"}
  - {tool: denied, tier: read, deny: "no"}
  - {tool: counted, limits: [{name: l, max: 1}]}
  - {tool: pinned, definition: "b3:`+strings.Repeat("ab", 32)+`"}
  - {tool: free, approve: never}
`)
	for tool, want := range map[string]effect.Tier{
		"asked": effect.TierIdempotent, "sometimes": effect.TierIdempotent, "denied": effect.TierIdempotent,
		"counted": effect.TierIdempotent, "pinned": effect.TierIdempotent, "free": effect.TierRead,
	} {
		if got := contractOf(t, p, "s", tool, readOnly, true).Tier; got != want {
			t.Errorf("tier of %s = %s, want %s", tool, got, want)
		}
	}
}

func TestPolicy_EveryFieldOfApprovalsReachesTheContract(t *testing.T) {
	p := parse(t, `version: 1
tools:
  - tool: charge
    tier: irreversible
    approve: always
    quorum: 2
    approvers: ["user:finance-*", "user:carol"]
    decide_within: 2d
    use_within: 90s
    elicitation: true
    definition: b3:`+strings.Repeat("0f", 32)+`
    limits:
      - {name: calls, max: 10}
      - {name: euros, per: tenant, max: 99.5, within: 1d, units: args.amount}
      - {name: nightly, per: run, max: 1, within: 1h}
    schemas: ignore
    redact: [card, /to/*/iban]
    redact_result: [/structuredContent/token]
    inject: {header: Idempotency-Key}
    probe:
      server: ledger
      tool: find
      arguments: '{"ref": key}'
      verdict: result.state
`)
	got := contractOf(t, p, "payments", "charge", nil, false)
	var pinned effect.Digest
	for i := range pinned {
		pinned[i] = 0x0f
	}
	want := &effect.Contract{
		Tier: effect.TierIrreversible, Window: 10 * time.Minute, Repeat: effect.RepeatAsk, RepeatError: effect.RepeatReplay,
		Lookalike: effect.RepeatRun, Annotate: true, OnToolError: effect.StateCommitted, Detach: true,
		Timeout: 10 * time.Minute, Lease: 5 * time.Minute, Approve: true,
		Asking: effect.Asking{Quorum: 2, Approvers: []string{"user:finance-*", "user:carol"}, DecideFor: 48 * time.Hour, UseFor: 90 * time.Second, Host: true},
		Limits: []effect.Limit{
			{Name: "calls", Per: effect.PerPrincipal, Max: 10 * effect.Unit},
			{Name: "euros", Per: effect.PerTenant, Max: 99_500_000, Within: 24 * time.Hour},
			{Name: "nightly", Per: effect.PerRun, Max: effect.Unit, Within: time.Hour},
		},
		Definition: pinned, Redact: []string{"card", "/to/*/iban"}, RedactResult: []string{"/structuredContent/token"},
		Inject: effect.Inject{Into: effect.InjectHeader, Name: "Idempotency-Key"}, Source: "policy undolog.yaml:3",
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(effect.Contract{}, "Probe"), cmpopts.IgnoreFields(effect.Limit{}, "Units")); diff != "" {
		t.Errorf("contract (-want +got)\n%s", diff)
	}
	if u := got.Limits[1].Units; u == nil || u.Text() != "args.amount" || got.Limits[0].Units != nil {
		t.Errorf("units %+v", got.Limits)
	}
	if got.Probe == nil || got.Probe.Server != "ledger" || got.Probe.Tool != "find" {
		t.Fatalf("probe %+v", got.Probe)
	}
	if arguments, err := got.Probe.Arguments(&effect.Call{Key: "k"}); err != nil || string(arguments) != `{"ref":"k"}` {
		t.Errorf("the probe's arguments = %s, %v", arguments, err)
	}
	for into, name := range map[string]effect.Inject{
		"argument: ref": {Into: effect.InjectArgument, Name: "ref"}, "meta: a/b": {Into: effect.InjectMeta, Name: "a/b"},
	} {
		p := parse(t, "version: 1\ntools:\n  - {tool: a, inject: {"+into+"}}\n")
		if got := contractOf(t, p, "s", "a", nil, false).Inject; got != name {
			t.Errorf("inject %s = %+v", into, got)
		}
	}
}

func TestPolicy_ForIsSafeForConcurrentUse(t *testing.T) {
	p := parse(t, "version: 1\ntools:\n  - {tool: charge, when: 'args.n % 2 == 0', tier: idempotent}\n  - {tool: '*', tier: irreversible, approve: 'args.n > 100'}\n")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 300 {
				c, err := p.For(callWith("charge", fmt.Sprintf(`{"n":%d}`, n)), i%2 == 0)
				if err != nil || (c.Tier == effect.TierIdempotent) != (n%2 == 0) || c.Approve != (n%2 == 1 && n > 100) {
					t.Errorf("n = %d: %+v, %v", n, c, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestParsePolicy_SaysWhatIsWrongWithApprovals(t *testing.T) {
	rule := func(fields string) string { return "version: 1\ntools:\n  - tool: a\n" + fields }
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"a condition that is none", rule("    when: arg.amount > 1\n"), []string{`p.yaml:4:5: when: compile "arg.amount > 1": at character 1: undeclared reference to 'arg' (did you mean 'args'?)`}},
		{"a condition that is a number", rule("    when: '1'\n"), []string{`p.yaml:4:5: when: compile "1": it is a int, and must be a bool`}},
		{"a condition without quotes that is no text", rule("    when: true\n"), []string{`p.yaml:4:11: when is true or false: it must be text`}},
		{"an approval that is a typing error", rule("    approve: alwayss\n"), []string{`p.yaml:4:5: approve: compile "alwayss": at character 1: undeclared reference to 'alwayss': write never, always or a condition`}},
		{"two rules, both wrong", "version: 1\ntools:\n  - {tool: a, when: '('}\n  - {tool: b, approve: 'x'}\n", []string{
			`p.yaml:3:15: when: compile "(": at character 2: Syntax error: mismatched input '<EOF>'`,
			`p.yaml:4:15: approve: compile "x": at character 1: undeclared reference to 'x': write never, always or a condition`,
		}},
		{"a quorum of nobody", rule("    quorum: 0\n"), []string{"p.yaml:4:13: quorum is 0: it must be at least 1"}},
		{"a quorum that nobody reaches", rule("    quorum: 3\n    approvers: [\"user:a\", \"user:b\"]\n"), []string{"p.yaml:4:5: quorum is 3 and approvers names 2: nobody could approve; name more people or ask fewer"}},
		{"an approver who is an agent", rule("    approvers: [\"agent:a\"]\n"), []string{`p.yaml:4:17: approvers is "agent:a": it must be user:NAME, or a glob such as user:*`}},
		{"no time to decide", rule("    decide_within: 0s\n    use_within: 0d\n"), []string{"p.yaml:4:5: decide_within must be longer than nothing", "p.yaml:5:5: use_within must be longer than nothing"}},
		{"a denial that asks", rule("    deny: no way\n    approve: always\n    limits: [{name: l, max: 1}]\n"), []string{
			"p.yaml:5:5: approve does nothing where deny refuses every call: take one of them away",
			"p.yaml:6:5: limits does nothing where deny refuses every call: take one of them away",
		}},
		{"a read that is counted", rule("    tier: read\n    limits: [{name: l, max: 1}]\n"), []string{
			"p.yaml:5:5: limits does nothing for tier read, whose calls always run: take it away or give another tier",
		}},
		{"a read that asks sometimes", rule("    tier: read\n    approve: has(args.x)\n"), []string{"p.yaml:5:5: a call of tier read is never held: take approve away or give another tier"}},
		{"a limit without a name", rule("    limits: [{max: 1}]\n"), []string{"p.yaml:4:15: name is missing in this entry: add it"}},
		{"a limit of nothing", rule("    limits: [{name: l, max: 0}]\n"), []string{`p.yaml:4:24: max must be more than nothing: "deny" refuses every call`}},
		{"a limit below nothing", rule("    limits: [{name: l, max: -1}]\n"), []string{"p.yaml:4:24: max: -1 is no amount"}},
		{"a limit of half a call", rule("    limits: [{name: l, max: 0.5}]\n"), []string{"p.yaml:4:24: max is a part of a call: write a whole number, or say in units what is counted"}},
		{"a limit per something else", rule("    limits: [{name: l, max: 1, per: day}]\n"), []string{"p.yaml:4:37: per is \"day\": write run, principal or tenant"}},
		{"a limit of units that are none", rule("    limits: [{name: l, max: 1, units: principal}]\n"), []string{`p.yaml:4:32: units: compile "principal": it is a string, and must be a int or uint or double`}},
		{"two limits of one name", "version: 1\ntools:\n  - {tool: a, limits: [{name: l, max: 1}]}\n  - {tool: b, limits: [{name: l, max: 2}]}\n", []string{
			"p.yaml:4:25: limit l has another per, max or within in the rule in line 3: make them the same, or give this one its own name",
		}},
		{"one limit twice", rule("    limits: [{name: l, max: 1}, {name: l, max: 1}]\n"), []string{"p.yaml:4:34: limit l is here twice: keep one"}},
		{"a digest of nothing", rule("    definition: b3:" + strings.Repeat("0", 64) + "\n"), []string{
			`p.yaml:4:5: definition: "b3:` + strings.Repeat("0", 64) + `" is no digest: want b3: and 64 hex digits, not all zero`,
		}},
		{"a digest that is none", rule("    definition: b3:12\n"), []string{`p.yaml:4:17: definition is "b3:12": it must be a digest, b3: and 64 hex digits`}},
		{"a key in two places", rule("    inject: {argument: a, header: b}\n"), []string{"p.yaml:4:14: inject has 2 members: keep 1"}},
		{"a key in no place", rule("    inject: {}\n"), []string{"p.yaml:4:13: inject is empty: give it a member or take it away"}},
		{"a key in an identity argument", rule("    inject: {argument: ref}\n    identity: [ref]\n"), []string{"p.yaml:4:5: ref gets our key and never counts as identity: take it out of identity and volatile"}},
		{"a header that is none", rule("    inject: {header: \"a b\"}\n"), []string{`p.yaml:4:22: header is "a b": it must be the name of an HTTP header`}},
		{"a probe without a verdict", rule("    probe: {tool: get}\n"), []string{"p.yaml:4:13: verdict is missing in this entry: add it"}},
		{"a probe that does not compile", rule("    probe:\n      tool: get\n      arguments: '[1]'\n      verdict: nope\n"), []string{
			`p.yaml:6:7: arguments: compile "[1]": it is a list(int), and must be a map(string, dyn)`,
			`p.yaml:7:7: verdict: compile "nope": at character 1: undeclared reference to 'nope'`,
		}},
		{"a place to redact that is none", rule("    redact: [/a~2]\n"), []string{`p.yaml:4:14: redact is "/a~2": it must be an argument's name, or a JSON pointer such as /meta/ts (with ~1 for / and ~0 for ~)`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := effect.ParsePolicy("p.yaml", []byte(tt.text))
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(tt.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("error (-want +got)\n%s", diff)
			}
		})
	}
}

func TestPolicy_WarnsOfWhatDoesNothing(t *testing.T) {
	p := parse(t, `version: 1
tools:
  - {tool: send, tier: irreversible, approve: never, repeat: run, quorum: 2}
  - {tool: send, tier: irreversible, when: "args.x == 1"}
  - {tool: charge, when: "args.x == 1"}
  - {tool: charge, probe: {tool: send, verdict: '"unknown"'}}
  - {tool: refund, probe: {tool: find, verdict: '"unknown"'}}
  - {tool: find, tier: read}
  - {tool: mail, tier: irreversible, approve: never, approvers: ["user:a"]}
`)
	want := []string{
		"undolog.yaml:3: nobody is asked about calls of these tools, so that what the rule says about approvals does nothing",
		"undolog.yaml:4: never used: the rule in line 3 names the same tools first",
		"undolog.yaml:6: the probe is not made: its tool send is irreversible by the rule in line 3, and a probe only reads",
	}
	if diff := cmp.Diff(want, p.Warnings()); diff != "" {
		t.Errorf("Warnings (-want +got)\n%s", diff)
	}
}
