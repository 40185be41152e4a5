package undolog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/undolog/undolog"

// importRules says which of our own packages each package may import. A package that is not named may
// not exist: a new one needs its row and its reason.
var importRules = []struct {
	pkg    string
	may    []string
	reason string
}{
	{"internal/jcs", nil, "a leaf: canonical JSON knows nothing of the project"},
	{"internal/splice", nil, "a leaf: editing JSON bytes knows nothing of the project"},
	{"internal/faults", nil, "a leaf: marks edges, does nothing"},
	{"internal/subprocess", nil, "a leaf: runs programs, whatever they say"},
	{"internal/yamlfile", nil, "a leaf: reads files that people write, whatever they are about"},
	{"internal/effectjson", []string{"effect"}, "writes what the domain has; who may see it is another's to say"},
	{"internal/timespan", nil, "a leaf: reads lengths of time, of whatever"},
	{"internal/tokenfile", nil, "a leaf: reads files of tokens, whoever may use them"},
	{"effect", []string{"internal/jcs", "internal/timespan", "internal/yamlfile"}, "the domain depends on nothing that could change without it"},
	{"interceptors", []string{"internal/splice"}, "the protocol knows no effects, stores or approvals"},
	{"chain", []string{"interceptors", "internal/jcs", "internal/splice"}, "the engine knows no effects, stores or approvals"},
	{"hosts", []string{"chain", "interceptors", "internal/subprocess"}, "connects hosts to a chain, and knows no more than a chain does"},
	{"chainfile", []string{"chain", "hosts", "interceptors", "internal/timespan", "internal/yamlfile"}, "says of a file what a chain is told"},
	{"store", []string{"effect"}, "the log knows no protocol and no backend"},
	{"store/sqlite", []string{"effect", "store"}, "a backend knows no other backend"},
	{"store/postgres", []string{"effect", "store"}, "a backend knows no other backend"},
	{"store/drivertest", []string{"effect", "store"}, "one suite over every backend"},
	{"effectinterceptor", []string{"effect", "interceptors", "store", "internal/jcs", "internal/splice", "internal/faults"}, "works with any engine, so it imports none"},
	{"effectchain", []string{"chain", "effect", "effectinterceptor", "interceptors", "internal/splice"}, "the one place where a chain and effects meet"},
	{"gateway", []string{"chain", "interceptors", "internal/splice", "internal/faults", "internal/subprocess", "internal/tokenfile"}, "relays and runs a chain; what an effect is it never learns"},
	{"httpapi", []string{"effect", "store", "internal/effectjson", "internal/timespan"}, "shows and decides what the log has; how calls are made it never learns"},
	{"webhook", []string{"effect", "store"}, "tells of what the log has"},
	{"reaper", []string{"effect", "store"}, "brings to an end what nobody else does; how calls are made it is told"},
	{"cmd/undolog", []string{"httpapi", "webhook", "reaper", "chain", "chainfile", "hosts", "effect", "effectchain", "effectinterceptor", "gateway", "interceptors", "store", "store/sqlite", "store/postgres", "internal/splice", "internal/effectjson", "internal/faults", "internal/timespan", "internal/tokenfile", "conformance", "conformance/..."}, "wiring"},
	{"conformance", []string{"internal/jcs", "internal/splice"}, "fixtures and reports know no implementation"},
	{"conformance/...", []string{"conformance", "conformance/...", "interceptors", "chain", "internal/splice", "internal/jcs"}, "tries the protocol; what an effect is it never learns"},
	{"internal/barewriter", []string{"store", "store/sqlite"}, "writes the log's rows with the log's types"},
	{"e2e", nil, "tests through the programs alone"},
	{"e2e/chaos", nil, "nothing but tests"},
	{"e2e/proof", nil, "nothing but tests"},
	{"internal/mcptest", nil, "raw clients for tests"},
	{"internal/pgcluster", nil, "runs PostgreSQL, whatever is kept in it"},
	{"internal/pgtest", []string{"internal/pgcluster"}, "databases for tests, whatever is kept in them"},
	{"bench", []string{"chain", "effect", "effectchain", "effectinterceptor", "interceptors", "store", "store/sqlite", "internal/barewriter"}, "measures the parts it wires"},
	{"bench/pg", []string{"effect", "store", "store/sqlite", "store/postgres", "internal/pgcluster"}, "measures the log, whatever asks it"},
	{"examples/...", []string{"chain", "effect", "effectchain", "effectinterceptor", "interceptors", "store", "store/sqlite", "examples/..."}, "what a user could write"},
}

func TestImports(t *testing.T) {
	for pkg, imports := range ownImports(t) {
		rule := slices.IndexFunc(importRules, func(r struct {
			pkg    string
			may    []string
			reason string
		}) bool {
			return matches(r.pkg, pkg)
		})
		if rule < 0 {
			t.Errorf("%s has no row in importRules: say what it may import and why", pkg)
			continue
		}
		for _, imported := range imports {
			if !slices.ContainsFunc(importRules[rule].may, func(p string) bool { return matches(p, imported) }) {
				t.Errorf("%s imports %s, which it must not: %s", pkg, imported, importRules[rule].reason)
			}
		}
	}
}

// Each module that the code or its tests import has a row in docs/design.md that says why.
func TestModules_HaveAReason(t *testing.T) {
	design, err := os.ReadFile("docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(design), "\n## Modules\n")
	if !found {
		t.Fatal("docs/design.md has no table of modules")
	}
	var named []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			named = append(named, strings.Split(strings.TrimSpace(cells[1]), ", ")...)
		}
	}
	for _, imported := range foreignImports(t) {
		if !slices.ContainsFunc(named, func(module string) bool { return strings.Contains(imported, module) }) {
			t.Errorf("%s is imported, and docs/design.md gives no reason for its module", imported)
		}
	}
}

func matches(pattern, pkg string) bool {
	prefix, all := strings.CutSuffix(pattern, "...")
	return pattern == pkg || all && strings.HasPrefix(pkg, prefix)
}

// ownImports lists what each package of the module imports of the module, tests left out.
func ownImports(t *testing.T) map[string][]string {
	t.Helper()
	own := map[string][]string{}
	for _, p := range packages(t) {
		name, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours || len(p.GoFiles) == 0 {
			continue
		}
		own[name] = []string{}
		for _, i := range p.Imports {
			if i, ok := strings.CutPrefix(i, module+"/"); ok {
				own[name] = append(own[name], i)
			}
		}
	}
	return own
}

// foreignImports lists what the module, tests included, imports of other modules.
func foreignImports(t *testing.T) []string {
	t.Helper()
	var foreign []string
	for _, p := range packages(t) {
		for _, i := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			host, _, _ := strings.Cut(i, "/")
			if strings.Contains(host, ".") && !strings.HasPrefix(i, module+"/") {
				foreign = append(foreign, i)
			}
		}
	}
	slices.Sort(foreign)
	return slices.Compact(foreign)
}

type listedPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	GoFiles                            []string
}

func packages(t *testing.T) []listedPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,GoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listedPackage
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		all = append(all, p)
	}
}
