package effectinterceptor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
	"github.com/undolog/undolog/store"
)

// probed is a policy under which a payment is looked up with find, which says itself what to make of it.
const probed = `
version: 1
tools:
  - tool: pay
    tier: irreversible
    approve: never
    schemas: ignore
    redact: [card]
    probe:
      tool: find
      arguments: '{"ref": key}'
      verdict: 'is_error ? "unknown" : result.structuredContent'
  - {tool: find, tier: read}
`

// target is what a probe asks; it keeps what it was asked.
type target struct {
	answer string
	err    error
	before func() // it answers
	asked  []string
}

func (f *target) ask(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	f.asked = append(f.asked, method+" "+string(params))
	if f.before != nil {
		f.before()
	}
	return json.RawMessage(f.answer), f.err
}

func says(verdict string) *target {
	return &target{answer: `{"content":[],"structuredContent":{"verdict":"` + verdict + `"}}`}
}

func toward(f *target) func(*caller) { return func(c *caller) { c.aside = f.ask } }

// lose makes a call whose answer is lost.
func (w *world) lose(payload string) claimed {
	w.t.Helper()
	c := w.alice().with(exchange("lost"))
	done := c.mustClaim(payload)
	c.settled(lost)
	w.wantState(done.id, effect.StateInDoubt)
	return done
}

func TestProbe_appliedIsAnsweredFromTheRecord(t *testing.T) {
	for name, tt := range map[string]struct{ answer, want string }{
		"with a result":    {`{"content":[],"structuredContent":{"verdict":"applied","result":{"receipt":9007199254740993}}}`, `{\"receipt\":9007199254740993}`},
		"without a result": {`{"content":[],"structuredContent":{"verdict":"applied"}}`, "Its answer was lost; probe:find confirmed it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, policy(probed))
			first := w.lose(pay)
			f := &target{answer: tt.answer}
			answer := w.alice().with(exchange("again"), toward(f)).mustRespond(pay)
			if !strings.Contains(string(answer.Result), tt.want) || splice.Get(answer.Result, "resultType") == nil {
				t.Errorf("answered with %s", answer.Result)
			}
			if diff := cmp.Diff([]string{`tools/call {"name":"find","arguments":{"ref":"` + first.id + `"}}`}, f.asked); diff != "" {
				t.Errorf("the target was asked (-want +got)\n%s", diff)
			}
			if r := w.wantState(first.id, effect.StateCommitted); r.By != "probe:find" {
				t.Errorf("settled by %q", r.By)
			}
			w.wantProbeRead()
		})
	}
}

// wantProbeRead checks that what the probe did is on record as a read of nobody's.
func (w *world) wantProbeRead() {
	w.t.Helper()
	w.restart()
	for _, r := range w.effects("default") {
		if r.Tool == "find" && r.Tier == effect.TierRead && r.Principal == effectinterceptor.ProbePrincipal {
			return
		}
	}
	w.t.Error("the probe's call is not in the log")
}

func TestProbe_notAppliedLetsTheSameCallRunInTheSameRequest(t *testing.T) {
	w := newWorld(t, policy(probed))
	first := w.lose(pay)
	again := w.alice().with(exchange("again"), toward(says("not_applied"))).mustClaim(pay)
	if again.id != first.id || again.attempt != 2 {
		t.Errorf("ran as %s, attempt %d; want attempt 2 of %s", again.id, again.attempt, first.id)
	}
}

// A call that names its key is looked up by it, and not by ours.
func TestProbe_looksUpTheKeyThatTheTargetGot(t *testing.T) {
	w := newWorld(t, policy(probed))
	keyed := `{"name":"pay","arguments":{"n":1},"_meta":{"idempotencyKey":"order-7"}}`
	w.lose(keyed)
	f := says("applied")
	w.alice().with(exchange("again"), toward(f)).mustRespond(keyed)
	if len(f.asked) != 1 || !strings.Contains(f.asked[0], `{"ref":"order-7"}`) {
		t.Errorf("the target was asked %q", f.asked)
	}
}

func TestProbe_thatCannotTellLeavesTheCallInDoubt(t *testing.T) {
	for name, tt := range map[string]struct {
		target *target
		want   string
	}{
		"it says so":                {says("unknown"), "could not tell."},
		"its answer is an error":    {&target{answer: `{"content":[],"isError":true}`}, "could not tell."},
		"its answer has no verdict": {&target{answer: `{"content":[]}`}, "no such key: structuredContent"},
		"it is not answered":        {&target{err: errors.New("connection refused")}, "could not tell: connection refused."},
		"it asks a question":        {&target{answer: `{"resultType":"input_required"}`}, "no result"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, policy(probed))
			first := w.lose(pay)
			block := w.alice().with(exchange("again"), toward(tt.target)).mustBlock(pay)
			if !strings.Contains(block.Message, tt.want) || !strings.Contains(block.Message, "undolog resolve") {
				t.Errorf("stopped with %q", block.Message)
			}
			w.wantState(first.id, effect.StateInDoubt)
			if len(tt.target.asked) != 1 {
				t.Errorf("asked %d times", len(tt.target.asked))
			}
		})
	}
}

// A probe that the policy does not know as a read is not made: it could do what it looks for.
func TestProbe_isARead(t *testing.T) {
	w := newWorld(t, policy(strings.Replace(probed, "{tool: find, tier: read}", "{tool: find, tier: idempotent}", 1)))
	w.lose(pay)
	f := says("not_applied")
	block := w.alice().with(exchange("again"), toward(f)).mustBlock(pay)
	if len(f.asked) != 0 || !strings.Contains(block.Message, "a probe only reads: it was not called") {
		t.Errorf("asked %q, stopped with %q", f.asked, block.Message)
	}
}

