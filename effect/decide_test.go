package effect_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undolog/undolog/effect"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// situation is a call of alice's and what the log knows of it; a case changes what it is about.
type situation struct {
	call         effect.Call
	id           effect.Identity
	contract     effect.Contract
	facts        effect.Facts
	continuation string
}

func (s *situation) decide() effect.Verdict {
	return effect.Decide(&s.call, &s.id, &s.contract, &s.facts, s.continuation)
}

// seen is a situation whose call was recorded before under the rule, and stands in the state.
func seen(rule effect.Rule, state effect.State) *situation {
	s := unseen(rule)
	s.facts.Latest = &effect.Record{
		ID: "e1", Principal: "alice", Server: "payments", Tool: "charge", Rule: rule,
		ArgsDigest: effect.Digest{1}, Generation: 3, State: state, Attempt: 2,
		OwnerUntil: now.Add(time.Second), TimeoutAt: now.Add(time.Minute), ChangedAt: now.Add(-time.Minute),
		Answer: effect.Answer{Kind: effect.AnswerResult}, Delivered: true, Continuation: "round-2",
	}
	return s
}

func unseen(rule effect.Rule) *situation {
	return &situation{
		call: effect.Call{Principal: "alice", Server: "payments", Tool: "charge"},
		id:   effect.Identity{Rule: rule, Arguments: effect.Digest{1}},
		contract: effect.Contract{
			Tier: effect.TierIrreversible, Window: 10 * time.Minute, Repeat: effect.RepeatAsk,
			RepeatError: effect.RepeatReplay, Lookalike: effect.RepeatRun, Source: "policy p.yaml:3",
		},
		facts: effect.Facts{Now: now},
	}
}

func with(s *situation, change func(*situation)) *situation {
	change(s)
	return s
}

func idempotent(s *situation)  { s.contract.Tier = effect.TierIdempotent }
func undelivered(s *situation) { s.facts.Latest.Delivered = false }
func otherWrites(s *situation) { s.facts.OtherWrites = true }
func again(s *situation)       { s.facts.Again = true }
func approve(s *situation)     { s.contract.Approve = true }
func bob(s *situation)         { s.call.Principal = "bob" }
func replays(s *situation)     { s.contract.Repeat = effect.RepeatReplay }
func runs(s *situation)        { s.contract.Repeat = effect.RepeatRun }

