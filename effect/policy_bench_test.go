package effect_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/undolog/undolog/effect"
)

// manyRules is a policy of 200 rules. The last decides on charge: those before it name other tools, but for so
// many that name it and have a condition that is false.
func manyRules(b *testing.B, conditions int) *effect.Policy {
	var text strings.Builder
	text.WriteString("version: 1\ntools:\n")
	for i := range 199 {
		if i < conditions {
			fmt.Fprintf(&text, "  - {tool: 'c*', when: 'args.amount > %d && args.account.startsWith(\"DE\")', deny: no}\n", 1000+i)
			continue
		}
		fmt.Fprintf(&text, "  - {tool: 'other_%d_*', tier: read}\n", i)
	}
	text.WriteString("  - {tool: charge, approve: args.amount > 900}\n")
	p, err := effect.ParsePolicy("p.yaml", []byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// BenchmarkPolicy_For is what a policy of 200 rules costs a call of 1 KiB: its glance at the cache alone, one
// condition, and a condition in every rule.
func BenchmarkPolicy_For(b *testing.B) {
	call := callWith("charge", `{"account":"DE02120300000000202051","amount":1250.50e-2,"lines":[1,2,3],"note":"`+strings.Repeat("x", 950)+`"}`)
	for _, conditions := range []int{0, 20, 199} {
		p := manyRules(b, conditions)
		b.Run(fmt.Sprintf("%d conditions", conditions), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.For(call, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
