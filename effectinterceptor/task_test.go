package effectinterceptor_test

import (
	"testing"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
)

const taskHandle = `{"resultType":"task","taskId":"t1","status":"working"}`

// beganTask is a call whose answer was a task's handle.
func (w *world) beganTask(t *testing.T, payload string) claimed {
	t.Helper()
	return w.alice().with(exchange("1")).run(payload, taskHandle)
}

// What an engine learns of a task's end is recorded though nobody asks, and what comes after it changes nothing.
func TestEnded(t *testing.T) {
	gone := effectinterceptor.End{Kind: effect.OutcomeLost, Reason: "the task was lost"}
	for name, tt := range map[string]struct {
		ends []effectinterceptor.End
		want effect.State
	}{
		"with a result":                        {[]effectinterceptor.End{answered(paid)}, effect.StateCommitted},
		"with an error, which is the record":   {[]effectinterceptor.End{failed(`{"code":-32050,"message":"no"}`)}, effect.StateCommitted},
		"with an error that says it never ran": {[]effectinterceptor.End{failed(`{"code":-32602,"message":"no"}`)}, effect.StateFailed},
		"lost":                                 {[]effectinterceptor.End{gone}, effect.StateInDoubt},
		"lost, and told after all":             {[]effectinterceptor.End{gone, answered(paid)}, effect.StateCommitted},
		"told, and lost after that":            {[]effectinterceptor.End{answered(paid), gone}, effect.StateCommitted},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			done := w.beganTask(t, pay)
			for _, end := range tt.ends {
				w.ei.Ended(t.Context(), "1", end)
			}
			w.wantState(done.id, tt.want)
		})
	}
}

// The agent that asks after the end was recorded has its answer, and that it has is evidence.
func TestEnded_beforeItsAgentAsks(t *testing.T) {
	w := newWorld(t)
	c := w.alice().with(exchange("1"))
	done := w.beganTask(t, pay)
	w.ei.Ended(t.Context(), "1", answered(paid))
	c.settled(answered(paid))
	c.answer(paid)
	w.ei.Delivered("1", w.clock.Now(), true)
	w.restart()
	if r := w.wantState(done.id, effect.StateCommitted); !r.Delivered {
		t.Error("the answer counts as undelivered")
	}
}

func TestUnfinished(t *testing.T) {
	list := func(w *world, principal string) []effectinterceptor.Unfinished {
		t.Helper()
		found, err := w.ei.Unfinished(t.Context(), "", principal, "invoker:unnamed")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	t.Run("is what a process that has ended has left", func(t *testing.T) {
		w := newWorld(t)
		done := w.beganTask(t, pay)
		w.restart()
		found := list(w, "alice")
		if len(found) != 1 || string(found[0].Handle) != taskHandle {
			t.Fatalf("found %v", found)
		}
		w.ei.Followed(found[0].Exchange, true)
		if again := list(w, "alice"); len(again) != 0 {
			t.Errorf("taken up twice: %v", again)
		}
		w.ei.Ended(t.Context(), found[0].Exchange, answered(paid))
		w.wantState(done.id, effect.StateCommitted)
	})
	t.Run("is not what this process follows", func(t *testing.T) {
		w := newWorld(t)
		w.beganTask(t, pay)
		w.ei.Followed("1", true)
		if found := list(w, "alice"); len(found) != 0 {
			t.Errorf("found %v", found)
		}
		w.ei.Followed("1", false)
		if found := list(w, "alice"); len(found) != 1 {
			t.Errorf("found %v once it is not followed any more", found)
		}
	})
	t.Run("is not what a living process follows", func(t *testing.T) {
		w := newWorld(t)
		w.beganTask(t, pay)
		w.ei.Followed("1", true)
		first := w.log
		defer first.Close()
		w.open() // another process on the same log
		if found := list(w, "alice"); len(found) != 0 {
			t.Errorf("found %v", found)
		}
	})
	t.Run("is not another's, nor a question", func(t *testing.T) {
		w := newWorld(t)
		w.beganTask(t, pay)
		w.alice().with(exchange("2")).run(pay1, `{"resultType":"input_required","requestState":"s"}`)
		w.restart()
		if found := list(w, "bob"); len(found) != 0 {
			t.Errorf("bob takes up %v", found)
		}
		if found := list(w, "alice"); len(found) != 1 {
			t.Errorf("alice takes up %v", found)
		}
	})
}
