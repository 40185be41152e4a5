package effect_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
)

func parse(t *testing.T, text string) *effect.Policy {
	t.Helper()
	p, err := effect.ParsePolicy("undolog.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// contractOf is what the policy says of a call without arguments.
func contractOf(t testing.TB, p *effect.Policy, server, tool string, ann *effect.Annotations, trusted bool) *effect.Contract {
	t.Helper()
	c, err := p.For(&effect.Call{Server: server, Tool: tool, Annotations: ann}, trusted)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var (
	readOnly    = &effect.Annotations{ReadOnly: true}
	idempotence = &effect.Annotations{Idempotent: true}
)

func TestDefaultContract(t *testing.T) {
	write := effect.Contract{
		Tier: effect.TierIrreversible, Window: 10 * time.Minute, Repeat: effect.RepeatRun, RepeatError: effect.RepeatReplay,
		Lookalike: effect.RepeatRun, Annotate: true, OnToolError: effect.StateCommitted, Detach: true,
		Timeout: 10 * time.Minute, Lease: 5 * time.Minute, Source: "annotations",
	}
	free := write
	free.OnToolError, free.Detach = effect.StateFailed, false
	tier := func(c effect.Contract, tier effect.Tier, source string) *effect.Contract {
		c.Tier, c.Source = tier, source
		return &c
	}
	for _, tt := range []struct {
		name    string
		ann     *effect.Annotations
		trusted bool
		want    *effect.Contract
	}{
		{"a tool without annotations is irreversible", nil, true, tier(write, effect.TierIrreversible, "default")},
		{"a write that destroys nothing is still a write", &effect.Annotations{}, true, tier(write, effect.TierIrreversible, "annotations")},
		{"a trusted read is a read", readOnly, true, tier(free, effect.TierRead, "annotations")},
		{"a trusted idempotent write is one", idempotence, true, tier(free, effect.TierIdempotent, "annotations")},
		{"a read that claims to be idempotent too is a read", &effect.Annotations{ReadOnly: true, Idempotent: true}, true, tier(free, effect.TierRead, "annotations")},
		{"annotations of a server that is not trusted say nothing", readOnly, false, tier(write, effect.TierIrreversible, "default")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, effect.DefaultContract(tt.ann, tt.trusted)); diff != "" {
				t.Errorf("DefaultContract (-want +got)\n%s", diff)
			}
		})
	}
}

func TestPolicy_DefaultsOfEachTier(t *testing.T) {
	p := parse(t, `version: 1
tools:
  - {tool: get, tier: read}
  - {tool: put, tier: idempotent}
  - {tool: book, tier: compensable}
  - {tool: pay, tier: irreversible}
  - {tool: mail, tier: irreversible, approve: never}
`)
	type defaults struct {
		Tier                effect.Tier
		Repeat, RepeatError effect.Repeat
		OnToolError         effect.State
		Detach, Approve     bool
	}
	ask := defaults{effect.TierIrreversible, effect.RepeatAsk, effect.RepeatReplay, effect.StateCommitted, true, true}
	free := ask
	free.Approve = false
	for tool, want := range map[string]defaults{
		"get":  {effect.TierRead, effect.RepeatRun, effect.RepeatReplay, effect.StateFailed, false, false},
		"put":  {effect.TierIdempotent, effect.RepeatRun, effect.RepeatReplay, effect.StateFailed, false, false},
		"book": ask, // no compensation can be named yet
		"pay":  ask,
		"mail": free,
		"else": ask, // no rule names it
	} {
		t.Run(tool, func(t *testing.T) {
			c := contractOf(t, p, "any", tool, nil, true)
			got := defaults{c.Tier, c.Repeat, c.RepeatError, c.OnToolError, c.Detach, c.Approve}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("contract (-want +got)\n%s", diff)
			}
		})
	}
}

