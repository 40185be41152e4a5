package conformance_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/enginecheck"
	"github.com/undolog/undolog/conformance/goadapter"
)

// row is a line of the table of docs/conformance.md that says which cases a requirement has, and where they
// run.
type row struct {
	id     string
	cases  []string // beginnings of ids
	places string
}

var rowLine = regexp.MustCompile(`^\| ([HWEG]\d+) \| [^|]+ \| ([^|]+) \| ([^|]+) \| [^|]*\|$`)

func documentedRows(t *testing.T) []row {
	t.Helper()
	page, err := os.ReadFile("../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for line := range strings.Lines(string(page)) {
		m := rowLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		r := row{id: m[1], places: strings.TrimSpace(m[3])}
		for id := range strings.SplitSeq(m[2], ",") {
			r.cases = append(r.cases, strings.Trim(strings.TrimSpace(id), "`…"))
		}
		rows = append(rows, r)
	}
	return rows
}

// rowOf finds the row that a case is of by its id.
var rowOf = regexp.MustCompile(`^[a-z]+/([hweg])0*(\d+)-`)

func TestDocs_EveryRowHasItsCases(t *testing.T) {
	suite, err := conformance.Suite()
	if err != nil {
		t.Fatalf("Suite: %v", err)
	}
	rows := documentedRows(t)
	if len(rows) < 68 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	documented := map[string]bool{}
	for _, r := range rows {
		if documented[r.id] {
			t.Errorf("row %s is there twice", r.id)
		}
		documented[r.id] = true
		places := map[string]bool{}
		for _, begin := range r.cases {
			found := false
			for _, f := range suite {
				if strings.HasPrefix(f.ID, begin+"-") {
					found = true
					where(f, places)
				}
			}
			if !found {
				t.Errorf("row %s: no case begins with %s", r.id, begin)
			}
		}
		if diff := cmp.Diff(inOrder(places), r.places); diff != "" {
			t.Errorf("where the cases of row %s run (-is +documented)\n%s", r.id, diff)
		}
	}
	for _, f := range suite {
		if m := rowOf.FindStringSubmatch(f.ID); m != nil && !documented[strings.ToUpper(m[1])+m[2]] {
			t.Errorf("case %s is of a row that the table has not", f.ID)
		}
	}
}

// where adds the places in which a case runs.
func where(f *conformance.Fixture, places map[string]bool) {
	for _, transport := range goadapter.Transports {
		a := &goadapter.Adapter{Transport: transport}
		if !slices.ContainsFunc(f.Needs(), func(need conformance.Feature) bool { return !a.Has(need) }) {
			places[string(transport)] = true
		}
	}
	if f.Policy.DeadlineMs > 0 {
		return // a chain file has none
	}
	for _, posture := range []conformance.Posture{conformance.PostureClient, conformance.PostureServer} {
		e := enginecheck.Engine{Posture: posture, Limited: true, Alerts: true,
			Configure: func(*conformance.Fixture, map[string]string) (string, error) { return "", nil },
			Arguments: func(*conformance.Fixture) []string { return nil }}
		if e.Skips(f) == "" {
			places["engine"] = true
		}
		if e.URL, e.Tokens = "http://{listen}", map[string]string{"alice": "a", "bob": "b"}; e.Skips(f) == "" {
			places["engine over http"] = true
		}
	}
}

func inOrder(places map[string]bool) string {
	var list []string
	for _, place := range []string{"direct", "memory", "stdio", "http", "http-legacy", "engine", "engine over http"} {
		if places[place] {
			list = append(list, place)
		}
	}
	const library = "direct, memory, stdio, http, http-legacy"
	all := strings.Join(list, ", ")
	if rest, whole := strings.CutPrefix(all, library); whole {
		return "library" + rest
	}
	return all
}
