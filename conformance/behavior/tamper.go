package behavior

import (
	"encoding/json"
	"fmt"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/internal/splice"
)

// Tamper returns what makes the results of an interceptor those of a faulty or old host, which this
// project's own host would not send; nil for behaviors that are honest.
func Tamper(f *conformance.Interceptor) func(result json.RawMessage) (json.RawMessage, error) {
	switch f.Behavior {
	case "lie-unmodified":
		return set("modified", "false")
	case "wrong-echo":
		return wrongEcho(f.Args.Field)
	case "wrong-kind":
		return wrongKind
	case "bare", "bare-deny":
		return drop("interceptor", "type", "phase")
	case "nested", "nested-deny":
		return nest
	case "valid-with-error-severity":
		return set("severity", `"error"`)
	case "no-severity-deny":
		return drop("severity")
	case "odd-severity-deny":
		return oddSeverity(f.Args.Tag)
	}
	return nil
}

func set(member, value string) func(json.RawMessage) (json.RawMessage, error) {
	return func(result json.RawMessage) (json.RawMessage, error) {
		return splice.Set(result, []byte(value), member)
	}
}

// oddSeverity puts a word in place of every severity.
func oddSeverity(word string) func(json.RawMessage) (json.RawMessage, error) {
	return func(result json.RawMessage) (json.RawMessage, error) {
		out, err := splice.Set(result, quoted(word), "severity")
		if err != nil {
			return nil, err
		}
		return splice.Set(out, fmt.Appendf(nil, `[{"message":"denied by policy","severity":%s}]`, quoted(word)), "messages")
	}
}

func drop(names ...string) func(json.RawMessage) (json.RawMessage, error) {
	return func(result json.RawMessage) (json.RawMessage, error) {
		out, _, err := splice.Delete(result, func(name string) bool {
			for _, n := range names {
				if n == name {
					return true
				}
			}
			return false
		})
		return out, err
	}
}

// wrongEcho says something else about itself than what was asked for.
func wrongEcho(field string) func(json.RawMessage) (json.RawMessage, error) {
	other := map[string]string{"interceptor": `"t/another"`, "phase": `"response"`, "type": `"sink"`}[field]
	return func(result json.RawMessage) (json.RawMessage, error) {
		if other == "" {
			return nil, fmt.Errorf("wrong-echo of %q", field)
		}
		if field == "phase" && string(splice.Get(result, "phase")) == other {
			return splice.Set(result, []byte(`"request"`), field)
		}
		return splice.Set(result, []byte(other), field)
	}
}

// wrongKind answers for the other type.
func wrongKind(result json.RawMessage) (json.RawMessage, error) {
	interceptor, phase := splice.Get(result, "interceptor"), splice.Get(result, "phase")
	if string(splice.Get(result, "type")) == `"mutation"` {
		return fmt.Appendf(nil, `{"interceptor":%s,"type":"validation","phase":%s,"valid":true}`, interceptor, phase), nil
	}
	return fmt.Appendf(nil, `{"interceptor":%s,"type":"mutation","phase":%s,"modified":true,"payload":{"name":"hijacked"}}`,
		interceptor, phase), nil
}

// nest is the envelope of older hosts.
func nest(result json.RawMessage) (json.RawMessage, error) {
	inner, err := drop("interceptor", "type", "phase", "durationMs", "info")(result)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"interceptor":%s,"type":%s,"phase":%s,"durationMs":0,"validation":%s}`,
		splice.Get(result, "interceptor"), splice.Get(result, "type"), splice.Get(result, "phase"), inner), nil
}