func TestPolicy_EveryFieldReachesTheContract(t *testing.T) {
	p := parse(t, `# the payments server
version: 1
tools:
  - server: pay*
    tool: [charge, refund_?]
    tier: irreversible
    identity: [account, /to/id]
    key: request_id
    window: 1d12h
    repeat: replay
    lookalike: ask
    share: tenant
    annotate: false
    on_tool_error: failed
    on_cancel: forward
    timeout: 90s
    lease: 1.5h
    approve: never
  - tool: sync
    tier: idempotent
    volatile: [ts]
    key: none
    window: 0s
    on_cancel: detach
    approve: always
`)
	asking := effect.Asking{Quorum: 1, DecideFor: 24 * time.Hour, UseFor: time.Hour}
	want := &effect.Contract{
		Tier: effect.TierIrreversible, Identity: []string{"account", "/to/id"}, KeyArgument: "request_id", Window: 36 * time.Hour,
		Repeat: effect.RepeatReplay, RepeatError: effect.RepeatReplay, Lookalike: effect.RepeatAsk, ShareTenant: true,
		OnToolError: effect.StateFailed, Timeout: 90 * time.Second, Lease: 90 * time.Minute, Source: "policy undolog.yaml:4",
		Asking: asking, Schemas: true,
	}
	if diff := cmp.Diff(want, contractOf(t, p, "payments", "refund_1", nil, false)); diff != "" {
		t.Errorf("contract of refund_1 (-want +got)\n%s", diff)
	}
	want = &effect.Contract{
		Tier: effect.TierIdempotent, Volatile: []string{"ts"}, NoKeyArgument: true, Repeat: effect.RepeatRun,
		RepeatError: effect.RepeatReplay, Lookalike: effect.RepeatRun, Annotate: true, OnToolError: effect.StateFailed, Detach: true,
		Timeout: 10 * time.Minute, Lease: 5 * time.Minute, Approve: true, Source: "policy undolog.yaml:19",
		Asking: asking, Schemas: true,
	}
	if diff := cmp.Diff(want, contractOf(t, p, "files", "sync", nil, false)); diff != "" {
		t.Errorf("contract of sync (-want +got)\n%s", diff)
	}
}

func TestPolicy_FirstRuleThatMatchesDecides(t *testing.T) {
	p := parse(t, `version: 1
tools:
  - {server: files, tool: "read_*", tier: read}
  - {server: "file?", tool: ["*_file", "*/x"], tier: idempotent}
  - {tool: "read_*", tier: idempotent}
`)
	for _, tt := range []struct {
		server, tool string
		want         effect.Tier
	}{
		{"files", "read_file", effect.TierRead},
		{"filez", "read_file", effect.TierIdempotent},
		{"files", "a/b/x", effect.TierIdempotent},
		{"fileéé", "write_file", effect.TierIrreversible},
		{"fileé", "write_file", effect.TierIdempotent},
		{"crm", "read_", effect.TierIdempotent},
		{"crm", "Read_x", effect.TierIrreversible},
		{"crm", "xread_x", effect.TierIrreversible},
	} {
		if got := contractOf(t, p, tt.server, tt.tool, nil, false).Tier; got != tt.want {
			t.Errorf("tier of %s on %s = %s, want %s", tt.tool, tt.server, got, tt.want)
		}
	}
}

