package effectinterceptor_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// checked is a policy that checks schemas, as every policy does, and asks for nothing.
const checked = "version: 1\ntools:\n  - {tool: \"*\", tier: irreversible, approve: never}\n"

// payTool is a definition with the usual words of input schemas.
const payTool = `{"name":"pay","inputSchema":{"type":"object","additionalProperties":false,
	"properties":{
		"to":{"type":"string","pattern":"^(?!-)[a-z]+$","minLength":2},
		"amount":{"type":"integer","minimum":1,"maximum":9007199254740993},
		"currency":{"enum":["EUR","USD"]},
		"when":{"type":"string","format":"date"},
		"tags":{"type":"array","maxItems":2,"uniqueItems":true,"items":{"type":"string"}},
		"split":{"anyOf":[{"type":"integer"},{"type":"null"}]},
		"via":{"oneOf":[{"type":"object","required":["iban"],"properties":{"iban":{"type":"string"}}},{"type":"object","required":["card"],"properties":{"card":{"type":"string"}}}]}
	},
	"required":["to","amount"]},
	"outputSchema":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}}`

func knowsPay(t *testing.T, changes ...change) *world {
	w := newWorld(t, append([]change{policy(checked)}, changes...)...)
	w.alice().list(toolsList(payTool))
	return w
}

func payWith(arguments string) string { return `{"name":"pay","arguments":` + arguments + `}` }

func TestSchema_TextsForTheModel(t *testing.T) {
	for name, arguments := range map[string]string{
		"schema_type":       `{"to":"bob","amount":"12"}`,
		"schema_missing":    `{}`,
		"schema_unknown":    `{"to":"bob","amout":12}`,
		"schema_bounds":     `{"to":"b","amount":0,"tags":["a","a",1]}`,
		"schema_choice":     `{"to":"bob","amount":1,"currency":"GBP"}`,
		"schema_or_null":    `{"to":"bob","amount":1,"split":"two"}`,
		"schema_forms":      `{"to":"bob","amount":1,"via":{"iban":7}}`,
		"schema_big_number": `{"to":"bob","amount":9007199254740994}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := knowsPay(t)
			block := w.alice().with(exchange("X")).mustBlock(payWith(arguments))
			if block.Code != -32602 {
				t.Errorf("code %d, want -32602", block.Code)
			}
			golden(t, name, block.Message, block.Data)
			if n := len(w.effects("default")); n != 0 {
				t.Errorf("%d effects, want none: nothing was claimed", n)
			}
		})
	}
}

func TestSchema_AcceptsWhatFits(t *testing.T) {
	w := knowsPay(t)
	for _, arguments := range []string{
		`{"to":"bob","amount":9007199254740993}`,
		`{"to":"-bob","amount":1e2,"when":"tomorrow"}`, // a pattern that Go cannot match, a format that nobody must check
		`{"to":"bob","amount":1,"split":null,"via":{"card":"4111"},"tags":["a","b"],"currency":"EUR"}`,
	} {
		w.alice().with(exchange(arguments)).mustClaim(payWith(arguments))
	}
}

// A policy that asks about large amounts has not seen this one, and a tool whose reader folds case would take it.
func TestSchema_AnotherCaseIsAnotherName(t *testing.T) {
	w := newWorld(t, policy(checked))
	w.alice().list(toolsList(`{"name":"pay","inputSchema":{"type":"object","properties":{"amount":{"type":"integer"},"force":{"type":"boolean"}}}}`))
	for arguments, want := range map[string]string{
		`{"amount":1,"Amount":1000}`:         "/arguments/Amount",
		`{"amount":1,"\u0041MOUNT":1000}`:    "/arguments/AMOUNT",
		`{"amount":1,"FORCE":true,"note":1}`: "/arguments/FORCE",
	} {
		block := w.alice().with(exchange(arguments)).mustBlock(payWith(arguments))
		if block.Code != -32602 || !strings.Contains(string(block.Data), want) {
			t.Errorf("%s: code %d, %s, want -32602 and %s", arguments, block.Code, block.Data, want)
		}
	}
	other := `{"amount":1,"note":"x"}`
	w.alice().with(exchange(other)).mustClaim(payWith(other))
}

func TestSchema_IsCheckedAgainAtTheClaim(t *testing.T) {
	w := knowsPay(t)
	c := w.alice().with(exchange("X"))
	if r, err := c.invoke(effectinterceptor.GuardName, interceptors.PhaseRequest, payWith(`{"to":"bob","amount":1}`)); err != nil || !r.Valid {
		t.Fatal(r, err)
	}
	var block *interceptors.BlockError
	_, err := c.invoke(effectinterceptor.EffectName, interceptors.PhaseRequest, payWith(`{"to":"bob","amount":"1"}`))
	if !errors.As(err, &block) || block.Code != -32602 {
		t.Errorf("another interceptor's change went out: %v", err)
	}
}

func TestSchema_OfAToolThatOnlyReads(t *testing.T) {
	w := newWorld(t, tier("read"))
	w.alice().list(toolsList(payTool))
	if block := w.alice().mustBlock(payWith(`{"to":"bob"}`)); !strings.Contains(block.Message, "missing property amount") {
		t.Errorf("%q", block.Message)
	}
}

func TestSchema_ForAnotherEngine(t *testing.T) {
	w := knowsPay(t, foreign)
	w.remote().with(func(c *caller) { c.config = `{"server":"bank"}` }).list(toolsList(payTool))
	c := w.remote().with(func(c *caller) { c.config = `{"server":"bank"}` })
	r, err := c.invoke(effectinterceptor.GuardName, interceptors.PhaseRequest, payWith(`{"amount":"1","to":7}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []interceptors.Message{
		{Path: "/arguments/amount", Message: "must be an integer, got string", Severity: interceptors.SeverityError},
		{Path: "/arguments/to", Message: "must be a string, got number", Severity: interceptors.SeverityError},
	}
	if diff := cmp.Diff(want, r.Messages); diff != "" || r.Valid {
		t.Errorf("valid %t, messages (-want +got)\n%s", r.Valid, diff)
	}
}

func TestSchema_IsNotCheckedWhere(t *testing.T) {
	const wrong = `{"name":"pay","arguments":{"amount":"1"}}`
	t.Run("there is no policy", func(t *testing.T) {
		w := newWorld(t)
		w.alice().list(toolsList(payTool))
		w.alice().with(exchange("X")).mustClaim(wrong)
	})
	t.Run("the policy says so", func(t *testing.T) {
		w := newWorld(t, policy(strings.Replace(checked, "approve: never", "approve: never, schemas: ignore", 1)))
		w.alice().list(toolsList(payTool))
		w.alice().with(exchange("X")).mustClaim(wrong)
	})
	t.Run("the tool is not known", func(t *testing.T) {
		newWorld(t, policy(checked)).alice().with(exchange("X")).mustClaim(wrong)
	})
	t.Run("in shadow, where it is noted", func(t *testing.T) {
		w := knowsPay(t, func(w *world) { w.opts.Policy = w.opts.Policy.InShadow() })
		w.alice().with(exchange("X")).mustClaim(wrong)
		if ev := w.wantEvent(effect.EventShadow, 1); len(ev) == 1 && !strings.Contains(string(ev[0].Detail), `"action":"invalid"`) {
			t.Errorf("detail %s", ev[0].Detail)
		}
	})
}

// A definition must not make us ask a server or read a file, and one that cannot be used checks nothing.
func TestSchema_LoadsNothing(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`false`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, schema := range map[string]string{
		"a reference to a server":   `{"$ref":"` + server.URL + `/s.json"}`,
		"a reference to a file":     `{"$ref":"file://` + file + `"}`,
		"a dialect on a server":     `{"$schema":"` + server.URL + `/dialect","type":"object"}`,
		"a reference to nothing":    `{"$ref":"#/$defs/none"}`,
		"a type that there is none": `{"type":"money"}`,
		"no schema at all":          `[1]`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, policy(checked))
			w.alice().list(toolsList(`{"name":"pay","inputSchema":` + schema + `}`))
			w.alice().with(exchange("X")).mustClaim(payWith(`{"to":"bob"}`))
		})
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestSchema_NumbersThatCostTooMuch(t *testing.T) {
	w := knowsPay(t)
	for _, number := range []string{"1e999999999", "1e-99999999999999999999", strings.Repeat("9", 2000)} {
		if block := w.alice().mustBlock(payWith(`{"to":"bob","amount":` + number + `}`)); !strings.Contains(string(block.Data), `"invalid"`) {
			t.Errorf("%.20s…: %s", number, block.Data)
		}
	}
}

