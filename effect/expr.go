package effect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/go-json-experiment/json/jsontext"
)

// Expressions of policies and grants are CEL, compiled when they are read. They see the call: args (its
// arguments), principal, tenant, server, tool, run and annotations. An integer is an int or a uint where one
// of them holds it, else, like every other number, a double; numbers of all kinds can be compared.

// Condition is a CEL expression that is true or false of a call. It is safe for concurrent use.
type Condition struct{ expression }

// Amount is a CEL expression that is a number, of units that a call takes.
type Amount struct{ expression }

type expression struct {
	text    string
	program cel.Program
}

// maxCost bounds what evaluating an expression may cost, in CEL's own units: what a call holds must not make
// its policy slow.
const maxCost = 1_000_000

var callEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.CrossTypeNumericComparisons(true),
		cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("principal", cel.StringType),
		cel.Variable("tenant", cel.StringType),
		cel.Variable("server", cel.StringType),
		cel.Variable("tool", cel.StringType),
		cel.Variable("run", cel.StringType),
		cel.Variable("annotations", cel.MapType(cel.StringType, cel.BoolType)),
	)
})

// ParseCondition compiles a condition. Equal texts are compiled once.
func ParseCondition(text string) (*Condition, error) {
	e, err := compile(text, cel.BoolType)
	if err != nil {
		return nil, err
	}
	return &Condition{e}, nil
}

// ParseAmount compiles an amount.
func ParseAmount(text string) (*Amount, error) {
	e, err := compile(text, cel.IntType, cel.UintType, cel.DoubleType)
	if err != nil {
		return nil, err
	}
	return &Amount{e}, nil
}

// Text is the expression as it was written.
func (e *expression) Text() string { return e.text }

var compiled = struct {
	sync.Mutex
	programs map[string]cel.Program
}{programs: map[string]cel.Program{}}

// maxCompiled bounds how many programs are kept: grants are as many as people make.
const maxCompiled = 1024

func compile(text string, want ...*cel.Type) (expression, error) {
	key := want[0].String() + " " + text
	compiled.Lock()
	program := compiled.programs[key]
	compiled.Unlock()
	if program != nil {
		return expression{text, program}, nil
	}
	env, err := callEnv()
	if err != nil {
		return expression{}, err
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return expression{}, fmt.Errorf("compile %q: %w", text, err)
	}
	if !isOneOf(ast.OutputType(), want) {
		return expression{}, fmt.Errorf("compile %q: it is a %s, and must be a %s", text, ast.OutputType(), want[0])
	}
	if program, err = env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost)); err != nil {
		return expression{}, fmt.Errorf("compile %q: %w", text, err)
	}
	compiled.Lock()
	defer compiled.Unlock()
	if len(compiled.programs) >= maxCompiled {
		clear(compiled.programs)
	}
	compiled.programs[key] = program
	return expression{text, program}, nil
}

func isOneOf(t *cel.Type, want []*cel.Type) bool {
	if t.IsExactType(cel.DynType) {
		return true
	}
	for _, w := range want {
		if t.IsExactType(w) {
			return true
		}
	}
	return false
}

// Holds reports whether the condition is true of a call. An error means that it cannot be said, for
// instance because an argument is not there: who asks must take the safe side.
func (c *Condition) Holds(call *Call) (bool, error) {
	v, err := c.eval(call)
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, fmt.Errorf("evaluate %q: it is a %s, not a bool", c.text, v.Type().TypeName())
	}
	return bool(b), nil
}

// Of is the amount of a call in millionths of a unit, rounded up.
func (a *Amount) Of(call *Call) (int64, error) {
	v, err := a.eval(call)
	if err != nil {
		return 0, err
	}
	switch n := v.(type) {
	case types.Int:
		return millionths(float64(n))
	case types.Uint:
		return millionths(float64(n))
	case types.Double:
		return millionths(float64(n))
	}
	return 0, fmt.Errorf("evaluate %q: it is a %s, not a number", a.text, v.Type().TypeName())
}

func (e *expression) eval(call *Call) (ref.Val, error) {
	vars, err := variables(call)
	if err != nil {
		return nil, err
	}
	v, _, err := e.program.Eval(vars)
	if err != nil {
		return nil, fmt.Errorf("evaluate %q: %w", e.text, err)
	}
	return v, nil
}

func variables(call *Call) (map[string]any, error) {
	args, err := celObject(call.Arguments)
	if err != nil {
		return nil, fmt.Errorf("read arguments: %w", err)
	}
	return map[string]any{
		"args": args, "principal": call.Principal, "tenant": call.Tenant, "server": call.Server, "tool": call.Tool,
		"run": call.Run, "annotations": call.Annotations.hints(),
	}, nil
}

func (a *Annotations) hints() map[string]bool {
	if a == nil {
		return map[string]bool{}
	}
	return map[string]bool{"readOnlyHint": a.ReadOnly, "idempotentHint": a.Idempotent}
}

var errNoObject = errors.New("not a JSON object")

// celObject reads a JSON object for CEL. Absent means empty.
func celObject(src json.RawMessage) (map[string]any, error) {
	if len(src) == 0 {
		return map[string]any{}, nil
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(src))
	v, err := celValue(dec)
	if err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if _, end := dec.ReadToken(); !ok || !errors.Is(end, io.EOF) {
		return nil, errNoObject
	}
	return object, nil
}

func celValue(dec *jsontext.Decoder) (any, error) {
	token, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return token.Bool(), nil
	case '"':
		return token.String(), nil
	case '0':
		return celNumber(token.String())
	case '[':
		list := []any{}
		for dec.PeekKind() != ']' {
			v, err := celValue(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.ReadToken()
		return list, err
	}
	return celMembers(dec)
}

func celMembers(dec *jsontext.Decoder) (any, error) {
	object := map[string]any{}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		if object[key], err = celValue(dec); err != nil {
			return nil, err
		}
	}
	_, err := dec.ReadToken()
	return object, err
}

func celNumber(literal string) (any, error) {
	if n, err := strconv.ParseInt(literal, 10, 64); err == nil {
		return n, nil
	}
	if n, err := strconv.ParseUint(literal, 10, 64); err == nil {
		return n, nil
	}
	return strconv.ParseFloat(literal, 64)
}
