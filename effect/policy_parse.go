package effect

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"time"

	"github.com/undolog/undolog/internal/timespan"
	"github.com/undolog/undolog/internal/yamlfile"
)

// ParsePolicy reads a policy file. name is shown in errors and in Contract.Source. The error joins one
// *PolicyError for everything that is wrong, in the order of the file.
func ParsePolicy(name string, data []byte) (*Policy, error) {
	f, err := yamlfile.Read(name, "policy", data)
	if err != nil {
		return nil, err
	}
	if err := compiledSchema().Check(f); err != nil {
		return nil, err
	}
	var p policyFile
	if err := json.Unmarshal(f.JSON, &p); err != nil {
		return nil, f.Errorf(yamlfile.Place{}, "%v", err)
	}
	if err := checkRules(f, p.Tools); err != nil {
		return nil, err
	}
	retention, err := readRetention(f, p.Retention)
	if err != nil {
		return nil, err
	}
	sum, err := DigestOf(f.JSON)
	if err != nil {
		return nil, f.Errorf(yamlfile.Place{}, "%v", err)
	}
	return &Policy{Digest: sum.String(), Retention: retention, name: filepath.Base(name), servers: p.Servers, tools: p.Tools}, nil
}

func readRetention(f *yamlfile.File, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := timespan.Parse(text)
	if err != nil {
		return 0, f.Errorf(f.Key("retention"), "retention: %v", err)
	}
	if d <= 0 {
		return 0, f.Errorf(f.Key("retention"), "retention must be longer than nothing")
	}
	return d, nil
}

// checkRules completes the rules with what the schema cannot read and returns what contradicts itself.
func checkRules(f *yamlfile.File, rules []toolRule) error {
	var found []error
	limits := map[string]namedLimit{}
	for i := range rules {
		c := ruleCheck{file: f, rule: &rules[i], location: []string{"tools", strconv.Itoa(i)}, limits: limits}
		rules[i].line = f.Value(c.location...).Line
		c.durations()
		c.expressions()
		c.counted()
		c.contradictions()
		found = append(found, c.found...)
	}
	return yamlfile.InOrder(found)
}
