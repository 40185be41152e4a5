package effect_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
)

var (
	tenEuros    = json.RawMessage(`{"amount":10,"to":"alice"}`)
	elevenEuros = json.RawMessage(`{"amount":11,"to":"alice"}`)
)

func completeOf(t testing.TB, arguments json.RawMessage) effect.Digest {
	t.Helper()
	d, err := effect.DigestOf(arguments)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// request is agent:bot's effect that awaits approval by two of carol, dave and any admin.
func request(t testing.TB) *effect.Record {
	complete := completeOf(t, tenEuros)
	return &effect.Record{
		ID: "e1", Principal: "agent:bot", State: effect.StateAwaitingApproval, Attempt: 1, Ordinal: 4,
		Arguments: tenEuros, Complete: complete,
		Approval: &effect.Approval{
			ID: "r1", RequestedAt: now.Add(-time.Minute), DecideUntil: now.Add(time.Hour), UseForMs: 600_000,
			Quorum: 2, Approvers: []string{"user:carol", "user:dave", "user:admin-*"}, Original: complete, Complete: complete,
		},
	}
}

// decided applies decisions to a record, which all must be possible.
func decided(t testing.TB, r *effect.Record, decisions ...effect.Decision) *effect.Record {
	t.Helper()
	for i := range decisions {
		move, err := r.Decided(&decisions[i], now)
		if err != nil {
			t.Fatalf("%s by %s: %v", decisions[i].Kind, decisions[i].By, err)
		}
		if move.Ordinal != r.Ordinal+1 || !effect.CanMove(r.State, move.State) {
			t.Fatalf("%s: illegal move from %s/%d to %s/%d", decisions[i].Kind, r.State, r.Ordinal, move.State, move.Ordinal)
		}
		next := *r
		next.State, next.Ordinal, next.Approval, next.By, next.Reason, next.ChangedAt = move.State, move.Ordinal, move.Approval, move.By, move.Reason, now
		r = &next
	}
	return r
}

func by(name string, kind effect.DecisionKind) effect.Decision {
	return effect.Decision{Kind: kind, By: "user:" + name, Reason: "because"}
}

func edit(name string, arguments json.RawMessage) effect.Decision {
	d := by(name, effect.DecideEdit)
	d.Arguments = arguments
	return d
}

func TestRecord_Decided(t *testing.T) {
	carol, dave := by("carol", effect.DecideApprove), by("dave", effect.DecideApprove)
	t.Run("a quorum approves, one alone does not", func(t *testing.T) {
		one := decided(t, request(t), carol)
		if one.Approval.IsApproved() || one.Approval.Missing() != 1 || one.State != effect.StateAwaitingApproval {
			t.Errorf("after one vote: %+v", one.Approval)
		}
		both := decided(t, one, dave)
		if !both.Approval.IsApproved() || both.Approval.Missing() != 0 {
			t.Errorf("after two votes: %+v", both.Approval)
		}
		if want := now.Add(10 * time.Minute); !both.Approval.UseUntil.Equal(want) {
			t.Errorf("to be used until %s, want %s", both.Approval.UseUntil, want)
		}
		if len(one.Approval.Votes) != 1 {
			t.Error("the second vote changed what the first left")
		}
	})
	t.Run("a glob names approvers", func(t *testing.T) {
		decided(t, request(t), by("admin-7", effect.DecideApprove))
	})
	t.Run("no is one person's word", func(t *testing.T) {
		r := decided(t, request(t), carol, by("dave", effect.DecideDeny))
		if r.State != effect.StateDenied || r.By != "user:dave" || r.Reason != "because" || r.Approval.Last.Kind != effect.DecideDeny {
			t.Errorf("denied: %+v", r)
		}
	})
	t.Run("an edit voids the votes and is what runs", func(t *testing.T) {
		r := decided(t, request(t), carol, edit("dave", elevenEuros))
		if !r.Approval.IsEdited() || len(r.Approval.Votes) != 0 || r.Approval.Original != completeOf(t, tenEuros) || r.Approval.Complete != completeOf(t, elevenEuros) {
			t.Errorf("edited: %+v", r.Approval)
		}
		if string(r.Executed()) != string(elevenEuros) || string(r.Arguments) != string(tenEuros) {
			t.Errorf("runs %s, was asked %s", r.Executed(), r.Arguments)
		}
		if r = decided(t, r, carol, dave); !r.Approval.IsApproved() {
			t.Error("the edited call cannot be approved")
		}
	})
	t.Run("an edit back is no edit", func(t *testing.T) {
		r := decided(t, request(t), edit("dave", elevenEuros), edit("carol", json.RawMessage(` {"to":"alice", "amount":10}`)))
		if r.Approval.IsEdited() || string(r.Executed()) != string(tenEuros) {
			t.Errorf("runs %s", r.Executed())
		}
	})
	t.Run("more time to decide is reminded of again", func(t *testing.T) {
		r := request(t)
		r.Approval.Reminded = true
		d := by("carol", effect.DecideExtend)
		d.Extend = 48 * time.Hour
		r = decided(t, r, d)
		if want := now.Add(48 * time.Hour); !r.Approval.DecideUntil.Equal(want) || r.Approval.Reminded {
			t.Errorf("open until %s, want %s; reminded %t", r.Approval.DecideUntil, want, r.Approval.Reminded)
		}
	})
	t.Run("an approval can be withdrawn until it is used", func(t *testing.T) {
		r := decided(t, request(t), carol, dave, by("carol", effect.DecideWithdraw))
		if r.State != effect.StateDenied {
			t.Errorf("state %s", r.State)
		}
	})
	t.Run("a denied call can be reopened, with the same time to decide and no votes", func(t *testing.T) {
		r := decided(t, request(t), carol, by("dave", effect.DecideDeny), by("admin-1", effect.DecideReopen))
		a := r.Approval
		if r.State != effect.StateAwaitingApproval || len(a.Votes) != 0 || !a.RequestedAt.Equal(now) || a.DecideUntil.Sub(now) != 61*time.Minute {
			t.Errorf("reopened: %+v", a)
		}
	})
	t.Run("the user of the host decides where policy lets them", func(t *testing.T) {
		r := request(t)
		r.Approval.Host = true
		d := effect.Decision{Kind: effect.DecideApprove, By: "user:bot", Via: effect.ViaElicitation}
		if r = decided(t, r, d); len(r.Approval.Votes) != 1 {
			t.Errorf("votes %+v", r.Approval.Votes)
		}
	})
}

func TestRecord_DecidedRefusesWhoMayNot(t *testing.T) {
	stale := by("carol", effect.DecideApprove)
	stale.Complete = completeOf(t, elevenEuros)
	other := by("carol", effect.DecideApprove)
	other.Request = "r0"
	ownUser := request(t)
	ownUser.Principal = "user:carol"
	never := request(t)
	never.Approval = nil
	for _, tt := range []struct {
		name string
		r    *effect.Record
		d    effect.Decision
		want string
	}{
		{"who made the call", ownUser, by("carol", effect.DecideApprove), "made the call"},
		{"an agent", request(t), effect.Decision{Kind: effect.DecideApprove, By: "agent:bot"}, "user:NAME"},
		{"nobody", request(t), effect.Decision{Kind: effect.DecideApprove, By: "user:"}, "user:NAME"},
		{"somebody else", request(t), by("eve", effect.DecideApprove), "user:carol, user:dave, user:admin-*"},
		{"somebody else's no", request(t), by("eve", effect.DecideDeny), "not among"},
		{"the user of the host, where policy does not say so", request(t), effect.Decision{Kind: effect.DecideApprove, By: "user:carol", Via: effect.ViaElicitation}, "host"},
		{"who saw other arguments", request(t), stale, "look at it again"},
		{"who saw another request", request(t), other, "look at it again"},
		{"a withdrawal of nothing", request(t), by("carol", effect.DecideWithdraw), "deny it instead"},
		{"a decision on what never asked", never, by("carol", effect.DecideApprove), "never awaited approval"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.r.Decided(&tt.d, now)
			if forbidden, ok := errors.AsType[*effect.ForbiddenError](err); !ok || !strings.Contains(forbidden.Reason, tt.want) {
				t.Errorf("error %v, want a *ForbiddenError with %q", err, tt.want)
			}
		})
	}
}

