package e2e_test

import (
	"os"
	"strings"
	"testing"
)

// hire gives the world a worker in the place of the payments server.
func hire(t *testing.T, generation string) (*world, *worker) {
	w, work := newWorld(t), newWorker(t, generation)
	w.server = []string{"/usr/bin/env", workerEnv + "=" + work.dir, os.Args[0]}
	return w, work
}

var taskGenerations = []string{"2025-11-25", "2026-07-28"}

// An agent that is given the handle of a task and never asks for it again: the gateway sees to its end.
func TestTask_isFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	for _, generation := range taskGenerations {
		for status, want := range map[string]struct{ state, answer string }{
			"completed": {"committed", `"receipt":9007199254740993`},
			"failed":    {"committed", `out of paper`}, // the error is the record, as that of any call
			"cancelled": {"committed", `task_cancelled`},
			"forgotten": {"in_doubt", ""},
		} {
			t.Run(generation+" "+status, func(t *testing.T) {
				t.Parallel()
				w, work := hire(t, generation)
				agent := w.agent()
				if handle := agent.Call("1", "work", `{"n":1}`); !strings.Contains(string(handle.Result), `"taskId":"t1"`) {
					t.Fatalf("answered with %s", handle.Raw)
				}
				if e := w.only("work"); e.State != "waiting" {
					t.Errorf("the effect is %s before the task has ended", e.State)
				}
				work.put("status", status)
				w.eventually("the task's end", func() bool { return w.only("work").State == want.state })
				if e := w.only("work"); e.Answer != nil && !strings.Contains(string(e.Answer.Body), want.answer) {
					t.Errorf("recorded %s", e.Answer.Body)
				}
				if n := work.effects(); n != 1 {
					t.Errorf("%d effects, want 1", n)
				}
			})
		}
	}
}

// A task goes on while its gateway is killed: the next gateway before the same server takes it up, and an equal
// call is answered with what it came to.
func TestTask_isTakenUpAfterARestart(t *testing.T) {
	t.Parallel()
	for _, generation := range taskGenerations {
		t.Run(generation, func(t *testing.T) {
			t.Parallel()
			w, work := hire(t, generation)
			agent := w.agent("--heartbeat", "1s")
			if m := callUntilSettled(t, agent, "work", `{"n":1}`); m.Error != nil {
				t.Fatalf("error %s", m.Error)
			}
			agent.Kill()
			work.put("status", "completed")
			again := w.agent("--heartbeat", "1s") // it looks that often for what the dead have left
			w.eventually("the task's end", func() bool { return w.only("work").State == "committed" })
			if answer := again.Call("2", "work", `{"n":1}`); !replayed(t, answer) || !strings.Contains(string(answer.Result), "printed") {
				t.Errorf("the call sent again is answered with %s", answer.Raw)
			}
			if n := work.effects(); n != 1 {
				t.Errorf("%d effects, want 1", n)
			}
		})
	}
}
