package effectinterceptor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

var update = flag.Bool("update", false, "write testdata/*.txt anew")

var (
	effectIDs  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	signatures = regexp.MustCompile(`b3:[0-9a-f]{64}`)
)

// chainPause is what an engine reads and takes off.
const chainPause = "dev.undolog/pause"

// golden compares what a model reads, and what a program reads beside it, with the file of the name.
func golden(t *testing.T, name, text string, data json.RawMessage) {
	t.Helper()
	data, _, err := splice.Delete(data, func(name string) bool { return name == chainPause })
	if err != nil {
		t.Fatal(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	got := effectIDs.ReplaceAllString(text+"\n\n"+pretty.String()+"\n", "EFFECT")
	got = signatures.ReplaceAllString(got, "SIGNATURE")
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", path, diff)
	}
}

const keyed = `{"name":"pay","arguments":{"amount":1},"_meta":{"dev.undolog/idempotency-key":"order-9"}}`

// The texts that a model gets are part of the product: a reason must say what was done, what was not, and
// what can be done now.
func TestReasons(t *testing.T) {
	for _, tt := range []struct {
		name    string
		changes []change
		block   func(w *world) *interceptors.BlockError
	}{
		{"in_progress", []change{impatient}, func(w *world) *interceptors.BlockError {
			w.alice().with(exchange("1")).mustClaim(pay)
			return w.alice().with(exchange("2")).mustBlock(pay)
		}},
		{"in_doubt", []change{foreign}, func(w *world) *interceptors.BlockError {
			w.remote().mustClaim(pay)
			w.clock.advance(6 * time.Minute)
			return w.remote().mustBlock(pay)
		}},
		{"conflict_arguments", nil, func(w *world) *interceptors.BlockError {
			w.alice().with(exchange("1")).run(keyed, paid)
			return w.alice().with(exchange("2")).mustBlock(strings.Replace(keyed, `"amount":1`, `"amount":2`, 1))
		}},
		{"conflict_principal", nil, func(w *world) *interceptors.BlockError {
			w.alice().with(exchange("1")).run(keyed, paid)
			return w.alice().with(principal("bob"), exchange("2")).mustBlock(keyed)
		}},
		{"waiting", []change{asks}, func(w *world) *interceptors.BlockError {
			return w.alice().mustBlock(pay)
		}},
		{"waiting_repeat", []change{tier("irreversible")}, func(w *world) *interceptors.BlockError {
			w.alice().with(exchange("1")).run(pay, paid)
			return w.alice().with(exchange("2")).mustBlock(pay)
		}},
		{"unavailable", nil, func(w *world) *interceptors.BlockError {
			w.shut()
			return w.alice().with(func(c *caller) { c.config = `{"server":"bank"}` }).mustBlock(pay)
		}},
		{"invalid_duplicate", nil, func(w *world) *interceptors.BlockError {
			return w.alice().mustBlock(`{"name":"pay","arguments":{"to":{"iban":"SECRET","iban":"x"}}}`)
		}},
		{"invalid_arguments", nil, func(w *world) *interceptors.BlockError {
			return w.alice().mustBlock(`{"name":"pay","arguments":null}`)
		}},
		{"invalid_key", nil, func(w *world) *interceptors.BlockError {
			return w.alice().mustBlock(`{"name":"pay","_meta":{"idempotencyKey":"` + strings.Repeat("k", 5000) + `"}}`)
		}},
		{"lost", nil, func(w *world) *interceptors.BlockError {
			c := w.alice().with(exchange("1"))
			c.mustClaim(pay)
			c.settled(lost)
			return w.ei.Explain("1", effect.OutcomeLost)
		}},
		{"lost_idempotent", []change{tier("idempotent")}, func(w *world) *interceptors.BlockError {
			c := w.alice().with(exchange("1"))
			c.mustClaim(pay)
			c.settled(lost)
			return w.ei.Explain("1", effect.OutcomeLost)
		}},
		{"unsent", nil, func(w *world) *interceptors.BlockError {
			c := w.alice().with(exchange("1"))
			c.mustClaim(pay)
			c.settled(unsent)
			return w.ei.Explain("1", effect.OutcomeUnsent)
		}},
		{"unreadable", []change{foreign}, func(w *world) *interceptors.BlockError {
			c := w.remote().with(session("s"))
			c.mustClaim(pay)
			c.answer(`["paid"]`)
			return c.mustBlock(pay)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			block := tt.block(newWorld(t, tt.changes...))
			if block == nil {
				t.Fatal("no reason")
			}
			golden(t, tt.name, block.Message, block.Data)
		})
	}
}

// A replay that its model may not have expected says so in a text block; the rest of the bytes are the
// recorded ones.
func TestReplay_SaysSoToTheModel(t *testing.T) {
	replay := "version: 1\ntools:\n  - {tool: pay, tier: irreversible, approve: never, repeat: replay}\n"
	noting := func(w *world, c *caller) *interceptors.RespondError {
		w.t.Helper()
		return c.with(exchange("2")).mustRespond(pay)
	}
	t.Run("a delivered repeat", func(t *testing.T) {
		w := newWorld(t, policy(replay))
		w.alice().with(exchange("1")).run(pay, paid)
		w.clock.advance(time.Minute)
		answer := noting(w, w.alice())
		golden(t, "repeat", noteOf(t, answer.Result), answer.Info)
	})
	t.Run("what may not have arrived, where the engine says", func(t *testing.T) {
		w := newWorld(t)
		c := w.alice().with(exchange("1"))
		c.mustClaim(pay)
		c.settled(answered(paid))
		w.ei.Delivered("1", w.clock.Now(), false)
		answer := noting(w, w.alice())
		if note := noteOf(t, answer.Result); note != "" {
			t.Errorf("the machine's retry is told %q", note)
		}
		golden(t, "replay", "", answer.Info)
	})
	t.Run("every replay, where the engine does not say", func(t *testing.T) {
		w := newWorld(t, foreign)
		c := w.remote().with(exchange("1"))
		c.mustClaim(pay)
		c.answer(paid)
		if noteOf(t, noting(w, w.remote()).Result) == "" {
			t.Error("the model is not told")
		}
	})
	t.Run("not where the policy wants it quiet", func(t *testing.T) {
		w := newWorld(t, policy(strings.Replace(replay, "repeat:", "annotate: false, repeat:", 1)))
		w.alice().with(exchange("1")).run(pay, paid)
		if note := noteOf(t, noting(w, w.alice()).Result); note != "" {
			t.Errorf("the model is told %q", note)
		}
	})
	t.Run("not under a key", func(t *testing.T) {
		w := newWorld(t)
		w.alice().with(exchange("1")).run(keyed, paid)
		if note := noteOf(t, w.alice().with(exchange("2")).mustRespond(keyed).Result); note != "" {
			t.Errorf("the model is told %q", note)
		}
	})
}

// noteOf is the text block after the recorded one.
func noteOf(t *testing.T, result json.RawMessage) string {
	t.Helper()
	var r struct {
		Content []struct{ Text string }
		Receipt json.Number
	}
	if err := json.Unmarshal(result, &r); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	if r.Receipt != "9007199254740993" || r.Content[0].Text != "paid" {
		t.Errorf("the recorded answer came back as %s", result)
	}
	if len(r.Content) == 1 {
		return ""
	}
	return r.Content[1].Text
}

func TestReplay_OfOddAnswers(t *testing.T) {
	for _, tt := range []struct{ name, result, want string }{
		{"a _meta that is null", `{"content":[],"_meta":null}`, `{"content":[],"_meta":MARK}`},
		{"a _meta that is a list", `{"_meta":[1],"content":[]}`, `{"_meta":MARK,"content":[]}`},
		{"no content", `{"structuredContent":{"n":1.50}}`, `{"structuredContent":{"n":1.50},"_meta":MARK}`},
		{"a _meta of the target's", `{ "_meta" : {"a":1.0}}`, `{ "_meta" : {"a":1.0,MARK}}`},
		{"our own mark, forged", `{"_meta":{"dev.undolog/replayed":false}}`, `{"_meta":MARK}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.alice().with(exchange("1"))
			id := c.mustClaim(keyed).id
			c.settled(answered(tt.result))
			w.ei.Delivered("1", w.clock.Now(), false)
			mark := `"dev.undolog/replayed":true,"dev.undolog/effect":{"id":"` + id + `","attempt":1,"identity":"key"}`
			want := strings.Replace(tt.want, ":MARK", ":{"+mark+"}", 1)
			want = strings.Replace(want, "MARK", mark, 1)
			got := w.alice().with(exchange("2")).mustRespond(keyed)
			if diff := cmp.Diff(want, string(got.Result)); diff != "" {
				t.Errorf("replay (-want +got)\n%s", diff)
			}
		})
	}
}

// Two keys are two calls: taking one of them silently would run, or not run, another call than was meant.
func TestKeys_ThatDifferAreRefused(t *testing.T) {
	keys := map[string]string{"dev.undolog/idempotency-key": "", "idempotencyKey": "", "idempotency-key": "", "Idempotency-Key": ""}
	send := func(t *testing.T, keys map[string]string) (*interceptors.Result, error) {
		c := newWorld(t).alice().with(exchange("1"))
		meta := map[string]string{}
		for at, key := range keys {
			if at == "Idempotency-Key" {
				c.header = key
			} else if key != "" {
				meta[at] = key
			}
		}
		raw, err := json.Marshal(meta)
		if err != nil {
			t.Fatal(err)
		}
		return c.call(`{"name":"pay","arguments":{},"_meta":` + string(raw) + `}`)
	}
	for one := range keys {
		for other := range keys {
			if one >= other {
				continue
			}
			t.Run(one+" and "+other, func(t *testing.T) {
				if _, err := send(t, map[string]string{one: "same", other: "same"}); err != nil {
					t.Errorf("the same key in both is refused: %v", err)
				}
				_, err := send(t, map[string]string{one: "first", other: "second"})
				var block *interceptors.BlockError
				if !errors.As(err, &block) || block.Code != -32602 || outcomeOf(t, block.Data) != "invalid" {
					t.Fatalf("got %v, want a typed refusal", err)
				}
				if !strings.Contains(block.Message, one) || !strings.Contains(block.Message, other) || strings.Contains(block.Message, "first") {
					t.Errorf("the reason does not name both places alone: %s", block.Message)
				}
			})
		}
	}
}

// Servers answer what no protocol knows. What cannot carry our mark is given as it came, again and again.
func TestReplay_OfWhatIsNoObject(t *testing.T) {
	for _, body := range []string{`null`, `[1]`, `"done"`, `1.0`, ` true`} {
		for name, end := range map[string]effectinterceptor.End{"result": answered(body), "error": failed(body)} {
			t.Run(name+" "+body, func(t *testing.T) {
				w := newWorld(t)
				c := w.alice().with(exchange("1"))
				c.mustClaim(keyed)
				c.settled(end)
				w.ei.Delivered("1", w.clock.Now(), true)
				for n := range 2 {
					got := w.alice().with(exchange(strconv.Itoa(n + 2))).mustRespond(keyed)
					if string(got.Result)+string(got.Err) != body || (got.Err == nil) != (end.Error == nil) {
						t.Errorf("replayed as result %s, error %s, want %s", got.Result, got.Err, body)
					}
				}
			})
		}
	}
}

// At a remote engine's response phase such an answer does not say that it is a replay. It settles nothing: not the call
// that is open in the same session.
func TestReplay_OfWhatIsNoObjectAtARemoteEngine(t *testing.T) {
	w := newWorld(t, foreign)
	c := w.remote().with(session("s"))
	first := c.with(exchange("1"))
	first.mustClaim(keyed)
	first.answer(`null`)
	if got := c.with(exchange("2")).mustRespond(keyed); string(got.Result) != `null` {
		t.Errorf("replayed as %s, want null", got.Result)
	}
	other := c.with(exchange("3"))
	open := other.mustClaim(pay)
	c.with(exchange("2")).answer(`null`)
	w.wantState(open.id, effect.StateClaimed)
	if n := w.ei.Open(); n != 1 {
		t.Errorf("%d requests wait for a response, want the other one", n)
	}
	if block := c.mustBlock(keyed); outcomeOf(t, block.Data) != "replay" {
		t.Errorf("an engine that does not say what a response answers is told %s", block.Data)
	}
}

func TestReplay_OfErrors(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"without data", `{"code":-32050,"message":"no funds"}`, `{"code":-32050,"message":"no funds","data":{MARK}}`},
		{"with an object", `{"code":-32050,"message":"no funds","data":{"have":1.0}}`, `{"code":-32050,"message":"no funds","data":{"have":1.0,MARK}}`},
		{"with other data", `{"code":-32050,"message":"no funds","data":"x"}`, `{"code":-32050,"message":"no funds","data":"x"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.alice().with(exchange("1"))
			c.mustClaim(keyed)
			c.settled(failed(tt.body))
			w.ei.Delivered("1", w.clock.Now(), true)
			got := w.alice().with(exchange("2")).mustRespond(keyed)
			want := strings.Replace(tt.want, "MARK", string(got.Info[1:len(got.Info)-1]), 1)
			if diff := cmp.Diff(want, string(got.Err)); diff != "" {
				t.Errorf("replay (-want +got)\n%s", diff)
			}
		})
	}
}

// A reason, and whatever else a requester is told, holds nothing of what was sent.
func TestReasons_HoldNoPayload(t *testing.T) {
	w := newWorld(t, foreign)
	for _, payload := range []string{
		`"SECRET"`, `["SECRET"]`, `{"name":SECRET}`, `{"name":["SECRET"]}`, `{"name":"pay","arguments":"SECRET"}`,
		`{"name":"pay","arguments":{"a":"SECRET","a":"SECRET"}}`, `{"name":"pay","arguments":{"a":"SECRET\ud800"}}`,
		`{"name":"pay","arguments":{"a":SECRET}}`, `{"name":"pay","_meta":"SECRET"}`, `{"name":"pay","_meta":{"idempotencyKey":["SECRET"]}}`,
		`{"name":"pay","requestState":{"SECRET":1}}`, `{"name":"pay","arguments":{"n":1e999,"s":"SECRET"}}`,
		`{"name":"pay"} SECRET`, "{\"name\":\"pay\",\"arguments\":{\"a\":\"SECRET\xff\"}}",
	} {
		for _, c := range []*caller{w.alice(), w.remote()} {
			r, err := c.call(payload)
			if err == nil && (r.Type == interceptors.TypeMutation || r.Valid) {
				t.Errorf("%s was let through", payload)
				continue
			}
			told, _ := json.Marshal(r)
			if err != nil {
				wire := interceptors.WireError(err)
				told = append([]byte(wire.Message), wire.Data...)
			}
			if bytes.Contains(told, []byte("SECRET")) {
				t.Errorf("%s is answered with %s", payload, told)
			}
		}
	}
}

// A crash of ours tells the requester nothing but that there was one.
func TestReasons_HoldNoPanic(t *testing.T) {
	w := newWorld(t, func(w *world) { w.opts.Trust = func(string) bool { panic("SECRET") } })
	_, err := w.alice().call(pay)
	var crash *interceptors.CrashError
	if !errors.As(err, &crash) {
		t.Fatalf("got %v, want a crash", err)
	}
	wire := interceptors.WireError(err)
	if told := wire.Message + string(wire.Data); strings.Contains(told, "SECRET") {
		t.Errorf("the requester is told %s", told)
	}
}