func TestRecord_DecidedRefusesWhatLacksSomething(t *testing.T) {
	silent := func(kind effect.DecisionKind) effect.Decision {
		return effect.Decision{Kind: kind, By: "user:carol", Reason: " "}
	}
	for _, tt := range []struct {
		name string
		d    effect.Decision
		want string
	}{
		{"a no without a reason", silent(effect.DecideDeny), "reason is missing"},
		{"an edit without a reason", silent(effect.DecideEdit), "reason is missing"},
		{"a withdrawal without a reason", silent(effect.DecideWithdraw), "reason is missing"},
		{"no time", by("carol", effect.DecideExtend), "longer than nothing"},
		{"no decision", by("carol", "shrug"), `"shrug" is no decision`},
		{"edited arguments that are none", edit("carol", nil), "must be an object"},
		{"edited arguments that are a list", edit("carol", json.RawMessage(`[1]`)), "must be an object"},
		{"edited arguments that are null", edit("carol", json.RawMessage(`null`)), "must be an object"},
		{"edited arguments with one name twice", edit("carol", json.RawMessage(`{"a":1,"a":2}`)), "/arguments"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := request(t).Decided(&tt.d, now)
			if invalid, ok := errors.AsType[*effect.InvalidError](err); !ok || !strings.Contains(invalid.Error(), tt.want) {
				t.Errorf("error %v, want an *InvalidError with %q", err, tt.want)
			}
		})
	}
}

