package interceptors_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/interceptors"
)

const secret = "canary: handler text that no peer may see"

// bothPhases hooks the events in both phases.
func bothPhases(events ...string) []interceptors.Hook {
	return []interceptors.Hook{
		{Events: events, Phase: interceptors.PhaseRequest},
		{Events: events, Phase: interceptors.PhaseResponse},
	}
}

func requestOnly(events ...string) []interceptors.Hook { return bothPhases(events...)[:1] }

type validate = func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error)

type mutate = func(context.Context, *interceptors.Invocation) (*interceptors.Change, error)

func validator(name string, hooks []interceptors.Hook, f validate) *interceptors.Validator {
	return &interceptors.Validator{Descriptor: interceptors.Descriptor{Name: name, Hooks: hooks}, Validate: f}
}

func mutator(name string, hooks []interceptors.Hook, f mutate) *interceptors.Mutator {
	return &interceptors.Mutator{Descriptor: interceptors.Descriptor{Name: name, Hooks: hooks}, Mutate: f}
}

func allow(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	return interceptors.Allow(), nil
}

func deny(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	return interceptors.Deny("denied by policy"), nil
}

func crash(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	return nil, errors.New(secret)
}

func panics(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	panic(secret)
}

func uppercaseNote(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	found := notePattern.FindSubmatchIndex(in.Payload)
	if found == nil {
		return nil, nil
	}
	changed := bytes.Clone(in.Payload)
	copy(changed[found[2]:found[3]], bytes.ToUpper(changed[found[2]:found[3]]))
	return &interceptors.Change{Payload: changed}, nil
}

var notePattern = regexp.MustCompile(`"note":\s*"([a-zA-Z]*)"`)

// behaviors are the interceptors that testdata/host.json names.
func behaviors() map[string]interceptors.Interceptor {
	configured := validator("t/configured", requestOnly("tools/call"), allow)
	configured.ConfigSchema = json.RawMessage(rowsSchema)
	return map[string]interceptors.Interceptor{
		"t/allow-all":      validator("t/allow-all", bothPhases("tools/call"), allow),
		"t/deny-all":       validator("t/deny-all", bothPhases("tools/call"), deny),
		"t/any":            validator("t/any", requestOnly("*"), allow),
		"t/request-only":   validator("t/request-only", requestOnly("tools/call"), mustNotRun),
		"t/no-hooks":       validator("t/no-hooks", nil, mustNotRun),
		"t/crash":          validator("t/crash", bothPhases("tools/call"), crash),
		"t/panic":          validator("t/panic", bothPhases("tools/call"), panics),
		"t/configured":     configured,
		"t/uppercase-note": mutator("t/uppercase-note", bothPhases("tools/call"), uppercaseNote),
	}
}

const rowsSchema = `{"type":"object","properties":{"maxRows":{"type":"integer"}},"required":["maxRows"],"additionalProperties":false}`

// mustNotRun is a handler of invocations that must be refused before.
func mustNotRun(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	return nil, errors.New("the handler was called")
}

func newServer(t testing.TB, opts *interceptors.ServerOptions, is ...interceptors.Interceptor) *interceptors.Server {
	t.Helper()
	s := interceptors.NewServer(opts)
	if err := s.Add(is...); err != nil {
		t.Fatal(err)
	}
	return s
}

// canonical is a form in which equal JSON is equal text; the members in drop are left out at the top.
func canonical(t testing.TB, raw []byte, drop ...string) string {
	t.Helper()
	if len(drop) > 0 {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			t.Fatalf("decode %s: %v", raw, err)
		}
		for _, name := range drop {
			delete(object, name)
		}
		kept, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		raw = kept
	}
	v := jsontext.Value(bytes.Clone(raw))
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		t.Fatalf("canonicalize %s: %v", raw, err)
	}
	return string(v)
}

func marshal(t testing.TB, v json.Marshaler) []byte {
	t.Helper()
	raw, err := v.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
