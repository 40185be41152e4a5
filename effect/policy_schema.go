package effect

import (
	_ "embed"
	"sync"

	"github.com/undolog/undolog/internal/yamlfile"
)

//go:embed policy.schema.json
var policySchema string

// PolicySchema returns the JSON Schema of policy files.
func PolicySchema() string { return policySchema }

// PolicyError is one thing that is wrong in a policy file, and what to do about it.
type PolicyError = yamlfile.Error

var compiledSchema = sync.OnceValue(func() *yamlfile.Schema {
	return yamlfile.NewSchema("https://undolog.dev/policy.schema.json", policySchema, yamlfile.Words{
		Pattern: patternHint,
		Unknown: func(location []string, name string) string {
			if name == "compensate" && len(location) > 0 && location[0] == "tools" {
				return "compensate is reserved: this version cannot compensate, take it away"
			}
			return ""
		},
	})
})

func patternHint(name string) string {
	switch name {
	case "window", "timeout", "lease", "decide_within", "use_within", "within":
		return "it must be a duration such as 90s, 10m, 1h30m or 2d"
	case "approvers":
		return "it must be user:NAME, or a glob such as user:*"
	case "definition":
		return "it must be a digest, b3: and 64 hex digits"
	case "header":
		return "it must be the name of an HTTP header"
	}
	return "it must be an argument's name, or a JSON pointer such as /meta/ts (with ~1 for / and ~0 for ~)"
}
