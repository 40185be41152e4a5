package effect_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
)

func TestPolicy_ExplainSaysWhichRuleDecidesAndWhyNotThoseBefore(t *testing.T) {
	p := parse(t, `version: 1
tools:
  - {server: crm*, tool: charge}
  - {tool: [refund, "get_*"]}
  - {tool: charge, when: args.amount > 100, deny: too much}
  - {tool: charge, tier: idempotent, approve: args.amount > 50}
  - {tool: "*", tier: read}
`)
	before := []effect.Examined{
		{Line: 3, Why: `server "payments" is not crm*`},
		{Line: 4, Why: `tool "charge" is not refund, get_*`},
	}
	for _, tt := range []struct {
		name, arguments string
		want            []effect.Examined
	}{
		{"a condition that is true", `{"amount":101}`, append(before[:2:2], effect.Examined{Line: 5, Takes: true, Why: "when args.amount > 100 is true"})},
		{"a condition that is false", `{"amount":1}`, append(before[:2:2],
			effect.Examined{Line: 5, Why: "when args.amount > 100 is false"}, effect.Examined{Line: 6, Takes: true, Why: "it names the tool, and approve args.amount > 50 is false"})},
		{"a condition without a value", `{}`, append(before[:2:2], effect.Examined{
			Line: 5, Why: "when args.amount > 100 has no value (no such key: amount; where it is optional, the policy has to ask has(args.amount) first)",
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			call := callWith("charge", tt.arguments)
			got := p.Explain(call, false)
			if diff := cmp.Diff(tt.want, got.Rules); diff != "" {
				t.Errorf("rules (-want +got)\n%s", diff)
			}
			c, err := p.For(call, false)
			if got.Contract != c || (err != nil) != (got.Refusal != "") {
				t.Errorf("explained %+v (%s), decided %+v, %v", got.Contract, got.Refusal, c, err)
			}
		})
	}
	if none := parse(t, "version: 1\n").Explain(callWith("charge", ``), false); len(none.Rules) != 0 || !strings.Contains(none.Contract.Source, "no rule") {
		t.Errorf("without rules: %+v", none)
	}
}