func TestDecide(t *testing.T) {
	const (
		key, run, window, none = effect.RuleKey, effect.RuleRun, effect.RuleWindow, effect.RuleNone
	)
	generation := func(n int) effect.Verdict { return effect.Verdict{Action: effect.ActInsert, Generation: n} }
	attempt := func(n int) effect.Verdict { return effect.Verdict{Action: effect.ActReclaim, Attempt: n} }
	only := func(a effect.Action) effect.Verdict { return effect.Verdict{Action: a} }
	repeat := effect.Verdict{Action: effect.ActReplay, Repeat: true}
	asksFor := func(generation int) effect.Verdict {
		return effect.Verdict{Action: effect.ActRequest, Generation: generation}
	}
	asksAttempt := func(n int) effect.Verdict { return effect.Verdict{Action: effect.ActRequest, Attempt: n} }

	for _, tt := range []struct {
		name string
		s    *situation
		want effect.Verdict
	}{
		{"a call never seen is claimed", unseen(window), generation(1)},
		{"a call of nobody always runs", unseen(none), generation(1)},
		{"a call that needs approval asks", with(unseen(window), approve), asksFor(1)},
		{"a call of nobody that needs approval is refused", with(unseen(none), approve), only(effect.ActDenied)},

		{"a call under way is joined", seen(window, effect.StateClaimed), only(effect.ActJoin)},
		{"a call under way is joined under a key", seen(key, effect.StateClaimed), only(effect.ActJoin)},
		{"a call under way is joined although it may run freely", with(seen(window, effect.StateClaimed), idempotent), only(effect.ActJoin)},
		{"a call under way is joined although it needs approval", with(seen(window, effect.StateClaimed), approve), only(effect.ActJoin)},
		{"a dead owner's call is in doubt", with(seen(window, effect.StateClaimed), func(s *situation) { s.facts.Latest.OwnerUntil = now }), only(effect.ActInDoubt)},
		{"a dead owner's idempotent call runs again", with(with(seen(window, effect.StateClaimed), func(s *situation) { s.facts.Latest.OwnerUntil = now }), idempotent), attempt(3)},

		{"a round that comes back goes on", with(seen(window, effect.StateWaiting), func(s *situation) { s.continuation = "round-2" }), effect.Verdict{Action: effect.ActContinue, Attempt: 2}},
		{"a round goes on although it needs approval", with(with(seen(window, effect.StateWaiting), func(s *situation) { s.continuation = "round-2" }), approve), effect.Verdict{Action: effect.ActContinue, Attempt: 2}},
		{"an earlier round's state gets the waiting answer", with(seen(window, effect.StateWaiting), func(s *situation) { s.continuation = "round-1" }), only(effect.ActReplay)},
		{"a state that no round gave is refused", with(seen(window, effect.StateWaiting), func(s *situation) { s.continuation, s.facts.UnknownRound = "forged", true }), only(effect.ActConflict)},
		{"a waiting call without its state gets the waiting answer", seen(window, effect.StateWaiting), only(effect.ActReplay)},
		{"no state never matches an attempt without one", with(seen(window, effect.StateWaiting), func(s *situation) { s.facts.Latest.Continuation = "" }), only(effect.ActReplay)},

		{"a lost call is in doubt", seen(key, effect.StateInDoubt), only(effect.ActInDoubt)},
		{"a lost compensable call is in doubt", with(seen(key, effect.StateInDoubt), func(s *situation) { s.contract.Tier = effect.TierCompensable }), only(effect.ActInDoubt)},
		{"a lost idempotent call runs again", with(seen(key, effect.StateInDoubt), idempotent), attempt(3)},
		{"a lost idempotent call that needs approval asks", with(with(seen(key, effect.StateInDoubt), idempotent), approve), asksAttempt(3)},

		{"a released call runs again", seen(window, effect.StateReleased), attempt(3)},
		{"a failed call runs again", seen(key, effect.StateFailed), attempt(3)},
		{"an expired call runs again", seen(run, effect.StateExpired), attempt(3)},
		{"a void call runs again", seen(window, effect.StateVoid), attempt(3)},
		{"a failed call that needs approval asks", with(seen(window, effect.StateFailed), approve), asksAttempt(3)},
		{"a denied call is denied again", seen(window, effect.StateDenied), only(effect.ActDenied)},
		{"a denied call of a key is denied again", seen(key, effect.StateDenied), only(effect.ActDenied)},
		{"a denied call is denied although it may run freely", with(seen(window, effect.StateDenied), idempotent), only(effect.ActDenied)},
		{"a call that awaits approval asks", seen(window, effect.StateAwaitingApproval), only(effect.ActAsk)},

		{"an answered call of a key is replayed", seen(key, effect.StateCommitted), only(effect.ActReplay)},
		{"an answered call of a run is replayed", seen(run, effect.StateCommitted), only(effect.ActReplay)},
		{"an answered call of a key is replayed long after its window", with(seen(key, effect.StateCommitted), func(s *situation) { s.facts.Latest.ChangedAt = now.AddDate(-1, 0, 0) }), only(effect.ActReplay)},
		{"an answered call of a key is replayed although it may run freely", with(seen(key, effect.StateCommitted), idempotent), only(effect.ActReplay)},
		{"an answered call of a key is replayed although other writes lie between", with(seen(key, effect.StateCommitted), otherWrites), only(effect.ActReplay)},
		{"an answered call of a key is replayed although it needs approval", with(seen(key, effect.StateCommitted), approve), only(effect.ActReplay)},
		{"a call of a key whose undo runs is replayed", seen(key, effect.StateCompensating), only(effect.ActReplay)},
		{"an undone call of a key is replayed", seen(key, effect.StateCompensated), only(effect.ActReplay)},
		{"a call of a key whose undo failed is replayed", seen(key, effect.StateCompensationFailed), only(effect.ActReplay)},

		{"a call of a key that a person let run again runs", with(seen(key, effect.StateCommitted), again), effect.Verdict{Action: effect.ActInsert, Generation: 4, UsesAgain: "e1"}},
		{"a repeat that a person let run again runs", with(seen(window, effect.StateCommitted), again), effect.Verdict{Action: effect.ActInsert, Generation: 4, UsesAgain: "e1"}},
		{"a person's word is an approval", with(with(seen(window, effect.StateCommitted), again), approve), effect.Verdict{Action: effect.ActInsert, Generation: 4, UsesAgain: "e1"}},
		{"a person's word does not dispatch what is under way", with(seen(window, effect.StateClaimed), again), only(effect.ActJoin)},
		{"a person's word does not settle a doubt", with(seen(window, effect.StateInDoubt), again), only(effect.ActInDoubt)},

		{"a call past its window is a new one", with(seen(window, effect.StateCommitted), func(s *situation) { s.facts.Latest.ChangedAt = now.Add(-10 * time.Minute) }), generation(4)},
		{"a call just within its window is not", with(seen(window, effect.StateCommitted), func(s *situation) { s.facts.Latest.ChangedAt = now.Add(time.Microsecond - 10*time.Minute) }), asksFor(4)},
		{"a new one past the window that needs approval asks", with(with(seen(window, effect.StateCommitted), func(s *situation) { s.facts.Latest.ChangedAt = now.Add(-time.Hour) }), approve), asksFor(4)},
		{"an answer that may not have arrived is given again", with(seen(window, effect.StateCommitted), undelivered), only(effect.ActReplay)},
		{"an answer that may not have arrived is given again although other writes lie between", with(with(seen(window, effect.StateCommitted), undelivered), otherWrites), only(effect.ActReplay)},
		{"an answer that may not have arrived is given again although the call may run freely", with(with(seen(window, effect.StateCommitted), undelivered), idempotent), only(effect.ActReplay)},
		{"a call after other writes is a new one", with(seen(window, effect.StateCommitted), otherWrites), generation(4)},
		{"a repeat of an idempotent call runs", with(seen(window, effect.StateCommitted), idempotent), generation(4)},
		{"a repeat asks", seen(window, effect.StateCommitted), asksFor(4)},
		{"a repeat is replayed and says so", with(seen(window, effect.StateCommitted), replays), repeat},
		{"a repeat runs", with(seen(window, effect.StateCommitted), runs), generation(4)},
		{"a repeat of an error result is replayed", with(with(seen(window, effect.StateCommitted), runs), func(s *situation) { s.facts.Latest.Answer.IsError = true }), repeat},
		{"a repeat of a JSON-RPC error is replayed", with(with(seen(window, effect.StateCommitted), runs), func(s *situation) { s.facts.Latest.Answer.Kind = effect.AnswerError }), repeat},
		{"a repeat of an error does as policy says", with(with(seen(window, effect.StateCommitted), func(s *situation) { s.facts.Latest.Answer.IsError = true }), func(s *situation) { s.contract.RepeatError = effect.RepeatRun }), generation(4)},

		{"another principal's key is a conflict", with(seen(key, effect.StateCommitted), bob), only(effect.ActConflict)},
		{"another principal's run is a conflict", with(seen(run, effect.StateClaimed), bob), only(effect.ActConflict)},
		{"a key shared in the tenant is the same call", with(with(seen(key, effect.StateCommitted), bob), func(s *situation) { s.contract.ShareTenant = true }), only(effect.ActReplay)},
		{"a key with other arguments is a conflict", with(seen(key, effect.StateCommitted), func(s *situation) { s.id.Arguments = effect.Digest{2} }), only(effect.ActConflict)},
		{"a key with other arguments is a conflict although nothing was applied", with(seen(key, effect.StateReleased), func(s *situation) { s.id.Arguments = effect.Digest{2} }), only(effect.ActConflict)},
		{"a shared key with other arguments is a conflict", with(with(seen(key, effect.StateCommitted), bob), func(s *situation) {
			s.contract.ShareTenant = true
			s.id.Arguments = effect.Digest{2}
		}), only(effect.ActConflict)},
		{"a key with another tool is a conflict", with(seen(key, effect.StateCommitted), func(s *situation) { s.call.Tool = "refund" }), only(effect.ActConflict)},
		{"a key with another server is a conflict", with(seen(key, effect.StateCommitted), func(s *situation) { s.call.Server = "crm" }), only(effect.ActConflict)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.s.decide()
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(effect.Verdict{}, "Reason", "Request")); diff != "" {
				t.Errorf("Decide (-want +got)\n%s", diff)
			}
			if got.Reason == "" {
				t.Error("Decide gave no reason")
			}
			if asks := got.Action == effect.ActRequest; asks != (got.Request != nil) {
				t.Errorf("action %s with the request %+v", got.Action, got.Request)
			}
		})
	}
}

