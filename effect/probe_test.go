package effect_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/undolog/undolog/effect"
)

func probe(t testing.TB, arguments, verdict string) *effect.Probe {
	t.Helper()
	p, err := effect.ParseProbe("", "find_payment", arguments, verdict)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var lostPayment = &effect.Call{
	Server: "payments", Tool: "charge", Principal: "agent:bot", Key: "0197b0c2",
	Arguments: json.RawMessage(`{"account":"DE1","id":9007199254740993,"lines":[{"n":1.5},null,true],"huge":18446744073709551617}`),
}

func TestProbe_Arguments(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"none", ``, `{}`},
		{"from the call and the key that was sent", `{"key": key, "account": args.account}`, `{"account":"DE1","key":"0197b0c2"}`},
		{"of every kind, integers exactly", `{"id": args.id, "lines": args.lines, "n": {"u": 7u, "d": 0.5}}`, `{"id":9007199254740993,"lines":[{"n":1.5},null,true],"n":{"d":0.5,"u":7}}`},
		{"the call's own", `has(args.id) ? args : {}`, ``},
		{"left out where there are none", `{"memo": args.?memo.orValue("")}`, `{"memo":""}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := probe(t, tt.text, `"unknown"`).Arguments(lostPayment)
			if tt.want == "" { // an integer that cannot be held would go out as another one
				if err == nil {
					t.Errorf("arguments %s", got)
				}
				return
			}
			if err != nil || string(got) != tt.want {
				t.Errorf("Arguments = %s, %v, want %s", got, err, tt.want)
			}
		})
	}
	for _, text := range []string{`{"a": args.memo}`, `{"a": b"x"}`, `{"a": duration("1s")}`, `{"a": 0.0 / 0.0}`, `{"a": args.huge}`, `args.lines`} {
		if got, err := probe(t, text, `"unknown"`).Arguments(lostPayment); err == nil {
			t.Errorf("%s: arguments %s, want an error", text, got)
		}
	}
}

func TestProbe_Verdict(t *testing.T) {
	const found = `{"content":[{"type":"text","text":"1 payment"}],"structuredContent":{"payments":[{"id":"p1","state":"booked"}]}}`
	for _, tt := range []struct {
		name, text, result string
		isError            bool
		want               effect.ProbeVerdict
		recorded           string
	}{
		{"a word", `size(result.structuredContent.payments) > 0 ? "applied" : "not_applied"`, found, false, effect.ProbeApplied, ""},
		{"a map", `{"verdict": "applied", "result": result.structuredContent.payments[0]}`, found, false, effect.ProbeApplied,
			`{"content":[{"type":"text","text":"{\"id\":\"p1\",\"state\":\"booked\"}"}],"structuredContent":{"id":"p1","state":"booked"}}`},
		{"a result that is written out", `{"verdict": "applied", "result": {"content": [{"type": "text", "text": "ok"}], "isError": false}}`, found, false, effect.ProbeApplied,
			`{"content":[{"text":"ok","type":"text"}],"isError":false}`},
		{"a result that is text", `{"verdict": "applied", "result": "booked as " + result.structuredContent.payments[0].id}`, found, false, effect.ProbeApplied,
			`{"content":[{"type":"text","text":"booked as p1"}]}`},
		{"a result that is null", `{"verdict": "applied", "result": null}`, found, false, effect.ProbeApplied, ""},
		{"no result of what was not applied", `{"verdict": "not_applied", "result": "x"}`, found, false, effect.ProbeNotApplied, ""},
		{"an error that says nothing", `is_error ? "unknown" : "applied"`, `{"content":[],"isError":true}`, true, effect.ProbeUnknown, ""},
		{"the call beside it", `args.account == "DE1" && key == "0197b0c2" ? "applied" : "unknown"`, `{}`, false, effect.ProbeApplied, ""},
		{"a text that is JSON is text", `result.content[0].text == "1 payment" ? "applied" : "unknown"`, found, false, effect.ProbeApplied, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			verdict, recorded, err := probe(t, "", tt.text).Verdict(lostPayment, json.RawMessage(tt.result), tt.isError)
			if err != nil || verdict != tt.want || string(recorded) != tt.recorded {
				t.Errorf("Verdict = %s, %s, %v, want %s, %s", verdict, recorded, err, tt.want, tt.recorded)
			}
		})
	}
}

// What cannot be judged says nothing of the call.
func TestProbe_VerdictOfWhatCannotBeJudged(t *testing.T) {
	for _, tt := range []struct{ name, text, result, want string }{
		{"a member that is not there", `result.found ? "applied" : "not_applied"`, `{}`, "no such key"},
		{"a word that is no verdict", `"maybe"`, `{}`, `"maybe" is no verdict`},
		{"a map without one", `{"result": 1}`, `{}`, "no verdict"},
		{"a map with another kind of one", `{"verdict": 1}`, `{}`, "not a string"},
		{"something else", `result.n`, `{"n":1}`, "not a string"},
		{"a result that is cut off", `"applied"`, `{"a"`, "read result"},
		{"no result", `"applied"`, ``, "read result"},
		{"a result that cannot be written", `{"verdict": "applied", "result": b"x"}`, `{}`, "cannot be written"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			verdict, recorded, err := probe(t, "", tt.text).Verdict(lostPayment, json.RawMessage(tt.result), false)
			if verdict != effect.ProbeUnknown || recorded != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Verdict = %s, %s, %v, want unknown and an error with %q", verdict, recorded, err, tt.want)
			}
		})
	}
}

func TestParseProbe_SaysWhichExpression(t *testing.T) {
	for _, tt := range []struct{ arguments, verdict, want string }{
		{`{"a": result}`, `"applied"`, "arguments: compile"},
		{`["a"]`, `"applied"`, "arguments: compile"},
		{``, `true`, "verdict: compile"},
		{``, ``, "verdict: compile"},
	} {
		if _, err := effect.ParseProbe("", "get", tt.arguments, tt.verdict); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("arguments %q, verdict %q: error %v, want one with %q", tt.arguments, tt.verdict, err, tt.want)
		}
	}
}