func TestPolicy_TrustsAnnotationsWhereItSaysSo(t *testing.T) {
	p := parse(t, `version: 1
servers:
  - {server: files-evil, trust: false}
  - {server: "files*", trust: true}
tools:
  - {tool: ruled}
  - {tool: fixed, tier: irreversible, approve: never}
`)
	for _, tt := range []struct {
		name, server, tool string
		trusted            bool
		tier               effect.Tier
		source             string
	}{
		{"a trusted server's tool without a rule", "files", "get", false, effect.TierRead, "policy undolog.yaml (no rule), annotations"},
		{"a server that the policy does not name, without a rule", "crm", "get", true, effect.TierIrreversible, "policy undolog.yaml (no rule), default"},
		{"a server that the policy does not trust, without a rule", "files-evil", "get", true, effect.TierIrreversible, "policy undolog.yaml (no rule), default"},
		{"a trusted server's tool with a rule without a tier", "files", "ruled", false, effect.TierRead, "policy undolog.yaml:6, annotations"},
		{"a server that the policy does not name, with a rule without a tier", "crm", "ruled", true, effect.TierRead, "policy undolog.yaml:6, annotations"},
		{"a server nobody trusts, with a rule without a tier", "crm", "ruled", false, effect.TierIrreversible, "policy undolog.yaml:6, default"},
		{"a server that the policy does not trust, with a rule without a tier", "files-evil", "ruled", true, effect.TierIrreversible, "policy undolog.yaml:6, default"},
		{"a tier in the rule is stronger than annotations", "files", "fixed", true, effect.TierIrreversible, "policy undolog.yaml:7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := contractOf(t, p, tt.server, tt.tool, readOnly, tt.trusted)
			if c.Tier != tt.tier || c.Source != tt.source {
				t.Errorf("tier %s from %q, want %s from %q", c.Tier, c.Source, tt.tier, tt.source)
			}
		})
	}
}

func TestPolicy_ContractFollowsChangedAnnotations(t *testing.T) {
	p := parse(t, "version: 1\nservers: [{server: files, trust: true}]\n")
	for range 2 { // the second round comes from the cache
		for ann, want := range map[*effect.Annotations]effect.Tier{nil: effect.TierIrreversible, readOnly: effect.TierRead, idempotence: effect.TierIdempotent} {
			if got := contractOf(t, p, "files", "get", ann, false).Tier; got != want {
				t.Errorf("tier with %+v = %s, want %s", ann, got, want)
			}
		}
	}
}

func TestPolicy_ContractIsSafeForConcurrentUse(t *testing.T) {
	p := parse(t, "version: 1\ntools: [{tool: get, tier: read}]\n")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 3000 { // more names than are cached
				name := fmt.Sprint(i, j)
				if contractOf(t, p, "s", name, nil, false).Tier != effect.TierIrreversible || contractOf(t, p, "s", "get", nil, false).Tier != effect.TierRead {
					t.Error("a contract of another tool")
				}
			}
		})
	}
	wg.Wait()
}

func TestPolicy_DigestIsOfTheMeaning(t *testing.T) {
	digest := func(text string) string { return parse(t, text).Digest }
	want := digest("version: 1\ntools: [{tool: get, tier: read}]\n")
	if got := digest("# comment\nversion: 1\n\ntools:\n  - tier: 'read'\n    tool: \"get\"\n"); got != want {
		t.Errorf("another spelling has digest %s, want %s", got, want)
	}
	if got := digest("version: 1\ntools: [{tool: get, tier: idempotent}]\n"); got == want {
		t.Error("another tier has the same digest")
	}
}

