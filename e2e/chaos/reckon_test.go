package chaos_test

import (
	"strings"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effect"
)

// compare says where the callers' answers, the log and the ledger do not agree.
func (l *load) compare(all []*effect.Record) {
	l.t.Helper()
	charged := l.tool.charges(l.t)
	for n, ids := range charged {
		if len(ids) > 1 {
			l.t.Errorf("call %d took effect %d times: %v", n, len(ids), ids)
		}
	}
	blocked := l.blocked()
	logged := map[int]bool{}
	counts := map[string]int{}
	for _, r := range all {
		n := numberOf(l.t, r.Arguments)
		logged[n] = true
		l.compareRecord(r, n, charged[n], blocked[n], counts)
	}
	for n := range charged {
		if !logged[n] {
			l.t.Errorf("call %d took effect and is not in the log", n)
		}
	}
	for _, got := range l.told {
		l.compareTold(got, charged[got.n], counts)
	}
	l.t.Logf("%d calls of %d identities, %d charges: %v", len(l.told), len(logged), len(charged), counts)
}

func (l *load) compareRecord(r *effect.Record, n int, ids []string, blocked bool, counts map[string]int) {
	counts["log: "+string(r.State)]++
	switch r.State {
	case effect.StateCommitted:
		if len(ids) != 1 || !strings.Contains(string(r.Answer.Body), `"`+ids[0]+`"`) {
			l.t.Errorf("call %d is committed with %s, the tool did %v", n, r.Answer.Body, ids)
		}
	case effect.StateFailed, effect.StateReleased:
		if len(ids) != 0 {
			l.t.Errorf("call %d is %s, the tool did %v", n, r.State, ids)
		}
	default: // in doubt, or a claim whose time is over
		switch {
		case l.hasEnded(n, chain.Lost):
			counts["in doubt: the answer was lost"]++
		case len(l.tool.endsOf(n)) >= r.Attempt: // else its last attempt was not sent
			l.t.Errorf("call %d is in doubt (%s), although its dispatches ended %v", n, r.State, l.tool.endsOf(n))
		case blocked:
			counts["in doubt: claimed, and its caller was told that it was not made"]++
		default:
			l.t.Errorf("call %d is in doubt (%s) although nobody lost anything", n, r.State)
		}
	}
}

func (l *load) compareTold(got told, ids []string, counts map[string]int) {
	counts["told: "+got.outcome]++
	bad := false
	switch got.outcome {
	case wasCharged:
		bad = len(ids) != 1 || ids[0] != got.charge
	case wasRefused:
		bad = len(ids) != 0
	case "unavailable":
		bad = got.end != chain.Unsent
	case wasBlocked, "in_doubt", "in_progress":
	default:
		bad = true
	}
	if bad {
		l.t.Errorf("call %d was told %s %s (its own dispatch: %q), the tool did %v", got.n, got.outcome, got.charge, got.end, ids)
	}
}

// blocked are the numbers of calls that were not made because the log did not answer.
func (l *load) blocked() map[int]bool {
	numbers := map[int]bool{}
	for _, got := range l.told {
		if got.outcome == wasBlocked {
			numbers[got.n] = true
		}
	}
	return numbers
}

// lost are the charges of the calls whose answer was lost, by number.
func (l *load) lost() map[int]int {
	charged := l.tool.charges(l.t)
	lost := map[int]int{}
	for n := 1; n <= int(l.numbers.Load()); n++ {
		if l.hasEnded(n, chain.Lost) {
			lost[n] = len(charged[n])
		}
	}
	return lost
}

// compareAgain says what should not have run when every call was made once more.
func (l *load) compareAgain(lost map[int]int, all []*effect.Record) {
	l.t.Helper()
	charged := l.tool.charges(l.t)
	for n, before := range lost {
		if len(charged[n]) != before {
			l.t.Errorf("call %d was lost, and ran when it was made again", n)
		}
	}
	l.compare(all)
}