func TestDecide_Lookalike(t *testing.T) {
	like := func(s *situation) { s.facts.Lookalike = &effect.Record{ID: "e9"} }
	asks := func(s *situation) { s.contract.Lookalike = effect.RepeatAsk }
	allowed := func(s *situation) { s.facts.LookalikeAgain = true }

	for _, tt := range []struct {
		name string
		s    *situation
		want effect.Verdict
	}{
		{"runs and is noted", with(unseen(effect.RuleRun), like), effect.Verdict{Action: effect.ActInsert, Generation: 1, Lookalike: "e9"}},
		{"asks when policy says so", with(with(unseen(effect.RuleRun), like), asks), effect.Verdict{Action: effect.ActRequest, Generation: 1, Lookalike: "e9"}},
		{"runs when a person allowed it, which is used up", with(with(with(unseen(effect.RuleRun), like), asks), allowed), effect.Verdict{Action: effect.ActInsert, Generation: 1, Lookalike: "e9", UsesAgain: "e9"}},
		{"leaves a person's word alone where policy lets it run", with(with(unseen(effect.RuleRun), like), allowed), effect.Verdict{Action: effect.ActInsert, Generation: 1, Lookalike: "e9"}},
		{"does not matter for the next generation", with(with(with(seen(effect.RuleWindow, effect.StateCommitted), otherWrites), like), asks), effect.Verdict{Action: effect.ActInsert, Generation: 4}},
		{"does not matter for the next attempt", with(with(seen(effect.RuleRun, effect.StateReleased), like), asks), effect.Verdict{Action: effect.ActReclaim, Attempt: 3}},
		{"that runs may still need approval", with(with(unseen(effect.RuleRun), like), approve), effect.Verdict{Action: effect.ActRequest, Generation: 1, Lookalike: "e9"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.s.decide(), cmpopts.IgnoreFields(effect.Verdict{}, "Reason", "Request")); diff != "" {
				t.Errorf("Decide (-want +got)\n%s", diff)
			}
		})
	}
}