func TestParsePolicy_SaysWhereAndWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"an empty file", "", []string{`p.yaml: is empty: a policy begins with "version: 1"`}},
		{"a comment alone", "# nothing\n", []string{`p.yaml: is empty: a policy begins with "version: 1"`}},
		{"no version", "tools: []\n", []string{`p.yaml:1:1: version is missing: begin the file with "version: 1"`}},
		{"another version", "version: 2\n", []string{"p.yaml:1:10: version is 2: this program reads version 1"}},
		{"a version in quotes", "version: \"1\"\n", []string{"p.yaml:1:10: version is text: write it without quotes"}},
		{"a misspelt field", "version: 1\ntools:\n  - tool: a\n    onToolError: failed\n", []string{`p.yaml:4:5: unknown field "onToolError": did you mean "on_tool_error"?`}},
		{"a misspelt section", "version: 1\ntool:\n  - tool: a\n", []string{`p.yaml:2:1: unknown field "tool": did you mean "tools"?`}},
		{"a misspelt server field", "version: 1\nservers:\n  - {server: a, trust: true, tust: 1}\n", []string{`p.yaml:3:30: unknown field "tust": did you mean "trust"?`}},
		{"a field that is nothing like one", "version: 1\nwibble: 1\n", []string{`p.yaml:2:1: unknown field "wibble": known here are retention, servers, tools, version`}},
		{"a short field that is nothing like one", "version: 1\ntools:\n  - tool: a\n    foo: 1\n", []string{
			`p.yaml:4:5: unknown field "foo": known here are annotate, approve, approvers, decide_within, definition, deny, elicitation, identity, inject, key, lease, limits, lookalike, on_cancel, on_tool_error, probe, quorum, redact, redact_result, repeat, schemas, server, share, tier, timeout, tool, use_within, volatile, when, window`,
		}},
		{"a compensation", "version: 1\ntools:\n  - tool: a\n    compensate: b\n", []string{"p.yaml:4:5: compensate is reserved: this version cannot compensate, take it away"}},
		{"a rule for nothing", "version: 1\ntools:\n  - tier: read\n", []string{"p.yaml:3:5: tool is missing in this entry: add it"}},
		{"an unknown tier", "version: 1\ntools:\n  - tool: a\n    tier: reed\n", []string{`p.yaml:4:11: tier is "reed": write read, idempotent, compensable or irreversible`}},
		{"a yes that is no boolean", "version: 1\ntools:\n  - tool: a\n    annotate: yes\n", []string{"p.yaml:4:15: annotate is text: it must be true or false"}},
		{"a tool that is a number", "version: 1\ntools:\n  - tool: 7\n", []string{"p.yaml:3:11: tool is a number: it must be text or a list"}},
		{"a duration in words", "version: 1\ntools:\n  - tool: a\n    window: 10 minutes\n", []string{`p.yaml:4:13: window is "10 minutes": it must be a duration such as 90s, 10m, 1h30m or 2d`}},
		{"a duration below zero", "version: 1\ntools:\n  - tool: a\n    lease: -5m\n", []string{`p.yaml:4:12: lease is "-5m": it must be a duration such as 90s, 10m, 1h30m or 2d`}},
		{"a duration past all measure", "version: 1\ntools:\n  - tool: a\n    lease: 99999999999d\n", []string{`p.yaml:4:5: lease: parse duration "99999999999d": longer than 36500 days`}},
		{"no time at all", "version: 1\ntools:\n  - tool: a\n    timeout: 0s\n    lease: 0d\n", []string{"p.yaml:4:5: timeout must be longer than nothing", "p.yaml:5:5: lease must be longer than nothing"}},
		{"a pointer with a bad escape", "version: 1\ntools:\n  - tool: a\n    volatile: [/a~2]\n", []string{`p.yaml:4:16: volatile is "/a~2": it must be an argument's name, or a JSON pointer such as /meta/ts (with ~1 for / and ~0 for ~)`}},
		{"no identity at all", "version: 1\ntools:\n  - tool: a\n    identity: []\n", []string{"p.yaml:4:15: identity is empty: give it a value or take it away"}},
		{"identity and volatile", "version: 1\ntools:\n  - tool: a\n    identity: [b]\n    volatile: [c]\n", []string{"p.yaml:5:5: identity and volatile exclude each other: keep one"}},
		{"a key that is identity", "version: 1\ntools:\n  - tool: a\n    key: k\n    identity: [k]\n", []string{"p.yaml:4:5: k carries the key and cannot be identity too: take it out of identity"}},
		{"a key that is volatile", "version: 1\ntools:\n  - tool: a\n    key: k\n    volatile: [k]\n", []string{"p.yaml:4:5: k carries the key and never counts as identity: take it out of volatile"}},
		{"a read that repeats", "version: 1\ntools:\n  - tool: a\n    tier: read\n    repeat: replay\n    window: 1m\n", []string{
			"p.yaml:5:5: repeat does nothing for tier read, whose calls always run: take it away or give another tier",
			"p.yaml:6:5: window does nothing for tier read, whose calls always run: take it away or give another tier",
		}},
		{"a read that is held", "version: 1\ntools:\n  - tool: a\n    tier: read\n    approve: always\n", []string{"p.yaml:5:5: a call of tier read is never held: take approve away or give another tier"}},
		{"an idempotent tool that asks", "version: 1\ntools:\n  - tool: a\n    tier: idempotent\n    repeat: ask\n", []string{
			"p.yaml:5:5: repeat: ask contradicts tier idempotent, which may run again freely: take it away or give another tier",
		}},
		{"a list of faults in the order of the file", "version: 3\ntools:\n  - tool: b\n    tier: x\n  - tol: a\n", []string{
			"p.yaml:1:10: version is 3: this program reads version 1",
			`p.yaml:4:11: tier is "x": write read, idempotent, compensable or irreversible`,
			"p.yaml:5:5: tool is missing in this entry: add it",
			`p.yaml:5:5: unknown field "tol": did you mean "tool"?`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := effect.ParsePolicy("p.yaml", []byte(tt.text))
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(tt.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("error (-want +got)\n%s", diff)
			}
			var located *effect.PolicyError
			if !errors.As(err, &located) || located.File != "p.yaml" {
				t.Errorf("error is no *PolicyError of the file: %#v", err)
			}
		})
	}
}

