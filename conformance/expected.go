package conformance

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml"
)

// ExpectedFailures are the ids of checks that are known to fail, as "id" for every subject or "id [subject]".
type ExpectedFailures []string

// ParseExpectedFailures reads a YAML list of ids; a comment beside each says why.
func ParseExpectedFailures(raw []byte) (ExpectedFailures, error) {
	var ids ExpectedFailures
	if err := yaml.Unmarshal(raw, &ids); err != nil {
		return nil, fmt.Errorf("read expected failures: %w", err)
	}
	for i, id := range ids {
		if id == "" || slices.Contains(ids[:i], id) {
			return nil, fmt.Errorf("read expected failures: entry %d is empty or repeated", i+1)
		}
	}
	return ids, nil
}

// Apply marks the results that the list speaks of. The list must shrink: what it names and passes, and what
// it names and is not there, makes the report not OK.
func (e ExpectedFailures) Apply(r *Report) {
	used := map[string]bool{}
	for i := range r.Results {
		res := &r.Results[i]
		id, ok := e.entry(res)
		if !ok {
			continue
		}
		used[id] = true
		switch res.Status {
		case Failed:
			res.Status = ExpectedFailed
		case Passed:
			res.Status = UnexpectedPass
			res.Details = []string{"take it out of the expected-failures file"}
		}
	}
	for _, id := range e {
		if !used[id] {
			r.Stale = append(r.Stale, id)
		}
	}
}

// entry is the list's entry for a result: of its subject, else of its id alone.
func (e ExpectedFailures) entry(r *Result) (string, bool) {
	for _, id := range []string{r.ID + " [" + r.Subject + "]", r.ID} {
		if slices.Contains(e, id) {
			return id, true
		}
	}
	return "", false
}