func TestProbe_isNotMadeWhileTheAttemptMayRun(t *testing.T) {
	w := newWorld(t, policy(probed), impatient)
	first := w.alice().with(exchange("1")).mustClaim(pay)
	f := says("not_applied")
	w.alice().with(exchange("2"), toward(f)).mustBlock(pay)
	if _, err := w.ei.Probe(t.Context(), w.only(), f.ask); err == nil {
		t.Error("an effect that is under way was probed")
	}
	if w.wantState(first.id, effect.StateClaimed); len(f.asked) != 0 {
		t.Errorf("the target was asked %q", f.asked)
	}
}

func TestProbe_onAnotherServer(t *testing.T) {
	elsewhere := policy(strings.Replace(probed, "tool: find\n", "tool: find\n      server: ledger\n", 1))
	t.Run("that is known", func(t *testing.T) {
		other := says("applied")
		w := newWorld(t, elsewhere, func(w *world) { w.opts.ProbeServers = map[string]interceptors.Aside{"ledger": other.ask} })
		w.lose(pay)
		own := says("unknown")
		w.alice().with(exchange("again"), toward(own)).mustRespond(pay)
		if len(own.asked) != 0 {
			t.Errorf("the call's own server was asked %q", own.asked)
		}
	})
	t.Run("that nobody has named", func(t *testing.T) {
		w := newWorld(t, elsewhere)
		w.lose(pay)
		block := w.alice().with(exchange("again"), toward(says("applied"))).mustBlock(pay)
		if !strings.Contains(block.Message, "--probe-server ledger=") {
			t.Errorf("stopped with %q", block.Message)
		}
	})
}

// Whoever settles an attempt first has settled it, whatever a probe says that had begun before.
func TestProbe_firstSettlementWins(t *testing.T) {
	t.Run("a person", func(t *testing.T) {
		w := newWorld(t, policy(probed))
		first := w.lose(pay)
		f := says("not_applied")
		f.before = func() { w.resolve(first.id, effect.StateCommitted) }
		answer := w.alice().with(exchange("again"), toward(f)).mustRespond(pay)
		if r := w.wantState(first.id, effect.StateCommitted); r.By != "user:ada" || !strings.Contains(string(answer.Result), "user:ada confirmed it") {
			t.Errorf("settled by %s, answered with %s", r.By, answer.Result)
		}
	})
	t.Run("a late answer", func(t *testing.T) {
		w := newWorld(t, policy(probed))
		first := w.lose(pay)
		f := says("not_applied")
		f.before = func() { w.alice().with(exchange("lost")).settled(answered(paid)) }
		answer := w.alice().with(exchange("again"), toward(f)).mustRespond(pay)
		if r := w.wantState(first.id, effect.StateCommitted); r.By != "" || !strings.Contains(string(answer.Result), "paid") {
			t.Errorf("settled by %q, answered with %s", r.By, answer.Result)
		}
	})
	t.Run("what is said of an attempt is not said of the next", func(t *testing.T) {
		w := newWorld(t, policy(probed))
		first := w.lose(pay)
		doubted := w.only()
		f := says("not_applied")
		f.before = func() {
			w.resolve(first.id, effect.StateFailed)
			second := w.alice().with(exchange("second"))
			second.mustClaim(pay)
			second.settled(lost)
		}
		if _, err := w.ei.Probe(t.Context(), doubted, f.ask); err != nil {
			t.Fatal(err)
		}
		if r := w.wantState(first.id, effect.StateInDoubt); r.Attempt != 2 {
			t.Errorf("attempt %d is in doubt, want 2", r.Attempt)
		}
	})
}

func (w *world) resolve(id string, to effect.State) {
	w.t.Helper()
	if _, err := w.log.Resolve(w.t.Context(), store.ResolveParams{Tenant: "default", ID: id, To: to, By: "user:ada"}); err != nil {
		w.t.Fatal(err)
	}
}

// What is kept nowhere is sent to nobody either, and what a probe finds of it is not kept.
func TestProbe_keepsNoSecrets(t *testing.T) {
	w := newWorld(t, policy(strings.Replace(probed, `'{"ref": key}'`, `'{"card": args.card}'`, 1)))
	call := `{"name":"pay","arguments":{"card":"4242-4242","n":1}}`
	first := w.lose(call)
	f := &target{answer: `{"content":[],"structuredContent":{"verdict":"applied","result":"paid with 4242-4242"}}`}
	w.alice().with(exchange("again"), toward(f)).mustRespond(call)
	if !strings.Contains(fmt.Sprint(f.asked), "4242-4242") {
		t.Errorf("the target was asked %q", f.asked)
	}
	w.wantProbeRead()
	for _, r := range append(w.effects("default"), w.wantState(first.id, effect.StateCommitted)) {
		if kept := string(r.Arguments) + string(r.Answer.Body); strings.Contains(kept, "4242-4242") {
			t.Errorf("%s has kept %s", r.Tool, kept)
		}
	}
}

func TestProbe_ofAnEffectWithoutOne(t *testing.T) {
	w := newWorld(t)
	w.lose(pay)
	if _, err := w.ei.Probe(t.Context(), w.only(), says("applied").ask); !errors.Is(err, effectinterceptor.ErrNoProbe) {
		t.Errorf("Probe = %v, want ErrNoProbe", err)
	}
}