func TestParsePolicy_RefusesHostileYAML(t *testing.T) {
	bomb := "version: 1\na: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\ntools: [*c, *c]\n"
	for _, tt := range []struct{ name, text, want string }{
		{"an anchor bomb", bomb, "an anchor (&) cannot stand in a policy"},
		{"an alias", "version: 1\ntools: *x\n", "an alias (*) cannot stand"},
		{"a merge key", "version: 1\n<<: {a: b}\n", "not a merge key"},
		{"a tag", "version: !!int 1\n", "a tag (!) cannot stand"},
		{"ten megabytes", "version: 1\n#" + strings.Repeat("x", 10<<20), "a policy has at most"},
		{"deep brackets", "version: 1\ntools: " + strings.Repeat("[", 100000), "nested deeper"},
		{"deep braces", "version: 1\ntools: " + strings.Repeat("{a: ", 50000), "nested deeper"},
		{"deep dashes", "version: 1\ntools:\n  " + strings.Repeat("- ", 100000), "nested deeper"},
		{"deep complex keys", "version: 1\ntools:\n  " + strings.Repeat("? ", 100000), "nested deeper"},
		{"deep indentation", deepMapping(64), "nested deeper"},
		{"tabs", "version: 1\ntools:\n\t- tool: a\n", `p.yaml:3:1: found character '	'`},
		{"two documents", "version: 1\n---\nversion: 1\n", "p.yaml:3:1: a second document"},
		{"the same name twice", "version: 1\nversion: 1\n", "p.yaml:2:1: "},
		{"the same name twice in a rule", "version: 1\ntools:\n  - {tool: a, tool: b}\n", "p.yaml:3:"},
		{"a name that is a number", "version: 1\n7: x\n", "p.yaml:2:1: a name must be plain text"},
		{"not UTF-8", "version: 1\n# \xff\n", "is not valid UTF-8"},
		{"a NUL byte", "version: 1\n\x00", "holds a NUL byte"},
		{"infinity", "version: .inf\n", "p.yaml:1:10: "},
		{"a list", "- a\n", "the policy is a list: it must be a mapping"},
		{"an open bracket", "version: 1\ntools: [", "p.yaml:2:8: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := effect.ParsePolicy("p.yaml", []byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %.200v, want one with %q", err, tt.want)
			}
		})
	}
}

