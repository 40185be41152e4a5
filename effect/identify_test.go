package effect_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
)

func identify(t *testing.T, c *effect.Contract, call *effect.Call) *effect.Identity {
	t.Helper()
	id, err := c.Identify(call)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// aliceCalls is a call of a tool with arguments by alice and nobody's key or run.
func aliceCalls(arguments string) *effect.Call {
	return &effect.Call{Principal: "alice", Server: "payments", Tool: "charge", Arguments: json.RawMessage(arguments)}
}

// The signatures of testdata/identity.json never change: another layout is another version.
func TestIdentify_SignatureLayoutNeverChanges(t *testing.T) {
	data, err := os.ReadFile("testdata/identity.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name, Tenant, Server, Tool, Arguments, Occurrence, Signature string
		Rule                                                         effect.Rule
		Scope                                                        string
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			call := &effect.Call{Tenant: v.Tenant, Server: v.Server, Tool: v.Tool, Arguments: json.RawMessage(v.Arguments), Occurrence: v.Occurrence}
			switch v.Rule {
			case effect.RuleKey:
				call.Key = v.Scope
			case effect.RuleRun:
				call.Run = v.Scope
			case effect.RuleWindow:
				call.Principal = v.Scope
			}
			id := identify(t, &effect.Contract{}, call)
			if id.Rule != v.Rule || id.Scope != v.Scope {
				t.Errorf("rule %s of %q, want %s of %q", id.Rule, id.Scope, v.Rule, v.Scope)
			}
			if got := hex.EncodeToString(id.Signature[:]); got != v.Signature {
				t.Errorf("signature %s, want %s", got, v.Signature)
			}
		})
	}
}

func TestIdentify_FirstRuleThatAppliesWins(t *testing.T) {
	call := func(key, run, principal string) *effect.Call {
		return &effect.Call{Server: "s", Tool: "t", Key: key, Run: run, Principal: principal}
	}
	for _, tt := range []struct {
		name  string
		call  *effect.Call
		rule  effect.Rule
		scope string
	}{
		{"a key before all", call("k", "r", "p"), effect.RuleKey, "k"},
		{"a run before who calls", call("", "r", "p"), effect.RuleRun, "r"},
		{"who calls", call("", "", "p"), effect.RuleWindow, "p"},
		{"nothing says who calls", call("", "", ""), effect.RuleNone, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := identify(t, &effect.Contract{}, tt.call)
			if id.Rule != tt.rule || id.Scope != tt.scope {
				t.Errorf("rule %s of %q, want %s of %q", id.Rule, id.Scope, tt.rule, tt.scope)
			}
			if none := id.Rule == effect.RuleNone; id.Signature.IsZero() != none {
				t.Errorf("signature %s under rule %s", id.Signature, id.Rule)
			}
			if id.Window.IsZero() != (tt.call.Principal == "") {
				t.Errorf("window signature %s for principal %q", id.Window, tt.call.Principal)
			}
		})
	}
}

