//go:build peers

package peers_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/internal/mcptest"
)

// everythingServer is go-sdk's server with something of everything that the conformance tests ask for.
const everythingServer = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"

// TestConformance_GatewayScoresAsItsServer runs npm's conformance tests against go-sdk's server directly
// and through the gateway: the same checks fail, and those are the server's own.
func TestConformance_GatewayScoresAsItsServer(t *testing.T) {
	for _, c := range []struct {
		name   string
		server []string // flags of the server on HTTP
		args   []string
		passed int // checks, at least
	}{
		{"2025-11-25", []string{"-stateless=false"}, []string{"--spec-version", "2025-11-25"}, 70},
		{"2026-07-28", nil, []string{"--requirements", "2026-07-28"}, 160},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := mcptest.Build(t, everythingServer)
			url := startOnFreePort(t, program, c.server)
			want := conformanceOf(t, url, c.args...)
			if n := want.passed(); n < c.passed {
				t.Fatalf("the server itself passes %d checks, want %d at least", n, c.passed)
			}
			for name, upstream := range map[string]target{
				"server on HTTP": {url: url}, "server on stdio": {command: []string{program}},
			} {
				t.Run(name, func(t *testing.T) {
					got := conformanceOf(t, gateway(t, true, upstream).url, c.args...)
					if diff := cmp.Diff(want.failed(), got.failed()); diff != "" {
						t.Errorf("checks that fail (-direct +through the gateway)\n%s", diff)
					}
					if diff := cmp.Diff(want.scenarios(), got.scenarios()); diff != "" {
						t.Errorf("scenarios (-direct +through the gateway)\n%s", diff)
					}
				})
			}
		})
	}
}

// TestConformance_OfOurServer runs the scenarios that ask nothing of tools, which an interceptor server has
// none of: its life, its discovery, its headers, its statelessness. Checks that say themselves that they need
// a tool are no failures.
func TestConformance_OfOurServer(t *testing.T) {
	url := mcptest.StartHTTP(t, exec.Command(gatewayProgram(t),
		"serve", "--http", "127.0.0.1:0", "--db", filepath.Join(t.TempDir(), "effects.db")))
	for version, scenarios := range map[string][]string{
		"2025-11-25": {"server-initialize", "server-session-lifecycle", "ping", "dns-rebinding-protection"},
		"2026-07-28": {"server-stateless", "http-header-validation", "dns-rebinding-protection", "input-required-result-unsupported-methods"},
	} {
		for _, scenario := range scenarios {
			t.Run(version+"/"+scenario, func(t *testing.T) {
				checks := conformanceOf(t, url, "--spec-version", version, "--scenario", scenario)
				if checks.passed() < 2 {
					t.Errorf("%d checks pass: nothing was tried", checks.passed())
				}
				for _, c := range checks {
					untestable := strings.HasPrefix(c.Message, "Not testable: ")
					if c.Status == "FAILURE" && !untestable {
						t.Errorf("%s: %s: %s", c.Name, c.Message, c.Details)
					}
				}
			})
		}
	}
}

// startOnFreePort starts go-sdk's server on HTTP and returns its URL.
func startOnFreePort(t *testing.T, program string, flags []string) string {
	t.Helper()
	address := "127.0.0.1:" + mcptest.FreePort(t)
	cmd := exec.Command(program, append([]string{"-http", address}, flags...)...)
	mcptest.StartServer(t, cmd, regexp.MustCompile(`listening at (\S+)`))
	return "http://" + address + "/mcp"
}

// check is one finding of npm's conformance tests.
type check struct {
	Scenario string          `json:"-"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Status   string          `json:"status"` // SUCCESS, FAILURE, WARNING, SKIPPED or INFO
	Message  string          `json:"errorMessage"`
	Details  json.RawMessage `json:"details"`
}

type checks []check

func (cs checks) passed() int {
	n := 0
	for _, c := range cs {
		if c.Status == "SUCCESS" {
			n++
		}
	}
	return n
}

func (cs checks) failed() []string {
	var failed []string
	for _, c := range cs {
		if c.Status == "FAILURE" {
			failed = append(failed, c.Scenario+": "+c.Name)
		}
	}
	slices.Sort(failed)
	return failed
}

func (cs checks) scenarios() []string {
	var names []string
	for _, c := range cs {
		names = append(names, c.Scenario)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// The directory of a scenario's results ends with the time.
var scenarioDir = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT.*$`)

// conformanceOf runs npm's conformance tests against a server and returns every finding.
func conformanceOf(t *testing.T, url string, args ...string) checks {
	t.Helper()
	node, main := conformanceProgram(t)
	results := t.TempDir()
	cmd := exec.CommandContext(t.Context(), node, append([]string{main, "server", "--url", url, "--output-dir", results}, args...)...)
	cmd.Dir = results
	out, err := cmd.CombinedOutput() // its exit code says whether something failed
	dirs, globErr := os.ReadDir(results)
	if globErr != nil || len(dirs) == 0 {
		t.Fatalf("conformance %q: %v, %v\n%s", args, err, globErr, out)
	}
	var all checks
	for _, dir := range dirs {
		name := scenarioDir.FindStringSubmatch(dir.Name())
		if name == nil {
			t.Fatalf("results in %s", dir.Name())
		}
		raw, err := os.ReadFile(filepath.Join(results, dir.Name(), "checks.json"))
		if err != nil {
			t.Fatal(err)
		}
		var found checks
		if err := json.Unmarshal(raw, &found); err != nil {
			t.Fatalf("parse checks of %s: %v", name[1], err)
		}
		for i := range found {
			found[i].Scenario = name[1]
		}
		all = append(all, found...)
	}
	return all
}

// conformanceProgram returns the Node that the conformance tests need, and their main file.
func conformanceProgram(t *testing.T) (node, main string) {
	t.Helper()
	dir, err := filepath.Abs("conformance/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	node = filepath.Join(dir, "node/bin/node")
	main = filepath.Join(dir, "@modelcontextprotocol/conformance/dist/index.js")
	for _, path := range []string{node, main} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v; run npm ci in peers/conformance", err)
		}
	}
	return node, main
}
