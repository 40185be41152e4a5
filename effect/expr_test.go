package effect_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/undolog/undolog/effect"
)

func TestCondition_Holds(t *testing.T) {
	call := effect.Call{
		Tenant: "acme", Principal: "agent:bot", Server: "payments", Tool: "charge", Run: "nightly",
		Arguments: json.RawMessage(`{"amount":100,"rate":0.5,"to":["a@example.com","b@Example.com"],"big":18446744073709551615,` +
			`"huge":18446744073709551617,"id":9007199254740993,"nested":{"a":{"b":null}},"neg":-3,"exp":1e3,"odd name":"x","text":"ü\u0000"}`),
		Annotations: &effect.Annotations{Idempotent: true, Closed: true},
	}
	for text, want := range map[string]bool{
		`true`:                                 true,
		`args.amount > 99`:                     true,
		`args.amount > 99.5`:                   true,
		`args.amount == 100u`:                  true,
		`args.rate < 1`:                        true,
		`args.exp == 1000`:                     true,
		`args.neg < 0u`:                        true,
		`args.id == 9007199254740993`:          true,
		`args.id == 9007199254740992`:          false,
		`args.big == 18446744073709551615u`:    true,
		`args.big > 18446744073709551614u`:     true,
		`has(args.memo) && args.memo == "x"`:   false,
		`has(args.nested.a.b)`:                 true,
		`args.nested.a.b == null`:              true,
		`args.?memo.orValue("none") == "none"`: true,
		`args.to.all(a, a.lowerAscii().endsWith("@example.com"))`:            true,
		`args.to.exists(a, a.matches("^b@"))`:                                true,
		`size(args.to) == 2 && "a@example.com" in args.to`:                   true,
		`args["odd name"] == "x"`:                                            true,
		`args.text.size() == 2`:                                              true,
		`principal == "agent:bot" && tenant == "acme" && run == "nightly"`:   true,
		`server.startsWith("pay") && tool in ["charge", "refund"]`:           true,
		`annotations.idempotentHint && !annotations.readOnlyHint`:            true,
		`annotations.destructiveHint && !annotations.openWorldHint`:          true,
		`math.greatest(args.amount, 7) == 100`:                               true,
		`has(args.huge)`:                                                     true,
		`args.amount > 1000 || args.memo == "x" || args.amount > 1`:          true, // CEL: one true side is enough
		`args.amount < 1000 ? args.to[1].contains("Example") : args.nothing`: true,
	} {
		t.Run(text, func(t *testing.T) {
			c, err := effect.ParseCondition(text)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := c.Holds(&call); err != nil || got != want {
				t.Errorf("Holds = %t, %v, want %t", got, err, want)
			}
		})
	}
}

// Whatever cannot be said is an error: who asks takes the safe side.
func TestCondition_HasNoValue(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for _, tt := range []struct{ name, text, arguments, want string }{
		{"of an argument that is not there", `args.amount > 1`, `{}`, "no such key: amount"},
		{"of a call without arguments", `args.amount > 1`, ``, "no such key: amount"},
		{"of an argument of another type", `args.amount > 1`, `{"amount":"2"}`, "no such overload"},
		{"of a null", `args.amount > 1`, `{"amount":null}`, "no such overload"},
		{"where it is no truth", `args.ok`, `{"ok":"true"}`, "not a bool"},
		{"of an integer that cannot be told from its neighbours", `args.id == 18446744073709551617`, `{"id":18446744073709551618}`, ""},
		{"of a number past all measure", `args.n > 1.0`, `{"n":1e999}`, "too large to compare"},
		{"of integers that overflow", `args.n + 1 > 0`, `{"n":9223372036854775807}`, "overflow"},
		{"of a division by zero", `1 / args.n > 0`, `{"n":0}`, "division by zero"},
		{"of arguments that are a list", `true`, `[1]`, "not a JSON object"},
		{"of arguments that are cut off", `true`, `{"a":`, "read arguments"},
		{"of two values", `true`, `{} {}`, "more than one"},
		{"of a name that stands twice", `true`, `{"a":1,"a":2}`, "duplicate"},
		{"where it costs too much", `args.l.all(a, args.l.all(b, args.l.all(c, args.l.all(d, a + b + c + d != 1))))`, `{"l":[` + strings.Repeat("7,", 99) + `7]}`, "cost limit"},
		{"of an element that is not there", `args.l[3] == 1`, `{"l":[1]}`, "index out of bounds"},
		{"of nesting that leads nowhere", `args.l.a == 1`, `{"l":` + deep + `}`, "unsupported index type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := effect.ParseCondition(tt.text)
			if tt.want == "" { // the expression itself is refused
				if err == nil {
					t.Error("it was compiled")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := c.Holds(&effect.Call{Arguments: json.RawMessage(tt.arguments)}); err == nil || got || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Holds = %t, %v, want an error with %q", got, err, tt.want)
			}
		})
	}
}