func TestIdentify_EqualCallsHaveOneSignature(t *testing.T) {
	window := &effect.Contract{}
	for _, tt := range []struct {
		name     string
		contract *effect.Contract
		a, b     string
		equal    bool
	}{
		{"order, spacing and number spelling do not count", window, `{"a":1,"b":2.0}`, ` { "b":2 , "a":1e0 } `, true},
		{"absent arguments are empty ones", window, ``, `{}`, true},
		{"64-bit neighbours differ", window, `{"id":9007199254740993}`, `{"id":9007199254740992}`, false},
		{"neighbours past 64 bits differ", window, `{"id":18446744073709551617}`, `{"id":18446744073709551618}`, false},
		{"identifiers that differ in the last digit differ", window, `{"id":1915883588174806058}`, `{"id":1915883588174806059}`, false},
		{"text and number differ", window, `{"id":"1"}`, `{"id":1}`, false},
		{"null and absent differ", window, `{"a":null}`, `{}`, false},
		{"U+0000 counts", window, `{"a":"x\u0000"}`, `{"a":"x"}`, false},
		{"composed and decomposed differ", window, `{"a":"\u00e9"}`, `{"a":"e\u0301"}`, false},

		{"identity names what counts", &effect.Contract{Identity: []string{"account", "amount"}}, `{"account":1,"amount":2,"note":"x"}`, `{"note":"y","amount":2,"account":1}`, true},
		{"identity that differs counts", &effect.Contract{Identity: []string{"account", "amount"}}, `{"account":1,"amount":2}`, `{"account":1,"amount":3}`, false},
		{"identity that is absent differs from null", &effect.Contract{Identity: []string{"account"}}, `{"account":null}`, `{}`, false},
		{"identity by pointer leaves the siblings out", &effect.Contract{Identity: []string{"/to/id"}}, `{"to":{"id":1,"name":"x"}}`, `{"to":{"id":1,"name":"y"}}`, true},
		{"identity by pointer counts", &effect.Contract{Identity: []string{"/to/id"}}, `{"to":{"id":1}}`, `{"to":{"id":2}}`, false},
		{"identity by pointer into a list", &effect.Contract{Identity: []string{"/lines/1/sku"}}, `{"lines":[{"sku":1},{"sku":2,"n":1}]}`, `{"lines":[{"sku":3},{"sku":2,"n":9}]}`, true},
		{"identity by pointer into a list counts", &effect.Contract{Identity: []string{"/lines/1/sku"}}, `{"lines":[{"sku":1},{"sku":2}]}`, `{"lines":[{"sku":1},{"sku":3}]}`, false},
		{"identity takes a whole object", &effect.Contract{Identity: []string{"to", "/to/id"}}, `{"to":{"id":1,"x":1}}`, `{"to":{"id":1,"x":2}}`, false},

		{"volatile leaves out", &effect.Contract{Volatile: []string{"reference", "/meta/ts"}}, `{"a":1,"reference":"x","meta":{"ts":1,"k":2}}`, `{"a":1,"reference":"y","meta":{"k":2,"ts":9}}`, true},
		{"volatile may be absent", &effect.Contract{Volatile: []string{"reference"}}, `{"a":1,"reference":"x"}`, `{"a":1}`, true},
		{"volatile keeps the siblings", &effect.Contract{Volatile: []string{"/meta/ts"}}, `{"meta":{"ts":1,"k":2}}`, `{"meta":{"ts":1,"k":3}}`, false},
		{"volatile by pointer is not a name", &effect.Contract{Volatile: []string{"ts"}}, `{"meta":{"ts":1}}`, `{"meta":{"ts":2}}`, false},
		{"volatile in a list element", &effect.Contract{Volatile: []string{"/lines/0/ts"}}, `{"lines":[{"ts":1},{"ts":1}]}`, `{"lines":[{"ts":2},{"ts":1}]}`, true},
		{"volatile in another list element", &effect.Contract{Volatile: []string{"/lines/0/ts"}}, `{"lines":[{"ts":1},{"ts":1}]}`, `{"lines":[{"ts":1},{"ts":2}]}`, false},
		{"volatile past a text leaves the text", &effect.Contract{Volatile: []string{"/meta/ts"}}, `{"meta":"x"}`, `{"meta":"y"}`, false},
		{"pointers escape slash and tilde", &effect.Contract{Volatile: []string{"/a~1b~0c"}}, `{"a/b~c":1}`, `{"a/b~c":2}`, true},
		{"names are compared unescaped", &effect.Contract{Volatile: []string{"a\"b"}}, `{"a\"b":1}`, `{"a\u0022b":2}`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := identify(t, tt.contract, aliceCalls(tt.a)), identify(t, tt.contract, aliceCalls(tt.b))
			if got := a.Signature == b.Signature; got != tt.equal {
				t.Errorf("signatures equal: %t, want %t", got, tt.equal)
			}
			if got := a.Arguments == b.Arguments; got != tt.equal {
				t.Errorf("argument digests equal: %t, want %t", got, tt.equal)
			}
		})
	}
}

