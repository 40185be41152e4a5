package effectinterceptor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
)

// What the target asks another round for, or runs as a task, is not done: the call goes on with what it
// was given, under the same effect, and without it gets the same answer again.
func TestWaiting(t *testing.T) {
	for _, tt := range []struct{ name, answer, next string }{
		{"a round with a state", `{"resultType":"input_required","requestState":"s1","inputRequests":{}}`, `{"name":"pay","arguments":{"n":1},"requestState":"s1","inputResponses":{"a":{}}}`},
		{"a round without a state", `{"resultType":"input_required","inputRequests":{"a":{}}}`, `{"name":"pay","arguments":{"n":1},"inputResponses":{"a":{}}}`},
		{"a round with an empty state", `{"resultType":"input_required","requestState":""}`, `{"name":"pay","arguments":{"n":1},"requestState":""}`},
		{"a task", `{"resultType":"task","taskId":"t1","status":"working"}`, ""},
		{"a task of 2025-11-25", `{"task":{"taskId":"t1","status":"working"}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.alice().with(exchange("1"))
			first := c.run(pay1, tt.answer)
			w.wantState(first.id, effect.StateWaiting)

			for n, again := range []string{pay1, `{"name":"pay","arguments":{"n":1},"inputResponses":null}`} {
				replay := w.alice().with(exchange(fmt.Sprint("again", n))).mustRespond(again)
				if !strings.HasPrefix(string(replay.Result), tt.answer[:len(tt.answer)-1]) {
					t.Errorf("%s is answered with %s", again, replay.Result)
				}
			}
			forged := w.alice().with(exchange("forged")).mustBlock(`{"name":"pay","arguments":{"n":1},"requestState":"another"}`)
			if !strings.Contains(forged.Message, "requestState") {
				t.Errorf("a round that nobody asked for is refused with %q", forged.Message)
			}
			if tt.next == "" {
				return
			}
			next := w.alice().with(exchange("2"))
			if got := next.run(tt.next, paid); got.id != first.id || got.attempt != 1 {
				t.Errorf("went on as %s, attempt %d", got.id, got.attempt)
			}
			w.wantState(first.id, effect.StateCommitted)
		})
	}
	for name, answer := range map[string]string{
		"a result that has a task in it": `{"content":[],"task":{"taskId":"t1"}}`,
		"a task without an id":           `{"task":{}}`,
		"a state of the wrong type":      `{"content":[],"requestState":7}`,
		"no object":                      `[]`,
	} {
		t.Run(name+" is an answer", func(t *testing.T) {
			w := newWorld(t)
			w.wantState(w.alice().with(exchange("1")).run(pay1, answer).id, effect.StateCommitted)
		})
	}
	t.Run("a round that cannot be read is still a round", func(t *testing.T) {
		w := newWorld(t)
		w.wantState(w.alice().with(exchange("1")).run(pay1, `{"resultType":"input_required","requestState":7,"isError":"x"}`).id, effect.StateWaiting)
	})
}

// A task ends after its call was answered with its handle: the engine tells of the end under the same
// exchange, and the effect is settled by it.
func TestWaiting_TaskEnds(t *testing.T) {
	const handle = `{"resultType":"task","taskId":"t1","status":"working"}`
	began := func(t *testing.T, changes ...change) (*world, *caller, claimed) {
		w := newWorld(t, changes...)
		c := w.alice().with(exchange("1"))
		first := c.run(pay1, handle)
		w.wantState(first.id, effect.StateWaiting)
		return w, c, first
	}
	resume := func(c *caller, result string) {
		c.settled(answered(result))
		c.answer(result)
		c.w.ei.Delivered(c.exchange, c.w.clock.Now(), true)
	}
	t.Run("with a result", func(t *testing.T) {
		w, c, first := began(t)
		w.clock.advance(time.Minute)
		resume(c, paid)
		r := w.wantState(first.id, effect.StateCommitted)
		if string(r.Answer.Body) != paid {
			t.Errorf("recorded %s", r.Answer.Body)
		}
		if open := w.ei.Open(); open != 0 {
			t.Errorf("%d requests are open", open)
		}
	})
	t.Run("with an error of the tool", func(t *testing.T) {
		w, c, first := began(t)
		resume(c, `{"content":[],"isError":true}`)
		if r := w.wantState(first.id, effect.StateCommitted); !r.Answer.IsError {
			t.Errorf("recorded %s", r.Answer.Body)
		}
	})
	t.Run("through an engine that reports no delivery", func(t *testing.T) {
		w, c, first := began(t, func(w *world) { w.opts.Delivery = false })
		c.settled(answered(paid))
		if got := c.answer(paid); string(got) != paid {
			t.Errorf("answered with %s", got)
		}
		w.wantState(first.id, effect.StateCommitted)
	})
	t.Run("and is told of again, as often as somebody asks for its result", func(t *testing.T) {
		w, c, first := began(t)
		resume(c, paid)
		resume(c, `{"content":[]}`)
		if r := w.wantState(first.id, effect.StateCommitted); string(r.Answer.Body) != paid {
			t.Errorf("recorded %s", r.Answer.Body)
		}
	})
	t.Run("but not with another handle", func(t *testing.T) {
		w, c, first := began(t)
		resume(c, handle)
		w.wantState(first.id, effect.StateWaiting)
		resume(c, paid)
		w.wantState(first.id, effect.StateCommitted)
	})
	t.Run("lost, and then found", func(t *testing.T) {
		w, c, first := began(t)
		c.settled(lost)
		w.wantState(first.id, effect.StateInDoubt)
		c.settled(answered(paid))
		w.wantState(first.id, effect.StateCommitted)
	})
	t.Run("after another round went on with it", func(t *testing.T) {
		w := newWorld(t)
		c := w.alice().with(exchange("1"))
		first := c.run(pay1, `{"resultType":"input_required","requestState":"s1"}`)
		next := w.alice().with(exchange("2"))
		next.mustClaim(`{"name":"pay","arguments":{"n":1},"requestState":"s1"}`)
		resume(c, paid)
		w.wantState(first.id, effect.StateClaimed)
	})
}
