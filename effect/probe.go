package effect

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"github.com/go-json-experiment/json/jsontext"
)

// Probe is how the outcome of a call is looked up when its answer was lost: by a call of a tool that only
// reads. It is safe for concurrent use.
type Probe struct {
	Server string // of the probe's tool; empty: the call's own
	Tool   string

	arguments *expression
	verdict   *expression
}

// ProbeVerdict is what a probe says of a call.
type ProbeVerdict string

const (
	ProbeApplied    ProbeVerdict = "applied"     // it took effect
	ProbeNotApplied ProbeVerdict = "not_applied" // it did not, and will not any more
	ProbeUnknown    ProbeVerdict = "unknown"     // the probe cannot tell
)

// ParseProbe compiles a probe. arguments is a CEL expression over the call that is a map; verdict one over the
// call and the probe's result that is a ProbeVerdict, or a map of verdict and, for a call that was applied,
// result. Both see the idempotency key that the target got, as key.
func ParseProbe(server, tool, arguments, verdict string) (*Probe, error) {
	p := &Probe{Server: server, Tool: tool}
	a, err := parseProbeArguments(arguments)
	if err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	v, err := parseProbeVerdict(verdict)
	if err != nil {
		return nil, fmt.Errorf("verdict: %w", err)
	}
	p.arguments, p.verdict = a, v
	return p, nil
}

func parseProbeArguments(text string) (*expression, error) {
	if text == "" {
		return nil, nil
	}
	e, err := sentScope.compile(text, cel.MapType(cel.StringType, cel.DynType))
	return &e, err
}

func parseProbeVerdict(text string) (*expression, error) {
	e, err := probeScope.compile(text, cel.StringType, cel.MapType(cel.StringType, cel.DynType))
	return &e, err
}

// Arguments are those of the probe for a call, whose Key MUST be the idempotency key that its target got.
func (p *Probe) Arguments(call *Call) (json.RawMessage, error) {
	if p.arguments == nil {
		return json.RawMessage(`{}`), nil
	}
	v, err := newProbeView(call)
	if err != nil {
		return nil, err
	}
	value, err := p.arguments.eval(v)
	if err != nil {
		return nil, err
	}
	if _, ok := value.(traits.Mapper); !ok {
		return nil, fmt.Errorf("evaluate %q: it is a %s, not a map", p.arguments.text, value.Type().TypeName())
	}
	arguments, err := appendCEL(nil, value)
	if err != nil {
		return nil, fmt.Errorf("evaluate %q: %w", p.arguments.text, err)
	}
	return arguments, nil
}

// Verdict judges what a probe was answered: result is the result member of a tools/call, isError its own
// member. For a call that was applied it returns the result to record, which is a tools/call's; nil where the
// probe gives none. An error means that the answer cannot be judged, which says as little as ProbeUnknown.
func (p *Probe) Verdict(call *Call, result json.RawMessage, isError bool) (ProbeVerdict, json.RawMessage, error) {
	v, err := newProbeView(call)
	if err != nil {
		return ProbeUnknown, nil, err
	}
	if err := v.answered(result, isError); err != nil {
		return ProbeUnknown, nil, err
	}
	value, err := p.verdict.eval(v)
	if err != nil {
		return ProbeUnknown, nil, err
	}
	verdict, recorded, err := readVerdict(value)
	if err != nil {
		return ProbeUnknown, nil, fmt.Errorf("evaluate %q: %w", p.verdict.text, err)
	}
	return verdict, recorded, nil
}

// newProbeView is the view of a call as it may have been kept: what was redacted is not there, so that an
// expression that needs it cannot be evaluated, instead of finding that nothing equals it.
func newProbeView(call *Call) (*view, error) {
	v, err := newView(call)
	if err != nil {
		return nil, err
	}
	for name, value := range v.args {
		kept, ok := unredacted(value)
		if !ok {
			delete(v.args, name)
			continue
		}
		v.args[name] = kept
	}
	return v, nil
}

// unredacted is a value without the members that were redacted; false when it was redacted itself. A list
// that lacks an element is another list, so it counts as redacted as a whole.
func unredacted(value any) (_ any, ok bool) {
	switch value := value.(type) {
	case string:
		return value, !strings.Contains(value, Redacted)
	case []any:
		for i := range value {
			if value[i], ok = unredacted(value[i]); !ok {
				return nil, false
			}
		}
	case map[string]any:
		for name, member := range value {
			if value[name], ok = unredacted(member); !ok {
				delete(value, name)
			}
		}
	}
	return value, true
}

func readVerdict(value ref.Val) (ProbeVerdict, json.RawMessage, error) {
	m, ok := value.(traits.Mapper)
	if !ok {
		verdict, err := knownVerdict(value)
		return verdict, nil, err
	}
	said, found := m.Find(types.String("verdict"))
	if !found {
		return ProbeUnknown, nil, errors.New("its map has no verdict")
	}
	verdict, err := knownVerdict(said)
	result, found := m.Find(types.String("result"))
	if err != nil || verdict != ProbeApplied || !found || result == types.NullValue {
		return verdict, nil, err
	}
	recorded, err := toolResult(result)
	if err != nil {
		return ProbeUnknown, nil, err
	}
	return verdict, recorded, nil
}

func knownVerdict(value ref.Val) (ProbeVerdict, error) {
	text, ok := value.(types.String)
	switch v := ProbeVerdict(text); v {
	case ProbeApplied, ProbeNotApplied, ProbeUnknown:
		return v, nil
	}
	if !ok {
		return ProbeUnknown, fmt.Errorf("the verdict is a %s, not a string", value.Type().TypeName())
	}
	return ProbeUnknown, fmt.Errorf("%.60q is no verdict: applied, not_applied and unknown are", string(text))
}

// toolResult is the result of a tools/call that a value makes: one that is written out stays as it is, a text
// becomes its content, and anything else its content and, an object, its structured content.
func toolResult(value ref.Val) (json.RawMessage, error) {
	written, err := appendCEL(nil, value)
	if err != nil {
		return nil, err
	}
	m, isMap := value.(traits.Mapper)
	if isMap {
		if content, found := m.Find(types.String("content")); found {
			if _, isList := content.(traits.Lister); isList {
				return written, nil
			}
		}
	}
	text := string(written)
	if s, ok := value.(types.String); ok {
		text = string(s)
	}
	quoted, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		return nil, err
	}
	out := append(append([]byte(`{"content":[{"type":"text","text":`), quoted...), `}]`...)
	if isMap {
		out = append(append(out, `,"structuredContent":`...), written...)
	}
	return append(out, '}'), nil
}
