package effect_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undolog/undolog/effect"
)

// asked is a situation whose call was asked about and is not decided. It is the very call that was asked about.
func asked() *situation {
	s := with(seen(effect.RuleWindow, effect.StateAwaitingApproval), approve)
	s.contract.Asking = effect.Asking{Quorum: 1, DecideFor: time.Hour, UseFor: time.Hour}
	s.id.Complete, s.call.Definition = effect.Digest{7}, effect.Digest{9}
	s.facts.Latest.Approval = &effect.Approval{
		ID: "r1", RequestedAt: now.Add(-time.Minute), DecideUntil: now.Add(time.Minute), Quorum: 1,
		Original: s.id.Complete, Complete: s.id.Complete, Definition: s.call.Definition,
	}
	return s
}

func approvedBy(names ...string) func(*situation) {
	return func(s *situation) {
		a := s.facts.Latest.Approval
		for _, name := range names {
			a.Votes = append(a.Votes, effect.Vote{By: name, Kind: effect.DecideApprove, At: now})
		}
		a.UseUntil = now.Add(time.Minute)
	}
}

func granted(s *situation) {
	s.facts.Grants = []*effect.Grant{{ID: "g1", Kind: effect.GrantTool, Server: "payments", Tool: "charge", By: "user:carol"}}
}

func asksNoMore(s *situation) { s.contract.Approve = false }
func edited(s *situation)     { s.facts.Latest.Approval.Complete = effect.Digest{8} }
func otherCall(s *situation)  { s.id.Complete = effect.Digest{6} }
func asRepeat(s *situation)   { s.facts.Latest.Approval.Again = true }
func redefined(s *situation)  { s.call.Definition = effect.Digest{10} }
func denies(s *situation)     { s.contract.Deny = "not on Sundays" }

func (s *situation) and(changes ...func(*situation)) *situation {
	for _, change := range changes {
		change(s)
	}
	return s
}