func TestDecide_ReasonsTellWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    *situation
		want string
	}{
		{"a repeat names the effect that it repeats", seen(effect.RuleWindow, effect.StateCommitted), "effect e1"},
		{"a look-alike names the effect that it is like", with(unseen(effect.RuleRun), func(s *situation) {
			s.facts.Lookalike = &effect.Record{ID: "e9"}
			s.contract.Lookalike = effect.RepeatAsk
		}), "effect e9"},
		{"a missing approval names the policy line", with(unseen(effect.RuleWindow), approve), "policy p.yaml:3"},
		{"a call of nobody that needs approval names what is missing", with(unseen(effect.RuleNone), approve), "Configure a principal"},
		{"a denial is told as it was given", with(seen(effect.RuleKey, effect.StateDenied), func(s *situation) { s.facts.Latest.Reason = "not this month" }), "not this month"},
		{"a denial without a reason says who said no", seen(effect.RuleKey, effect.StateDenied), "a person said no"},
		{"a doubt names the command", seen(effect.RuleKey, effect.StateInDoubt), "undolog resolve e1"},
		{"a conflict names the effect", with(seen(effect.RuleKey, effect.StateCommitted), func(s *situation) { s.id.Arguments = effect.Digest{2} }), "e1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.s.decide().Reason; !strings.Contains(got, tt.want) {
				t.Errorf("reason %q does not contain %q", got, tt.want)
			}
		})
	}
}

func TestDecide_ConflictRevealsNothingOfAnotherPrincipal(t *testing.T) {
	equal := with(seen(effect.RuleKey, effect.StateCommitted), bob).decide()
	other := with(with(seen(effect.RuleKey, effect.StateInDoubt), bob), func(s *situation) { s.id.Arguments = effect.Digest{2} }).decide()
	if diff := cmp.Diff(equal, other); diff != "" {
		t.Errorf("two conflicts with alice's call differ for bob\n%s", diff)
	}
	for _, secret := range []string{"e1", "alice", "committed"} {
		if strings.Contains(equal.Reason, secret) {
			t.Errorf("reason %q reveals %q", equal.Reason, secret)
		}
	}
}