// Two integers that differ in the last of many digits never pass for each other.
func TestCondition_DoesNotCompareWhatItCannotHold(t *testing.T) {
	c, err := effect.ParseCondition(`args.id == 18446744073709551616.0`)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"18446744073709551616", "18446744073709551617", "-9223372036854775809"} {
		if got, err := c.Holds(&effect.Call{Arguments: json.RawMessage(`{"id":` + id + `}`)}); err == nil || got {
			t.Errorf("id %s: Holds = %t, %v", id, got, err)
		}
	}
}

func TestParseCondition_SaysWhereAndWhat(t *testing.T) {
	for text, want := range map[string]string{
		``:                          `compile "":`,
		`args.amount >`:             `compile "args.amount >": at character 14: Syntax error`,
		`arg.amount > 1`:            `compile "arg.amount > 1": at character 1: undeclared reference to 'arg'`,
		`true &&` + "\n" + `nope`:   `in line 2 at character 1: undeclared reference to 'nope'`,
		`args.amount`:               ``, // its type is known only of a call
		`args.amount + 1`:           `it is a int, and must be a bool`,
		`"text"`:                    `it is a string, and must be a bool`,
		`principal > 7`:             `found no matching overload`,
		`principal.matches("(")`:    `matches`,
		`result.x == 1`:             `undeclared reference to 'result'`,
		`key == ""`:                 `undeclared reference to 'key'`,
		strings.Repeat("(", 100000): `compile`,
	} {
		t.Run(fmt.Sprintf("%.20q", text), func(t *testing.T) {
			_, err := effect.ParseCondition(text)
			switch {
			case want == "" && err != nil:
				t.Errorf("error = %v", err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("error = %.300v, want one with %q", err, want)
			case err != nil && strings.Contains(err.Error(), "\n"):
				t.Errorf("error has several lines: %v", err)
			}
		})
	}
}

func TestAmount_Of(t *testing.T) {
	for _, tt := range []struct {
		name, text, arguments string
		want                  int64
	}{
		{"a whole number", `args.n`, `{"n":7}`, 7_000_000},
		{"a part", `args.n`, `{"n":0.1}`, 100_000},
		{"what is less than can be counted is rounded up", `args.n`, `{"n":0.00000149}`, 2},
		{"nothing", `args.n`, `{"n":0}`, 0},
		{"a sum", `args.lines.map(l, l.price * l.count).sum()`, `{"lines":[]}`, -1}, // CEL has no sum
		{"a large whole number, exactly", `args.n`, `{"n":2305843009213}`, 2_305_843_009_213_000_000},
		{"a size", `size(args.to)`, `{"to":["a","b"]}`, 2_000_000},
		{"a choice", `has(args.n) ? args.n : 1`, `{}`, 1_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := effect.ParseAmount(tt.text)
			if tt.want < 0 {
				if err == nil {
					t.Error("it was compiled")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := a.Of(&effect.Call{Arguments: json.RawMessage(tt.arguments)}); err != nil || got != tt.want {
				t.Errorf("Of = %d, %v, want %d", got, err, tt.want)
			}
		})
	}
	for _, arguments := range []string{`{"n":-1}`, `{"n":-0.1}`, `{"n":9223372036854775807}`, `{"n":1e300}`, `{"n":"7"}`, `{}`, `{"n":null}`, `{"n":18446744073709551615}`, `{"n":99999999999999999999}`} {
		a, err := effect.ParseAmount(`args.n`)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := a.Of(&effect.Call{Arguments: json.RawMessage(arguments)}); err == nil {
			t.Errorf("%s counts as %d", arguments, got)
		}
	}
}

func FuzzCondition(f *testing.F) {
	for _, seed := range []string{
		`args.a > 1`, `has(args.a) && args.a.b == "x"`, `args.l.all(x, x < 3)`, `principal.matches("^a+$")`, `args.?a.orValue(1) == 1`, `"x".format([1])`, `[1,2].map(x, x)[0] == 1`,
	} {
		f.Add(seed, `{"a":1,"l":[1,2],"b":{"c":18446744073709551617}}`)
	}
	f.Fuzz(func(t *testing.T, text, arguments string) {
		call := effect.Call{Principal: "agent:bot", Arguments: json.RawMessage(arguments)}
		if c, err := effect.ParseCondition(text); err == nil {
			if holds, err := c.Holds(&call); err != nil && holds {
				t.Errorf("%q holds with the error %v", text, err)
			}
		} else if strings.Contains(err.Error(), "\n") && !strings.Contains(text, "\n") {
			t.Errorf("%q: error of several lines: %v", text, err)
		}
		if a, err := effect.ParseAmount(text); err == nil {
			if n, err := a.Of(&call); err == nil && n < 0 {
				t.Errorf("%q is the amount %d", text, n)
			}
		}
	})
}