func TestDecide_AwaitingApproval(t *testing.T) {
	use := effect.Verdict{Action: effect.ActApproved, Attempt: 2}
	wait := effect.Verdict{Action: effect.ActAsk}
	anew := effect.Verdict{Action: effect.ActRequest, Attempt: 2}
	next := effect.Verdict{Action: effect.ActRequest, Attempt: 3}
	byGrant := use
	byGrant.Grant = "g1"
	deny := effect.Verdict{Action: effect.ActDenied}
	carol := approvedBy("user:carol")
	for _, tt := range []struct {
		name string
		s    *situation
		want effect.Verdict
	}{
		{"an undecided request is not asked twice", asked(), wait},
		{"an approved call is claimed", asked().and(carol), use},
		{"an approval that was not used in time asks anew", asked().and(carol, func(s *situation) { s.facts.Latest.Approval.UseUntil = now }), next},
		{"a request that nobody decided in time asks anew", asked().and(func(s *situation) { s.facts.Latest.Approval.DecideUntil = now }), next},
		{"a repeat's question that nobody answered is asked again, though the contract asks nobody",
			asked().and(asRepeat, asksNoMore, func(s *situation) { s.facts.Latest.Approval.DecideUntil = now }), next},
		{"what was never sent under a repeat's approval is asked again", asked().and(asRepeat, asksNoMore, func(s *situation) { s.facts.Latest.State = effect.StateReleased }), next},
		{"a policy that asks no longer lets the call run", asked().and(asksNoMore), use},
		{"a policy that asks no longer does not run other bytes than it judged", asked().and(asksNoMore, otherCall), wait},
		{"a policy that asks no longer does not run what a person edited", asked().and(asksNoMore, edited), wait},
		{"a policy that asks no longer does not answer what a repeat asked", asked().and(asksNoMore, asRepeat), wait},
		{"a standing grant answers an open request", asked().and(granted), byGrant},
		{"a standing grant does not answer for other bytes", asked().and(granted, otherCall), wait},
		{"a standing grant does not answer for what a person edited", asked().and(granted, edited), wait},
		{"a standing grant does not answer what a repeat asked", asked().and(granted, asRepeat), wait},
		{"other volatile arguments use the approval, whose bytes go out", asked().and(carol, otherCall), use},
		{"an approved edit is claimed", asked().and(edited, carol), use},
		{"a tool that changed since it was asked about is asked about anew", asked().and(redefined), anew},
		{"a tool that changed since it was approved is asked about anew", asked().and(carol, redefined), anew},
		{"a repeat's tool that changed since it was approved is asked about anew", asked().and(carol, redefined, asRepeat, asksNoMore), anew},
		{"a definition that was not known then proves no change", asked().and(carol, redefined, func(s *situation) { s.facts.Latest.Approval.Definition = effect.Digest{} }), use},
		{"a definition that is not known now proves no change", asked().and(carol, func(s *situation) { s.call.Definition = effect.Digest{} }), use},
		{"a policy that wants more people asks anew", asked().and(carol, func(s *situation) { s.contract.Asking.Quorum = 2 }), anew},
		{"a policy that wants other people asks anew", asked().and(carol, func(s *situation) { s.contract.Asking.Approvers = []string{"user:d*"} }), anew},
		{"a policy that wants the same people does not", asked().and(carol, func(s *situation) { s.contract.Asking.Approvers = []string{"user:d*", "user:carol"} }), use},
		{"a policy that now denies refuses an open request", asked().and(denies), deny},
		{"a policy that now denies refuses an approved call", asked().and(carol, denies), deny},
		{"a policy that denies still replays", seen(effect.RuleKey, effect.StateCommitted).and(denies), effect.Verdict{Action: effect.ActReplay}},
		{"a policy that denies refuses what was never seen", unseen(effect.RuleWindow).and(denies), deny},
		{"a policy that denies refuses the next attempt", seen(effect.RuleKey, effect.StateReleased).and(denies), deny},
		{"a policy that denies refuses a run that a person allowed", seen(effect.RuleKey, effect.StateCommitted).and(again, denies), deny},
		{"a call that is covered by a standing grant runs", unseen(effect.RuleWindow).and(approve, granted), effect.Verdict{Action: effect.ActInsert, Generation: 1, Grant: "g1"}},
		{"a repeat is asked about although a grant covers the tool", seen(effect.RuleWindow, effect.StateCommitted).and(approve, granted), effect.Verdict{Action: effect.ActRequest, Generation: 4}},
		{"a request without its approval is waited for", asked().and(func(s *situation) { s.facts.Latest.Approval = nil }), wait},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.s.decide()
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(effect.Verdict{}, "Reason", "Request")); diff != "" {
				t.Errorf("Decide (-want +got)\n%s", diff)
			}
			if asks := got.Action == effect.ActRequest; asks != (got.Request != nil) || got.Reason == "" {
				t.Errorf("action %s, reason %q, request %+v", got.Action, got.Reason, got.Request)
			}
		})
	}
}

// What a call carries beside its arguments is not what people are shown.
func TestDecide_ApprovedCallAnswersNothingThatWasNotAsked(t *testing.T) {
	for name, s := range map[string]*situation{
		"approved":  asked().and(approvedBy("user:carol"), firstAttempt),
		"undecided": asked().and(firstAttempt),
		"granted":   asked().and(granted, firstAttempt),
	} {
		if v := s.and(func(s *situation) { s.continuation = "inputResponses" }).decide(); v.Action != effect.ActConflict {
			t.Errorf("%s: %+v, want a conflict", name, v)
		}
	}
}

