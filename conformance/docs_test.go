package conformance_test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/hostcheck"
)

// TestDocs_NameWhatIsThere keeps the table of docs/conformance.md true: files exist, ids with an ellipsis
// begin a case's, and every behavior and feature that the suite uses is described.
func TestDocs_NameWhatIsThere(t *testing.T) {
	raw, err := os.ReadFile("../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	suite, err := conformance.Suite()
	if err != nil {
		t.Fatalf("Suite: %v", err)
	}
	for line := range strings.Lines(page) {
		checkFiles(t, line)
		checkCases(t, line, suite)
	}
	for _, f := range suite {
		for _, in := range f.Interceptors {
			if !strings.Contains(page, "`"+in.Behavior+"`") && conformance.BehaviorFeature(in.Behavior) != "" && !publishedBehavior[in.Behavior] {
				t.Errorf("the behavior %s of %s is not described", in.Behavior, f.ID)
			}
		}
	}
}

var publishedBehavior = map[string]bool{
	"allow-all": true, "deny-all": true, "require-note": true, "require-uppercase-note": true, "uppercase-note": true,
	"crash": true, "cross-boundary-guard": true, "secretless-redactor": true,
}

var file = regexp.MustCompile("`([a-z0-9_/]+\\.go)`")

func checkFiles(t *testing.T, line string) {
	dir := ""
	for _, m := range file.FindAllStringSubmatch(line, -1) {
		name := m[1]
		if d := path.Dir(name); d != "." {
			dir = d
		}
		if _, err := os.Stat(path.Join("..", dir, path.Base(name))); err != nil {
			t.Errorf("%s: %v", strings.TrimSpace(line), err)
		}
	}
}

var cases = regexp.MustCompile("`((?:engine|host|wire|gateway|guard|protocol)/[a-z0-9-]+)…?`")

func checkCases(t *testing.T, line string, suite []*conformance.Fixture) {
	for _, m := range cases.FindAllStringSubmatch(line, -1) {
		if slices.Contains(hostcheck.IDs(), m[1]) {
			continue
		}
		found := false
		for _, f := range suite {
			found = found || strings.HasPrefix(f.ID, m[1])
		}
		if !found {
			t.Errorf("no case begins with %s", m[1])
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(simple)
	f.Add(`[]`)
	f.Add(`{"id":"x","steps":[{"op":"list","event":null,"expect":{"result":{"interceptors":[]}}}],"volatile":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		fixtures, err := load(t, map[string]string{"a.json": text})
		if err != nil {
			return
		}
		for _, fixture := range fixtures {
			_, _ = conformance.Replay(t.Context(), &scripted{has: true}, fixture) // must not panic
		}
	})
}