func TestIdentify_EveryFieldCounts(t *testing.T) {
	base := func() *effect.Call {
		return &effect.Call{Tenant: "t", Server: "s", Tool: "n", Run: "r", Occurrence: "1", Arguments: json.RawMessage(`{"a":1}`)}
	}
	want := identify(t, &effect.Contract{}, base()).Signature
	for name, change := range map[string]func(*effect.Call){
		"tenant":     func(c *effect.Call) { c.Tenant = "u" },
		"server":     func(c *effect.Call) { c.Server = "u" },
		"tool":       func(c *effect.Call) { c.Tool = "u" },
		"run":        func(c *effect.Call) { c.Run = "u" },
		"occurrence": func(c *effect.Call) { c.Occurrence = "2" },
		"arguments":  func(c *effect.Call) { c.Arguments = json.RawMessage(`{"a":2}`) },
		"where a field ends": func(c *effect.Call) {
			c.Server, c.Tool = "sn", ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := base()
			change(call)
			if identify(t, &effect.Contract{}, call).Signature == want {
				t.Errorf("another %s has the same signature", name)
			}
		})
	}
	for name, change := range map[string]func(*effect.Call){
		"session":   func(c *effect.Call) { c.Session = "u" },
		"trace":     func(c *effect.Call) { c.Trace = "u" },
		"principal": func(c *effect.Call) { c.Principal = "u" },
	} {
		t.Run(name+" does not count under a run", func(t *testing.T) {
			call := base()
			change(call)
			if identify(t, &effect.Contract{}, call).Signature != want {
				t.Errorf("another %s has another signature", name)
			}
		})
	}
}

func TestIdentify_WindowSignatureIsTheSameUnderEveryRule(t *testing.T) {
	plain := identify(t, &effect.Contract{}, aliceCalls(`{"a":1}`))
	keyed, run := aliceCalls(`{"a":1,"idempotencyKey":"k"}`), aliceCalls(`{"a":1}`)
	run.Run = "r"
	for name, call := range map[string]*effect.Call{"key": keyed, "run": run} {
		if id := identify(t, &effect.Contract{}, call); id.Window != plain.Signature || id.Signature == plain.Signature {
			t.Errorf("rule %s: window %s, signature %s, want %s and another", name, id.Window, id.Signature, plain.Signature)
		}
	}
}