// A grant, and one more run that somebody has allowed, are approvals too: of those whom the policy names, and of as
// many as it wants.
func TestDecide_WhoMayNotApproveMayNotGrant(t *testing.T) {
	by := func(names ...string) func(*situation) {
		return func(s *situation) {
			for _, name := range names {
				s.facts.Grants = append(s.facts.Grants, &effect.Grant{ID: name, Kind: effect.GrantTool, Server: "payments", Tool: "charge", By: name})
			}
		}
	}
	quorum := func(n int) func(*situation) { return func(s *situation) { s.contract.Asking.Quorum = n } }
	onlyC := func(s *situation) { s.contract.Asking.Approvers = []string{"user:c*"} }
	repeat := func() *situation { return seen(effect.RuleKey, effect.StateCommitted).and(approve, again) }
	for _, tt := range []struct {
		name string
		s    *situation
		want effect.Action
	}{
		{"of nobody who may", unseen(effect.RuleWindow).and(approve, onlyC, by("user:dan")), effect.ActRequest},
		{"of one who may", unseen(effect.RuleWindow).and(approve, onlyC, by("user:dan", "user:carol")), effect.ActInsert},
		{"of one of two", unseen(effect.RuleWindow).and(approve, quorum(2), by("user:carol")), effect.ActRequest},
		{"of one, twice", unseen(effect.RuleWindow).and(approve, quorum(2), by("user:carol", "user:carol")), effect.ActRequest},
		{"of both", unseen(effect.RuleWindow).and(approve, quorum(2), by("user:carol", "user:dan")), effect.ActInsert},
		{"for a request, of one of two", asked().and(quorum(2), by("user:carol")), effect.ActAsk},
		{"one more run, of anybody", repeat(), effect.ActInsert},
		{"one more run, where the policy names who", repeat().and(onlyC), effect.ActRequest},
		{"one more run, where it wants two", repeat().and(quorum(2)), effect.ActRequest},
	} {
		if got := tt.s.decide(); got.Action != tt.want || got.Action == effect.ActRequest && got.UsesAgain != "" {
			t.Errorf("%s: %+v, want %s", tt.name, got, tt.want)
		}
	}
}

func firstAttempt(s *situation) { s.facts.Latest.Attempt = 1 }

func TestDecide_RequestIsBoundToTheCall(t *testing.T) {
	s := unseen(effect.RuleWindow).and(approve)
	s.contract.Asking = effect.Asking{Quorum: 2, Approvers: []string{"user:*"}, UseFor: time.Minute, Host: true}
	s.contract.Identity, s.contract.Volatile = []string{"amount"}, []string{"memo"}
	s.id.Complete, s.call.Definition = effect.Digest{7}, effect.Digest{9}
	want := &effect.Approval{
		UseForMs: 60_000, Quorum: 2, Approvers: []string{"user:*"}, Host: true,
		Original: effect.Digest{7}, Complete: effect.Digest{7}, Definition: effect.Digest{9},
		Why: "policy asks a person first (policy p.yaml:3)", Identity: []string{"amount"}, Volatile: []string{"memo"},
	}
	if diff := cmp.Diff(want, s.decide().Request); diff != "" {
		t.Errorf("request (-want +got)\n%s", diff)
	}
}

func TestDecide_PinnedDefinition(t *testing.T) {
	pinned := func(d effect.Digest) func(*situation) {
		return func(s *situation) { s.contract.Definition, s.call.Definition = effect.Digest{9}, d }
	}
	grantFor := func(d effect.Digest) func(*situation) {
		return func(s *situation) {
			granted(s)
			s.facts.Grants[0].Definition = d
		}
	}
	run := effect.Verdict{Action: effect.ActInsert, Generation: 1}
	ask := effect.Verdict{Action: effect.ActRequest, Generation: 1}
	byGrant := run
	byGrant.Grant = "g1"
	for _, tt := range []struct {
		name string
		s    *situation
		want effect.Verdict
	}{
		{"the definition that policy names runs", unseen(effect.RuleWindow).and(pinned(effect.Digest{9})), run},
		{"another definition asks", unseen(effect.RuleWindow).and(pinned(effect.Digest{10})), ask},
		{"a definition that is not known asks", unseen(effect.RuleWindow).and(pinned(effect.Digest{})), ask},
		{"a grant for the other definition covers it", unseen(effect.RuleWindow).and(pinned(effect.Digest{10}), grantFor(effect.Digest{10})), byGrant},
		{"a grant for no definition covers no other", unseen(effect.RuleWindow).and(pinned(effect.Digest{10}), grantFor(effect.Digest{})), ask},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.s.decide(), cmpopts.IgnoreFields(effect.Verdict{}, "Reason", "Request")); diff != "" {
				t.Errorf("Decide (-want +got)\n%s", diff)
			}
		})
	}
	other := unseen(effect.RuleWindow).and(pinned(effect.Digest{10})).decide()
	if want := (effect.Digest{10}).String(); !strings.Contains(other.Reason, want) {
		t.Errorf("reason %q does not say what the definition is: %s", other.Reason, want)
	}
}

