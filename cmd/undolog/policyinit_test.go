package main

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/effect"
)

// Whatever a server calls itself and its tools, each rule of the policy that is written names its tool.
func TestStartingPolicy_NamesEveryTool(t *testing.T) {
	for _, name := range []string{"charge", "get[all]", `back\slash`, "a*b", "what?", `"quoted"`, "multi\nline", "a\u2028b", "tab\tnul\x01", "# hash", "ünïcode", "- dash", "null"} {
		t.Run(name, func(t *testing.T) {
			file := startingPolicy(name, []*mcp.Tool{
				{Name: "first", Description: "two\nlines: # of it"},
				{Name: name, Annotations: &mcp.ToolAnnotations{IdempotentHint: true}, InputSchema: map[string]any{"properties": map[string]any{name: nil}}},
			})
			policy, err := effect.ParsePolicy("undolog.yaml", file)
			if err != nil {
				t.Fatalf("%v\n%s", err, file)
			}
			c, err := policy.For(&effect.Call{Server: name + "-0a1b2c3d", Tool: name}, false)
			if err != nil {
				t.Fatal(err)
			}
			if c.Tier != effect.TierIdempotent || strings.Contains(c.Source, "no rule") {
				t.Errorf("tier %s by %s, want the rule's\n%s", c.Tier, c.Source, file)
			}
		})
	}
}
