package effectinterceptor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
)

// knowing is a discard that knows one tool.
type knowing struct {
	discard
	tool store.Tool
}

func (d knowing) Tools(context.Context, string, string) ([]store.Tool, error) {
	return []store.Tool{d.tool}, nil
}

// BenchmarkPolicy is what a policy adds to the request phase of a call with 1 KiB of arguments in twenty
// members: 200 rules, of which the last holds and a few look at the arguments, and a schema of twenty properties.
// The difference to "none" is the cost.
func BenchmarkPolicy(b *testing.B) {
	definition, params := twenty()
	for _, c := range []struct{ name, policy string }{
		{"none", ""},
		{"rules", twoHundredRules("schemas: ignore")},
		{"rules and schema", twoHundredRules("schemas: check")},
		{"rules, schema, redaction", twoHundredRules("schemas: check, redact: [p03, /p04/inner]")},
	} {
		b.Run(c.name, func(b *testing.B) {
			digest, err := effect.DigestOf(definition)
			if err != nil {
				b.Fatal(err)
			}
			log, err := store.Open(knowing{tool: store.Tool{Tenant: "default", Server: "bank", Name: "pay", Digest: digest, Definition: definition}}, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				if err := log.Close(); err != nil {
					b.Error(err)
				}
			})
			p := newPhases(b)
			opts := &effectinterceptor.Options{Delivery: true}
			if c.policy != "" {
				if opts.Policy, err = effect.ParsePolicy("undolog.yaml", []byte(c.policy)); err != nil {
					b.Fatal(err)
				}
			}
			p.ei, p.host = effectinterceptor.New(log, opts), interceptors.NewServer(nil)
			if err := p.ei.Register(p.host, effectinterceptor.OwnEngine); err != nil {
				b.Fatal(err)
			}
			p.each(b, func() {
				p.invoke(effectinterceptor.GuardName, interceptors.PhaseRequest, params)
				p.invoke(effectinterceptor.EffectName, interceptors.PhaseRequest, params)
				p.ei.Delivered("X", time.Time{}, false)
			})
		})
	}
}

func twoHundredRules(last string) string {
	var out strings.Builder
	out.WriteString("version: 1\ntools:\n")
	for n := range 196 {
		fmt.Fprintf(&out, "  - {server: \"other%d\", tool: \"tool%d_*\", tier: idempotent}\n", n%7, n)
	}
	for n := range 3 {
		fmt.Fprintf(&out, "  - {tool: pay, when: 'args.p00 == \"rule %d\"', approve: always}\n", n)
	}
	out.WriteString("  - {tool: pay, tier: irreversible, approve: never, " + last + "}\n")
	return out.String()
}

// twenty is a tool of twenty properties and a call of it.
func twenty() (definition, params json.RawMessage) {
	var properties, arguments []string
	for n := range 20 {
		name := fmt.Sprintf("p%02d", n)
		switch n % 5 {
		case 0, 1:
			properties = append(properties, fmt.Sprintf(`%q:{"type":"string","minLength":1,"maxLength":200}`, name))
			arguments = append(arguments, fmt.Sprintf(`%q:%q`, name, strings.Repeat("x", 90)))
		case 2:
			properties = append(properties, fmt.Sprintf(`%q:{"type":"integer","minimum":0,"maximum":100000}`, name))
			arguments = append(arguments, fmt.Sprintf(`%q:%d`, name, n*7))
		case 3:
			properties = append(properties, fmt.Sprintf(`%q:{"enum":["EUR-1","USD-2","CHF-3"]}`, name))
			arguments = append(arguments, fmt.Sprintf(`%q:"CHF-3"`, name))
		default:
			properties = append(properties, fmt.Sprintf(`%q:{"type":"object","properties":{"inner":{"type":"string","pattern":"^[a-z-]+$"}},"required":["inner"]}`, name))
			arguments = append(arguments, fmt.Sprintf(`%q:{"inner":"some-words"}`, name))
		}
	}
	definition = json.RawMessage(`{"name":"pay","inputSchema":{"type":"object","additionalProperties":false,"required":["p00","p01"],"properties":{` + strings.Join(properties, ",") + `}}}`)
	return definition, json.RawMessage(`{"name":"pay","arguments":{` + strings.Join(arguments, ",") + `}}`)
}