func TestDecide_Limits(t *testing.T) {
	full := func(s *situation) {
		s.facts.Spends = []effect.Spend{{Limit: "calls", Units: effect.Unit, Max: 3 * effect.Unit}, {Limit: "sum", Units: 5 * effect.Unit / 2, Max: 10 * effect.Unit, Within: time.Hour}}
		s.facts.Spent = []int64{2 * effect.Unit, 8 * effect.Unit}
	}
	room := func(s *situation) {
		full(s)
		s.facts.Spent = []int64{2 * effect.Unit, 15 * effect.Unit / 2}
	}
	stop := effect.Verdict{Action: effect.ActLimit}
	for _, tt := range []struct {
		name string
		s    *situation
		want effect.Verdict
	}{
		{"a call that a limit has no room for is refused", unseen(effect.RuleWindow).and(full), stop},
		{"a call that fills its limits runs", unseen(effect.RuleWindow).and(room), effect.Verdict{Action: effect.ActInsert, Generation: 1}},
		{"nobody is asked about a call that could not run", unseen(effect.RuleWindow).and(full, approve), stop},
		{"an approved call is refused where there is no room", asked().and(approvedBy("user:carol"), full), stop},
		{"the next attempt is refused where there is no room", seen(effect.RuleKey, effect.StateReleased).and(full), stop},
		{"a denied call is denied, whatever its limits", seen(effect.RuleKey, effect.StateDenied).and(full), effect.Verdict{Action: effect.ActDenied}},
		{"a replay takes nothing", seen(effect.RuleKey, effect.StateCommitted).and(full), effect.Verdict{Action: effect.ActReplay}},
		{"a round that goes on takes nothing", seen(effect.RuleWindow, effect.StateWaiting).and(full, func(s *situation) { s.continuation = "round-2" }), effect.Verdict{Action: effect.ActContinue, Attempt: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.s.decide(), cmpopts.IgnoreFields(effect.Verdict{}, "Reason", "Request")); diff != "" {
				t.Errorf("Decide (-want +got)\n%s", diff)
			}
		})
	}
	const want = "limit sum allows 10 within 1h0m0s: 8 is taken, and this call would take 2.5 more"
	if got := unseen(effect.RuleWindow).and(full).decide().Reason; got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
}

func TestDecide_ShadowDispatchesAndSaysWhatItWouldHaveDone(t *testing.T) {
	shadow := func(s *situation) { s.contract.Shadow = true }
	for _, tt := range []struct {
		name  string
		s     *situation
		would effect.Action
		next  int
	}{
		{"a question", unseen(effect.RuleWindow).and(approve), effect.ActRequest, 1},
		{"a denial of the policy", unseen(effect.RuleWindow).and(denies), effect.ActDenied, 1},
		{"a denial of a person", seen(effect.RuleWindow, effect.StateDenied), effect.ActDenied, 4},
		{"a replay", seen(effect.RuleKey, effect.StateCommitted), effect.ActReplay, 4},
		{"a join", seen(effect.RuleWindow, effect.StateClaimed), effect.ActJoin, 4},
		{"a doubt", seen(effect.RuleWindow, effect.StateInDoubt), effect.ActInDoubt, 4},
		{"a conflict", seen(effect.RuleKey, effect.StateCommitted).and(bob), effect.ActConflict, 4},
		{"an approval's use", asked().and(approvedBy("user:carol")), effect.ActApproved, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.s.and(shadow).decide()
			if got.Action != effect.ActInsert || got.Generation != tt.next || got.Would == nil || got.Would.Action != tt.would || got.Would.Reason == "" {
				t.Errorf("verdict %+v (would: %+v), want an insert of generation %d in place of %s", got, got.Would, tt.next, tt.would)
			}
		})
	}
	if got := unseen(effect.RuleWindow).and(shadow).decide(); got.Would != nil || got.Action != effect.ActInsert {
		t.Errorf("a call that runs anyway: %+v", got)
	}
}
