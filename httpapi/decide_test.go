package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
)

func TestApprove(t *testing.T) {
	t.Run("the call that was asked about may run, once", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10,"to":"alice"}`)
		var now shownEffect
		w.read(w.approve(alice, r.ID), http.StatusOK, &now)
		if now.Approval.Missing != 0 || now.Approval.Votes[0].By != "user:alice" || now.Approval.Votes[0].Via != "api" {
			t.Errorf("approved: %+v", now.Approval)
		}
		if begun := w.call(`{"amount":10,"to":"alice"}`); begun.Claim == nil {
			t.Errorf("the approved call is not claimed: %+v", begun.Verdict)
		}
	})
	t.Run("a second time is told by whom and when it was approved", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10}`)
		w.approve(bob, r.ID)
		got := w.refused(w.approve(alice, r.ID), http.StatusConflict)
		want := problem{
			Outcome: "already", Decision: "approve", By: "user:bob", Same: true, State: effect.StateAwaitingApproval,
			Message: "already approved by user:bob at 2026-05-04 09:00:00 UTC", At: w.clock.now(),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("second approval (-want +got)\n%s", diff)
		}
	})
	t.Run("after the time to decide is told that nobody had", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10}`)
		w.clock.pass(25 * time.Hour)
		got := w.refused(w.approve(alice, r.ID), http.StatusConflict)
		if got.Outcome != "already" || got.State != effect.StateExpired || !strings.Contains(got.Message, "nobody had decided") {
			t.Errorf("late approval: %+v", got)
		}
	})
	t.Run("needs the digest of what was seen", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10}`)
		got := w.refused(w.do(alice, "POST", "/v1/approvals/"+r.ID+"/approve", `{}`), http.StatusUnprocessableEntity)
		if got.Pointer != "/digest" {
			t.Errorf("without a digest: %+v", got)
		}
		none := `{"digest":"b3:` + strings.Repeat("0", 64) + `"}`
		got = w.refused(w.do(alice, "POST", "/v1/approvals/"+r.ID+"/approve", none), http.StatusUnprocessableEntity)
		if got.Pointer != "/digest" || w.effect(r.ID).Approval.IsApproved() {
			t.Errorf("with a digest of nothing: %+v", got)
		}
	})
	t.Run("of arguments that somebody has edited since is refused", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10}`)
		seen := w.shown(alice, r.ID).Approval.Digest
		w.read(w.do(bob, "POST", "/v1/approvals/"+r.ID+"/edit", `{"reason":"too much","arguments":{"amount":5}}`), http.StatusOK, &shownEffect{})
		w.refused(w.do(alice, "POST", "/v1/approvals/"+r.ID+"/approve", `{"digest":"`+seen+`"}`), http.StatusForbidden)
		if w.effect(r.ID).Approval.IsApproved() {
			t.Error("it was approved all the same")
		}
	})
	t.Run("of a quorum is counted, and nobody counts twice", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10}`, func(_ *effect.Call, c *effect.Contract) { c.Asking.Quorum = 2 })
		w.approve(alice, r.ID)
		if got := w.refused(w.approve(alice, r.ID), http.StatusConflict); !got.Same {
			t.Errorf("second vote of one person: %+v", got)
		}
		if missing := w.shown(alice, r.ID).Approval.Missing; missing != 1 {
			t.Errorf("%d are missing, want 1", missing)
		}
		w.read(w.approve(bob, r.ID), http.StatusOK, &shownEffect{})
		if !w.effect(r.ID).Approval.IsApproved() {
			t.Error("two approvals of two are not enough")
		}
	})
	t.Run("by whom the policy does not name is refused, and the page knows it before", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10}`, func(_ *effect.Call, c *effect.Contract) { c.Asking.Approvers = []string{"user:b*"} })
		if e := w.shown(alice, r.ID); e.MayDecide || !strings.Contains(e.WhyNot, "user:b*") {
			t.Errorf("alice is told that she may decide: %+v", e)
		}
		w.refused(w.approve(alice, r.ID), http.StatusForbidden)
		w.read(w.approve(bob, r.ID), http.StatusOK, &shownEffect{})
	})
	t.Run("by who made the call is refused", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10}`, func(c *effect.Call, _ *effect.Contract) { c.Principal = "user:alice" })
		w.refused(w.approve(alice, r.ID), http.StatusForbidden)
	})
	t.Run("of another tenant's call finds nothing", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10}`)
		body := `{"digest":"` + r.Approval.Complete.String() + `"}`
		w.refused(w.do(carol, "POST", "/v1/approvals/"+r.ID+"/approve", body), http.StatusNotFound)
	})
}

func TestApprove_ofManyOneIsRecorded(t *testing.T) {
	w := newWorld(t)
	r := w.asked(`{"amount":10}`)
	digest := w.shown(alice, r.ID).Approval.Digest
	const people = 200
	programs := []*world{w, newWorldOn(t, w)}
	answers := make([]said, people)
	var all sync.WaitGroup
	for i := range people {
		kind, token := "approve", alice
		if i%4 >= 2 {
			kind, token = "deny", bob
		}
		at := programs[i%2]
		req := at.request(token, "POST", "/v1/approvals/"+r.ID+"/"+kind, `{"digest":"`+digest+`","reason":"one of many"}`)
		all.Go(func() { answers[i] = at.send(req) })
	}
	all.Wait()
	won := 0
	last := w.effect(r.ID).Approval.Last
	for _, a := range answers {
		if a.Status == http.StatusOK {
			won++
			continue
		}
		p := w.refused(a, http.StatusConflict)
		if p.Outcome != "already" || p.By != last.By || p.Decision != string(last.Kind) || !p.At.Equal(last.At) {
			t.Errorf("one that lost is told %s, and %s decided", a.Body, last.By)
		}
	}
	if won != 1 {
		t.Errorf("%d decisions were recorded, want 1", won)
	}
}

func TestDeny(t *testing.T) {
	t.Run("tells the agent why", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10}`)
		w.read(w.do(alice, "POST", "/v1/approvals/"+r.ID+"/deny", `{"reason":"ask the customer first"}`), http.StatusOK, &shownEffect{})
		if v := w.call(`{"amount":10}`).Verdict; v.Action != effect.ActDenied || !strings.Contains(v.Reason, "ask the customer first") {
			t.Errorf("the same call: %+v", v)
		}
	})
	t.Run("needs a reason", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10}`)
		w.refused(w.do(alice, "POST", "/v1/approvals/"+r.ID+"/deny", `{"reason":" "}`), http.StatusUnprocessableEntity)
	})
	t.Run("is taken back by reopening", func(t *testing.T) {
		w := newWorld(t)
		r := w.asked(`{"amount":10}`)
		w.do(alice, "POST", "/v1/approvals/"+r.ID+"/deny", `{"reason":"no"}`)
		var now shownEffect
		w.read(w.do(bob, "POST", "/v1/approvals/"+r.ID+"/reopen", `{}`), http.StatusOK, &now)
		if now.State != effect.StateAwaitingApproval {
			t.Errorf("reopened: %s", now.State)
		}
	})
}

func TestEdit(t *testing.T) {
	w := newWorld(t)
	r := w.asked(`{"amount":9007199254740993,"to":"alice"}`)
	edit := `{"reason":"half of it","arguments":{"amount":1915883588174806058,"to":"alice"}}`
	w.read(w.do(alice, "POST", "/v1/approvals/"+r.ID+"/edit", edit), http.StatusOK, &shownEffect{})
	e := w.shown(alice, r.ID)
	if !strings.Contains(e.Text, "1915883588174806058") || !strings.Contains(e.OriginalText, "9007199254740993") {
		t.Errorf("digits are lost: %q, %q", e.Text, e.OriginalText)
	}
	if w.call(`{"amount":9007199254740993,"to":"alice"}`).Claim != nil {
		t.Error("an edit alone lets the call run")
	}
	w.approve(bob, r.ID)
	begun := w.call(`{"amount":9007199254740993,"to":"alice"}`)
	if begun.Claim == nil || string(begun.Record.Executed()) != `{"amount":1915883588174806058,"to":"alice"}` {
		t.Errorf("what runs is %s", begun.Record.Executed())
	}
	for name, body := range map[string]string{
		"without a reason":    `{"arguments":{}}`,
		"without arguments":   `{"reason":"x"}`,
		"with a list":         `{"reason":"x","arguments":[]}`,
		"with null":           `{"reason":"x","arguments":null}`,
		"with a doubled name": `{"reason":"x","arguments":{"a":1,"a":2}}`,
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			r := w.asked(fmt.Sprintf(`{"amount":1,"to":%q}`, name))
			if s := w.do(alice, "POST", "/v1/approvals/"+r.ID+"/edit", body); s.Status != 422 && s.Status != 400 {
				t.Errorf("status %d: %s", s.Status, s.Body)
			}
		})
	}
}

func TestExtend(t *testing.T) {
	w := newWorld(t)
	r := w.asked(`{"amount":10}`)
	w.clock.pass(23 * time.Hour)
	w.read(w.do(alice, "POST", "/v1/approvals/"+r.ID+"/extend", `{"for":"5h"}`), http.StatusOK, &shownEffect{})
	w.clock.pass(4 * time.Hour)
	w.read(w.approve(alice, r.ID), http.StatusOK, &shownEffect{})
	got := w.refused(w.do(alice, "POST", "/v1/approvals/"+w.asked(`{"n":2}`).ID+"/extend", `{"for":"soon"}`), http.StatusUnprocessableEntity)
	if got.Pointer != "/for" {
		t.Errorf("extend for soon: %+v", got)
	}
}

func TestWithdraw_takesBackWhatWasNotUsed(t *testing.T) {
	w := newWorld(t)
	r := w.asked(`{"amount":10}`)
	early := w.refused(w.do(alice, "POST", "/v1/approvals/"+r.ID+"/withdraw", `{"reason":"wait"}`), http.StatusConflict)
	if early.State != effect.StateAwaitingApproval {
		t.Errorf("withdrawn too early: %+v", early)
	}
	w.approve(alice, r.ID)
	w.read(w.do(alice, "POST", "/v1/approvals/"+r.ID+"/withdraw", `{"reason":"wait"}`), http.StatusOK, &shownEffect{})
	if w.call(`{"amount":10}`).Claim != nil {
		t.Error("the call runs although its approval was taken back")
	}
}

func TestDecideMany_eachHasItsOutcome(t *testing.T) {
	w := newWorld(t)
	first, second, third := w.asked(`{"n":1}`), w.asked(`{"n":2}`), w.asked(`{"n":3}`)
	w.approve(bob, second.ID)
	digest := func(r *effect.Record) string { return r.Approval.Complete.String() }
	body := fmt.Sprintf(`{"decisions":[
		{"id":%q,"decision":"approve","digest":%q},
		{"id":%q,"decision":"approve","digest":%q},
		{"id":%q,"decision":"approve","digest":%q},
		{"id":%q,"decision":"deny","digest":%q,"reason":"no"},
		{"id":%q,"decision":"approve"},
		{"id":"0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42","decision":"approve","digest":%q}]}`,
		first.ID, digest(first), second.ID, digest(second), third.ID, digest(first), third.ID, digest(third), third.ID, digest(first))
	var got struct {
		Outcomes []struct {
			ID, Outcome, By string
			Effect          *struct{ State effect.State }
		}
	}
	w.read(w.do(alice, "POST", "/v1/approvals/decide", body), http.StatusOK, &got)
	var outcomes []string
	for _, o := range got.Outcomes {
		outcomes = append(outcomes, strings.TrimSuffix(o.Outcome+" "+o.By, " "))
	}
	want := []string{"done", "already user:bob", "forbidden", "done", "invalid", "not_found"}
	if diff := cmp.Diff(want, outcomes); diff != "" {
		t.Errorf("outcomes (-want +got)\n%s", diff)
	}
	if got.Outcomes[3].Effect.State != effect.StateDenied {
		t.Errorf("the denied one is %s", got.Outcomes[3].Effect.State)
	}
}

func TestShow_isAllThatIsNeededToDecide(t *testing.T) {
	w := newWorld(t)
	learn(w, `{"name":"pay","description":"Pays somebody.","annotations":{"destructiveHint":true}}`)
	done := w.call(`{"n":0}`, func(_ *effect.Call, c *effect.Contract) { c.Approve = false })
	r := w.asked("{\"to\":\"alice\u202e\",\"amount\":10.50,\"note\":\"\u00e9\"}")
	e := w.shown(alice, r.ID)
	want := "{\n  \"to\": \"alice\\u202e\",\n  \"amount\": 10.50,\n  \"note\": \"é\"\n}"
	if e.Text != want {
		t.Errorf("text is %q, want %q", e.Text, want)
	}
	if !json.Valid(e.Definition) || !strings.Contains(string(e.Definition), "Pays somebody.") {
		t.Errorf("definition is %s", e.Definition)
	}
	if len(e.Recent) != 1 || e.Recent[0].ID != done.Record.ID {
		t.Errorf("recent effects: %+v", e.Recent)
	}
	if s := w.do(alice, "GET", "/v1/approvals/"+r.ID, ""); strings.Contains(string(s.Body), r.Approval.Handle) {
		t.Error("the handle by which the caller goes on is shown")
	}
	w.refused(w.do(alice, "GET", "/v1/approvals/"+done.Record.ID, ""), http.StatusNotFound)
}