func TestRecord_DecidedTooLateSaysWhoWasFirst(t *testing.T) {
	carol, dave := by("carol", effect.DecideApprove), by("dave", effect.DecideApprove)
	expired := request(t)
	expired.Approval.DecideUntil = now
	unused := decided(t, request(t), carol, dave)
	unused.Approval.UseUntil = now
	used := decided(t, request(t), carol, dave)
	used.State = effect.StateCommitted
	const at = "2026-03-01 12:00:00 UTC"
	for _, tt := range []struct {
		name string
		r    *effect.Record
		d    effect.Decision
		want effect.DecidedError
		text string
	}{
		{"an approval after the quorum", decided(t, request(t), carol, dave), by("admin-1", effect.DecideApprove),
			effect.DecidedError{Kind: effect.DecideApprove, By: "user:dave", At: now, Reason: "because", State: effect.StateAwaitingApproval, Same: true}, "already approved by user:dave at " + at},
		{"a no after the quorum", decided(t, request(t), carol, dave), by("admin-1", effect.DecideDeny),
			effect.DecidedError{Kind: effect.DecideApprove, By: "user:dave", At: now, Reason: "because", State: effect.StateAwaitingApproval}, "already approved by user:dave at " + at},
		{"a second vote of one person", decided(t, request(t), carol), carol,
			effect.DecidedError{Kind: effect.DecideApprove, By: "user:carol", At: now, Reason: "because", State: effect.StateAwaitingApproval, Same: true, Missing: 1}, "already approved by user:carol at " + at + "; 1 more must approve"},
		{"an approval after a no", decided(t, request(t), by("dave", effect.DecideDeny)), carol,
			effect.DecidedError{Kind: effect.DecideDeny, By: "user:dave", At: now, Reason: "because", State: effect.StateDenied}, "already denied by user:dave at " + at},
		{"a withdrawal of what was used", used, by("carol", effect.DecideWithdraw),
			effect.DecidedError{Kind: effect.DecideApprove, By: "user:dave", At: now, Reason: "because", State: effect.StateCommitted}, "already approved by user:dave at " + at},
		{"a reopening of what is open", decided(t, request(t), carol), by("dave", effect.DecideReopen),
			effect.DecidedError{Kind: effect.DecideApprove, By: "user:carol", At: now, Reason: "because", State: effect.StateAwaitingApproval}, "already approved by user:carol at " + at},
		{"an approval after the time to decide", expired, carol,
			effect.DecidedError{State: effect.StateExpired, At: now}, "the request expired at " + at + ": nobody had decided"},
		{"an extension after the time to decide", expired, effect.Decision{Kind: effect.DecideExtend, By: "user:carol", Extend: time.Hour},
			effect.DecidedError{State: effect.StateExpired, At: now}, "the request expired at " + at + ": nobody had decided"},
		{"a withdrawal after the time to use", unused, by("carol", effect.DecideWithdraw),
			effect.DecidedError{State: effect.StateVoid, At: now}, "the request is void since " + at},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.r.Decided(&tt.d, now)
			got, ok := errors.AsType[*effect.DecidedError](err)
			if !ok {
				t.Fatalf("error %v, want a *DecidedError", err)
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Errorf("error (-want +got)\n%s", diff)
			}
			if got.Error() != tt.text {
				t.Errorf("text %q, want %q", got.Error(), tt.text)
			}
		})
	}
}

func TestApproval_Clocks(t *testing.T) {
	r := request(t)
	if want := now.Add(-time.Minute).Add(61 * time.Minute * 4 / 5); !r.Approval.RemindAt().Equal(want) {
		t.Errorf("reminded at %s, want %s", r.Approval.RemindAt(), want)
	}
	approved := decided(t, request(t), by("carol", effect.DecideApprove), by("dave", effect.DecideApprove))
	for _, tt := range []struct {
		name  string
		r     *effect.Record
		after time.Duration
		want  effect.State
	}{
		{"undecided within its time awaits", r, time.Hour - 1, effect.StateAwaitingApproval},
		{"undecided at the end of its time is expired", r, time.Hour, effect.StateExpired},
		{"approved within its time awaits", approved, 10*time.Minute - 1, effect.StateAwaitingApproval},
		{"approved at the end of its time is void", approved, 10 * time.Minute, effect.StateVoid},
		{"approved is not expired by the time to decide", decidedLate(t), 5 * time.Minute, effect.StateAwaitingApproval},
	} {
		if got := tt.r.StateAt(now.Add(tt.after)); got != tt.want {
			t.Errorf("%s: state %s, want %s", tt.name, got, tt.want)
		}
	}
}

// decidedLate was approved a minute before the time to decide was over.
func decidedLate(t testing.TB) *effect.Record {
	r := request(t)
	r.Approval.DecideUntil = now.Add(time.Minute)
	return decided(t, r, by("carol", effect.DecideApprove), by("dave", effect.DecideApprove))
}