func deepMapping(levels int) string {
	var b strings.Builder
	for i := range levels {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestPolicy_Warnings(t *testing.T) {
	p := parse(t, `version: 1
tools:
  - {tool: book, tier: compensable, approve: never}
  - {tool: pay, tier: irreversible}
  - {tool: ["*"], approve: never}
  - {server: crm, tool: get, tier: read}
`)
	want := []string{
		"undolog.yaml:3: compensable counts as irreversible: this version cannot name a compensation",
		"undolog.yaml:6: never used: the rule in line 5 names the same tools first",
	}
	if diff := cmp.Diff(want, p.Warnings()); diff != "" {
		t.Errorf("Warnings (-want +got)\n%s", diff)
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

func TestPolicyDocs_ExamplesParseAndNameEveryField(t *testing.T) {
	doc, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlock.FindAllSubmatch(doc, -1)
	if len(blocks) == 0 {
		t.Fatal("docs/policy.md has no example")
	}
	for _, block := range blocks {
		if _, err := effect.ParsePolicy("docs/policy.md", block[1]); err != nil {
			t.Error(err)
		}
	}
	var schema struct {
		Defs map[string]struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(effect.PolicySchema()), &schema); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"server", "rule"} {
		if len(schema.Defs[group].Properties) == 0 {
			t.Errorf("the schema has no fields for %s", group)
		}
		for field := range schema.Defs[group].Properties {
			if !strings.Contains(string(doc), "| `"+field+"` |") {
				t.Errorf("docs/policy.md does not describe %s", field)
			}
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	for _, seed := range []string{
		"version: 1\ntools:\n  - tool: a\n    tier: read\n", "version: 1\nservers: [{server: a, trust: true}]\n",
		"version: 1\ntools:\n  - tool: [a, 'b*']\n    window: 1d2h\n    identity: [/a/b, c]\n", "a: &a [*a]\n", "? - a\n: |\n  x\n", "--- !!map\n", "version: 1\r\n",
		"version: 1\ntools:\n  - tool: >-\n      a\n    key: \"\\u0000\"\n",
		"version: 1\ntools:\n  - {tool: a, when: 'args.x > 1', approve: has(args.y), quorum: 2, approvers: ['user:*'], limits: [{name: l, max: 1.5, units: args.x, within: 1d}]}\n",
		"version: 1\ntools:\n  - {tool: a, deny: no}\n  - {tool: b, inject: {header: X}, redact: [/a/*], probe: {tool: c, arguments: '{}', verdict: '\"applied\"'}}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := effect.ParsePolicy("p.yaml", data)
		if err != nil {
			var located *effect.PolicyError
			if !errors.As(err, &located) || located.Reason == "" {
				t.Fatalf("error = %#v, want a *PolicyError", err)
			}
			return
		}
		p.Warnings()
		c, err := p.For(&effect.Call{Server: "s", Tool: "t", Annotations: readOnly, Arguments: json.RawMessage(`{"x":1}`)}, true)
		if invalid, undecided := errors.AsType[*effect.InvalidError](err); undecided && c == nil && invalid.Reason != "" {
			return
		}
		if err != nil || c.Tier == "" || c.Timeout <= 0 || c.Lease <= 0 || c.Window < 0 {
			t.Fatalf("contract %+v is not resolved (%v)", c, err)
		}
	})
}

func TestParsePolicy_Retention(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "retention: 30d": 30 * 24 * time.Hour, "retention: 1w12h": 180 * time.Hour} {
		p, err := effect.ParsePolicy("p.yaml", []byte("version: 1\n"+text))
		if err != nil || p.Retention != want {
			t.Errorf("%s: %v, want %s", text, err, want)
			continue
		}
		if p.InShadow().Retention != 0 {
			t.Errorf("%s: something is taken away in shadow", text)
		}
	}
	for text, want := range map[string]string{
		"retention: 0s":   "p.yaml:2:1: retention must be longer than nothing",
		"retention: soon": `p.yaml:2:12: retention is "soon"`,
	} {
		if _, err := effect.ParsePolicy("p.yaml", []byte("version: 1\n"+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
