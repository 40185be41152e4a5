package effect

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// Expressions of policies and grants are CEL, compiled when they are read. They see the call: args (its
// arguments), principal, tenant, server, tool, run and annotations. An integer is an int or a uint where one
// of them holds it, else, like every other number, a double; numbers of all kinds can be compared.

// Condition is a CEL expression that is true or false of a call. It is safe for concurrent use.
type Condition struct{ expression }

// Amount is a CEL expression that is a number, of units that a call takes. It is safe for concurrent use.
type Amount struct{ expression }

type expression struct {
	text    string
	program cel.Program
}

// maxCost bounds what evaluating an expression may cost, in CEL's own units: what a call holds must not make
// its policy slow.
const maxCost = 1_000_000

// scope is what an expression sees.
type scope struct {
	name string
	env  func() (*cel.Env, error)
}

var (
	callScope = &scope{"call", sync.OnceValues(func() (*cel.Env, error) {
		return cel.NewEnv(
			cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(), ext.Math(),
			cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
			cel.Variable("principal", cel.StringType),
			cel.Variable("tenant", cel.StringType),
			cel.Variable("server", cel.StringType),
			cel.Variable("tool", cel.StringType),
			cel.Variable("run", cel.StringType),
			cel.Variable("annotations", cel.MapType(cel.StringType, cel.BoolType)),
		)
	})}
	// sentScope sees a call that was sent, with the idempotency key that its target got.
	sentScope = callScope.with("sent", cel.Variable("key", cel.StringType))
	// probeScope sees what a probe answered, too.
	probeScope = sentScope.with("probe", cel.Variable("result", cel.DynType), cel.Variable("is_error", cel.BoolType))
)

func (s *scope) with(name string, more ...cel.EnvOption) *scope {
	return &scope{name, sync.OnceValues(func() (*cel.Env, error) {
		env, err := s.env()
		if err != nil {
			return nil, err
		}
		return env.Extend(more...)
	})}
}

// ParseCondition compiles a condition. Equal texts are compiled once.
func ParseCondition(text string) (*Condition, error) {
	e, err := callScope.compile(text, cel.BoolType)
	if err != nil {
		return nil, err
	}
	return &Condition{e}, nil
}

// ParseAmount compiles an amount.
func ParseAmount(text string) (*Amount, error) {
	e, err := callScope.compile(text, cel.IntType, cel.UintType, cel.DoubleType)
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

func (s *scope) compile(text string, want ...*cel.Type) (expression, error) {
	key := s.name + " " + want[0].String() + " " + text
	compiled.Lock()
	program := compiled.programs[key]
	compiled.Unlock()
	if program != nil {
		return expression{text, program}, nil
	}
	program, err := s.program(text, want)
	if err != nil {
		return expression{}, err
	}
	compiled.Lock()
	defer compiled.Unlock()
	if len(compiled.programs) >= maxCompiled {
		clear(compiled.programs)
	}
	compiled.programs[key] = program
	return expression{text, program}, nil
}

func (s *scope) program(text string, want []*cel.Type) (cel.Program, error) {
	env, err := s.env()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, fmt.Errorf("compile %q: %w", text, firstIssue(issues))
	}
	if !isOneOf(checked.OutputType(), want) {
		return nil, fmt.Errorf("compile %q: it is a %s, and must be a %s", text, checked.OutputType(), names(want))
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	if !isCheap(checked) {
		options = append(options, cel.CostLimit(maxCost))
	}
	program, err := env.Program(checked, options...)
	if err != nil {
		return nil, fmt.Errorf("compile %q: %w", text, err)
	}
	return program, nil
}

// cheap are the functions that look once at what they are given, and make nothing of it that is larger.
var cheap = []string{
	operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional,
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
	operators.Index, operators.In, operators.Subtract, operators.Negate,
	overloads.Size, overloads.StartsWith, overloads.EndsWith, overloads.Contains,
}

// isCheap reports whether evaluating an expression takes no longer than reading what it looks at as often as
// it is written. Counting what it costs, which most conditions need not, doubles that.
func isCheap(checked *cel.Ast) bool {
	bounded := true
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			bounded = false
		case ast.CallKind:
			bounded = bounded && slices.Contains(cheap, e.AsCall().FunctionName())
		}
	}))
	return bounded
}

// firstIssue is the first thing that the compiler has to say, in one line: the rest often follows from it.
func firstIssue(issues *cel.Issues) error {
	all := issues.Errors()
	if len(all) == 0 {
		return issues.Err()
	}
	first := all[0]
	message, _, _ := strings.Cut(first.Message, "\n")
	message, _, _ = strings.Cut(message, " expecting {") // every token of the grammar
	message = strings.TrimSuffix(message, " (in container '')")
	if line := first.Location.Line(); line > 1 {
		return fmt.Errorf("in line %d at character %d: %s", line, first.Location.Column()+1, message)
	}
	return fmt.Errorf("at character %d: %s", first.Location.Column()+1, message)
}

// isOneOf reports whether a type is of one of the kinds, or is known only when it is evaluated.
func isOneOf(t *cel.Type, want []*cel.Type) bool {
	return t.Kind() == cel.DynKind || slices.ContainsFunc(want, func(w *cel.Type) bool { return w.Kind() == t.Kind() })
}

func names(all []*cel.Type) string {
	texts := make([]string, len(all))
	for i, t := range all {
		texts[i] = t.String()
	}
	return strings.Join(texts, " or ")
}

// Holds reports whether the condition is true of a call. An error means that it cannot be said, for
// instance because an argument is not there: who asks must take the safe side.
func (c *Condition) Holds(call *Call) (bool, error) {
	v, err := newView(call)
	if err != nil {
		return false, err
	}
	return c.holds(v)
}

func (c *Condition) holds(v *view) (bool, error) {
	value, err := c.eval(v)
	if err != nil {
		return false, err
	}
	b, ok := value.(types.Bool)
	if !ok {
		return false, fmt.Errorf("evaluate %q: it is a %s, not a bool", c.text, value.Type().TypeName())
	}
	return bool(b), nil
}

// Of is the amount of a call in millionths of a unit, rounded up.
func (a *Amount) Of(call *Call) (int64, error) {
	v, err := newView(call)
	if err != nil {
		return 0, err
	}
	value, err := a.eval(v)
	if err != nil {
		return 0, err
	}
	switch n := value.(type) {
	case types.Int:
		return wholeUnits(int64(n))
	case types.Uint:
		return wholeUnits(int64(min(n, math.MaxInt64)))
	case types.Double:
		return millionths(float64(n))
	}
	return 0, fmt.Errorf("evaluate %q: it is a %s, not a number", a.text, value.Type().TypeName())
}

func (e *expression) eval(v *view) (ref.Val, error) {
	value, _, err := e.program.Eval(v)
	if err != nil {
		return nil, fmt.Errorf("evaluate %q: %w", e.text, err)
	}
	return value, nil
}