// What a result tells of has happened, whatever its form.
func TestSchema_ResultThatDoesNotFitIsFlagged(t *testing.T) {
	for name, c := range map[string]struct {
		result string
		want   string // path; empty: not flagged
	}{
		"another type":          {`{"content":[],"structuredContent":{"id":"seven"}}`, "/structuredContent/id"},
		"a member is missing":   {`{"content":[],"structuredContent":{}}`, "/structuredContent"},
		"nothing is structured": {`{"content":[]}`, "/structuredContent"},
		"it fits":               {`{"content":[],"structuredContent":{"id":7}}`, ""},
		"it is an error":        {`{"content":[],"isError":true}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := knowsPay(t)
			done := w.alice().with(exchange("X")).run(payWith(`{"to":"bob","amount":1}`), c.result)
			r := w.wantState(done.id, effect.StateCommitted)
			if string(r.Answer.Body) != c.result {
				t.Errorf("recorded %s, want the bytes that came", r.Answer.Body)
			}
			want := 0
			if c.want != "" {
				want = 1
			}
			for _, ev := range w.wantEvent(effect.EventResultSchema, want) {
				path, _ := splice.Text(splice.Get(firstOf(t, splice.Get(ev.Detail, "errors")), "path"))
				if path != c.want || ev.Effect != done.id {
					t.Errorf("event of %s at %q (%s), want of %s at %q", ev.Effect, path, ev.Detail, done.id, c.want)
				}
			}
		})
	}
}

func firstOf(t *testing.T, array json.RawMessage) json.RawMessage {
	t.Helper()
	var all []json.RawMessage
	if err := json.Unmarshal(array, &all); err != nil || len(all) == 0 {
		t.Fatalf("%s: %v", array, err)
	}
	return all[0]
}