func TestIdentify_KeyArgument(t *testing.T) {
	named := &effect.Contract{KeyArgument: "request_id"}
	for _, tt := range []struct {
		name      string
		contract  *effect.Contract
		arguments string
		key       string
		rule      effect.Rule
		identity  string // arguments that have the same digest
	}{
		{"the named argument is the key and no identity", named, `{"a":1,"request_id":"k1"}`, "k1", effect.RuleKey, `{"a":1}`},
		{"the named argument may be absent", named, `{"a":1}`, "", effect.RuleWindow, `{"a":1}`},
		{"the named argument may be null", named, `{"a":1,"request_id":null}`, "", effect.RuleWindow, `{"a":1}`},
		{"an empty key is none", named, `{"a":1,"request_id":""}`, "", effect.RuleWindow, `{"a":1}`},
		{"another well-known name is an argument like any other", named, `{"a":1,"idempotencyKey":"x"}`, "", effect.RuleWindow, `{"a":1,"idempotencyKey":"x"}`},
		{"camel case is well known", &effect.Contract{}, `{"a":1,"idempotencyKey":"k"}`, "k", effect.RuleKey, `{"a":1}`},
		{"snake case is well known", &effect.Contract{}, `{"a":1,"idempotency_key":"k"}`, "k", effect.RuleKey, `{"a":1}`},
		{"kebab case is well known", &effect.Contract{}, `{"a":1,"idempotency-key":"k"}`, "k", effect.RuleKey, `{"a":1}`},
		{"camel case comes first", &effect.Contract{}, `{"idempotency_key":"k2","idempotencyKey":"k1"}`, "k1", effect.RuleKey, `{"idempotency_key":"k2"}`},
		{"a well-known name in a nested object is not one", &effect.Contract{}, `{"o":{"idempotencyKey":"k"}}`, "", effect.RuleWindow, `{"o":{"idempotencyKey":"k"}}`},
		{"a well-known name with a number is not one", &effect.Contract{}, `{"idempotencyKey":7}`, "", effect.RuleWindow, `{"idempotencyKey":7}`},
		{"policy may say that none is", &effect.Contract{NoKeyArgument: true}, `{"idempotencyKey":"k"}`, "", effect.RuleWindow, `{"idempotencyKey":"k"}`},
		{"an escaped key is read", named, `{"request_id":"\u006b"}`, "k", effect.RuleKey, `{}`},
		{"the key goes before the selection", &effect.Contract{KeyArgument: "k", Identity: []string{"a"}}, `{"a":1,"b":2,"k":"x"}`, "x", effect.RuleKey, `{"a":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := identify(t, tt.contract, aliceCalls(tt.arguments))
			if id.Rule != tt.rule {
				t.Fatalf("rule %s, want %s", id.Rule, tt.rule)
			}
			if tt.key != "" && id.Scope != tt.key {
				t.Errorf("key %q, want %q", id.Scope, tt.key)
			}
			want, err := effect.DigestOf([]byte(tt.identity))
			if err != nil {
				t.Fatal(err)
			}
			if id.Arguments != want {
				t.Errorf("identity arguments are not %s", tt.identity)
			}
			if complete, _ := effect.DigestOf([]byte(tt.arguments)); id.Complete != complete {
				t.Errorf("complete digest %s, want %s", id.Complete, complete)
			}
		})
	}
}

func TestIdentify_KeyIsTheSameWhereverItStands(t *testing.T) {
	explicit := aliceCalls(`{"a":1}`)
	explicit.Key = "k"
	both := aliceCalls(`{"a":1,"idempotencyKey":"k"}`)
	both.Key = "k"
	want := identify(t, &effect.Contract{}, explicit)
	for name, call := range map[string]*effect.Call{"in the arguments": aliceCalls(`{"a":1,"idempotencyKey":"k"}`), "in both": both} {
		got := identify(t, &effect.Contract{}, call)
		if got.Signature != want.Signature || got.Arguments != want.Arguments {
			t.Errorf("key %s: another identity", name)
		}
	}
}

func TestIdentify_RefusesWithPointer(t *testing.T) {
	long := strings.Repeat("x", effect.MaxHandle+1)
	named := &effect.Contract{KeyArgument: "k"}
	for _, tt := range []struct {
		name     string
		contract *effect.Contract
		call     *effect.Call
		pointer  string
	}{
		{"null arguments", named, aliceCalls(`null`), "/arguments"},
		{"a list", named, aliceCalls(`[]`), "/arguments"},
		{"a text", named, aliceCalls(`"{}"`), "/arguments"},
		{"white space", named, aliceCalls(` `), "/arguments"},
		{"a duplicate", named, aliceCalls(`{"o":{"a":1,"a":2}}`), "/arguments/o/a"},
		{"a lone surrogate", named, aliceCalls(`{"o":["\ud800"]}`), "/arguments/o/0"},
		{"a number past a double", named, aliceCalls(`{"n":1e400}`), "/arguments/n"},
		{"a named key that is no text", named, aliceCalls(`{"k":1}`), "/arguments/k"},
		{"a named key that is too long", named, aliceCalls(`{"k":"` + long + `"}`), "/arguments/k"},
		{"a well-known key that is too long", &effect.Contract{}, aliceCalls(`{"idempotency_key":"` + long + `"}`), "/arguments/idempotency_key"},
		{"a tool name that is too long", named, &effect.Call{Tool: long}, "/name"},
		{"a server name that is too long", named, &effect.Call{Server: long}, ""},
		{"a key that is too long", named, &effect.Call{Key: long}, ""},
		{"a run that is too long", named, &effect.Call{Run: long}, ""},
		{"an occurrence that is too long", named, &effect.Call{Occurrence: long}, ""},
		{"a run that is not UTF-8", named, &effect.Call{Run: "\xff"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.contract.Identify(tt.call)
			var invalid *effect.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("error = %v, want an *InvalidError", err)
			}
			if diff := cmp.Diff(tt.pointer, invalid.Pointer); diff != "" {
				t.Errorf("pointer (-want +got)\n%s", diff)
			}
			if invalid.Reason == "" || strings.Contains(invalid.Error(), long) {
				t.Errorf("reason %.80q", invalid.Reason)
			}
		})
	}
}

func TestIdentify_AcceptsHandlesOfTheGreatestLength(t *testing.T) {
	most := strings.Repeat("x", effect.MaxHandle)
	call := &effect.Call{Tenant: most, Principal: most, Server: most, Tool: most, Key: most, Run: most, Occurrence: most}
	if _, err := (&effect.Contract{}).Identify(call); err != nil {
		t.Error(err)
	}
}

// FuzzIdentify compares the selection of one member with what encoding/json makes of the arguments.
func FuzzIdentify(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":{"c":[1,{"d":2}]}}`, `{"a":{"b":1},"":2}`, `{"a":[[],{}]}`, `null`, `{"b":"\u0000<","a":1e2}`} {
		f.Add([]byte(seed), "a")
	}
	f.Fuzz(func(t *testing.T, arguments []byte, name string) {
		call := aliceCalls(string(arguments))
		all, err := (&effect.Contract{NoKeyArgument: true}).Identify(call)
		if err != nil {
			var invalid *effect.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("error = %v, want an *InvalidError", err)
			}
			return
		}
		if len(arguments) == 0 || strings.HasPrefix(name, "/") || !utf8.ValidString(name) {
			return
		}
		only, rest := split(t, arguments, name)
		for _, selected := range []struct {
			contract *effect.Contract
			want     effect.Digest
		}{
			{&effect.Contract{NoKeyArgument: true, Identity: []string{name}}, only},
			{&effect.Contract{NoKeyArgument: true, Volatile: []string{name}}, rest},
		} {
			id := identify(t, selected.contract, call)
			if id.Arguments != selected.want {
				t.Fatalf("selection of %q by %+v is not what was meant", name, selected.contract)
			}
			if id.Complete != all.Complete {
				t.Fatal("a selection changed the complete digest")
			}
		}
	})
}

// split returns the digests of an object with one member alone, and without it.
func split(t *testing.T, object []byte, name string) (only, rest effect.Digest) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		t.Fatal(err)
	}
	alone := map[string]json.RawMessage{}
	if value, ok := members[name]; ok {
		alone[name] = value
		delete(members, name)
	}
	return digestOf(t, alone), digestOf(t, members)
}

func digestOf(t *testing.T, members map[string]json.RawMessage) effect.Digest {
	t.Helper()
	b, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	d, err := effect.DigestOf(b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func BenchmarkIdentify1KiB(b *testing.B) {
	arguments := `{"to":"someone@example.com","subject":"an invoice","body":"` + strings.Repeat("some text, ", 60) +
		`","amount":1250.5,"lines":[{"sku":"A-1","count":3,"price":12.5},{"sku":"A-2","count":1,"price":9}],"id":9007199254740993,"reference":"r-17"}`
	for name, contract := range map[string]*effect.Contract{
		"all arguments": {}, "volatile": {Volatile: []string{"reference", "/lines/0/price"}}, "identity": {Identity: []string{"to", "id"}},
	} {
		b.Run(name, func(b *testing.B) {
			call := aliceCalls(arguments)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := contract.Identify(call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
