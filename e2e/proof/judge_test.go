package proof_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/undolog/undolog/effect"
)

// judgeDispatch fails a dispatch for which there is no leave, whatever the model says of it.
func (h *history) judgeDispatch(t *rapid.T, v verdict) {
	t.Helper()
	if v.deed == nil || v.next || v.action != effect.ActReclaim && v.action != effect.ActApproved && v.action != effect.ActContinue {
		return
	}
	for _, f := range h.flights {
		if f.deed != v.deed || isFree(f.contract) {
			continue
		}
		switch {
		case f.reached > 0 && !f.told:
			t.Fatalf("effect %s has happened (line %d) and is dispatched again: %s", f.deed.id, f.reached, v.action)
		case f.reached == 0 && !f.gone:
			t.Fatalf("effect %s is on its way and is dispatched again: %s", f.deed.id, v.action)
		}
	}
}

// judge says where the log, the ledger and the model differ when all has happened, has people end what is open, and
// looks once more.
func (h *history) judge(t *rapid.T) {
	h.compareAll(t)
	h.comparePending(t)
	for _, d := range h.model.deeds {
		h.endByPeople(t, d)
	}
	h.pass(timeout) // and clocks end the rest
	for _, d := range h.model.deeds {
		h.endByPeople(t, d)
	}
	h.comparePending(t)
	for _, d := range h.model.deeds {
		if h.model.isOpen(d) {
			t.Errorf("nobody could end effect %s: it is %s", d.id, h.model.state(d))
		}
	}
	h.compareAll(t)
	h.judgeLedger(t)
}

func (h *history) compareAll(t *rapid.T) {
	for _, d := range h.model.deeds {
		h.compare(t, d, h.record(t, d))
	}
	for _, tenant := range tenants {
		all, err := h.running[0].List(h.ctx, filter(h.name+tenant))
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		for _, r := range all {
			if h.deed(r.ID) == nil {
				t.Errorf("the log has effect %s, which nobody began", r.ID)
			}
		}
	}
}

// comparePending checks that people are shown all that waits for them, and nothing else.
func (h *history) comparePending(t *rapid.T) {
	for _, tenant := range tenants {
		pending, err := h.running[0].Pending(h.ctx, h.name+tenant, 1000)
		if err != nil {
			t.Fatalf("Pending: %v", err)
		}
		var got, want []string
		for _, r := range pending {
			got = append(got, r.ID)
		}
		for _, d := range h.model.deeds {
			if d.wish.tenant == tenant && h.model.isOpen(d) {
				want = append(want, d.id)
			}
		}
		slices.Sort(got) // of calls at once the model does not know which was first
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("pending of %s are %v, want %v", tenant, got, want)
		}
	}
}

// endByPeople is what people can do about an effect that is open.
func (h *history) endByPeople(t *rapid.T, d *deed) {
	switch h.model.state(d) {
	case effect.StateInDoubt, effect.StateWaiting:
		h.resolved(t, d)
	case effect.StateAwaitingApproval:
		kind := effect.DecideDeny
		if !d.request.use.IsZero() {
			kind = effect.DecideWithdraw
		}
		h.ruled(t, d, &effect.Decision{Kind: kind, By: people[0], Reason: "the day is over", Via: "cli"})
	}
}

// judgeLedger compares what happened at the tool with what the log says.
func (h *history) judgeLedger(t *rapid.T) {
	happened := map[*deed]int{}
	for _, l := range h.tool.ledger {
		happened[l.deed]++
		r := h.record(t, l.deed) // fails where the effect has no record
		if r.Attempt < l.attempt {
			t.Errorf("effect %s happened in attempt %d, the log knows %d", r.ID, l.attempt, r.Attempt)
		}
	}
	for _, d := range h.model.deeds {
		allowed := 1
		for _, f := range h.flights {
			if f.deed == d && f.told {
				allowed++ // the tool said that nothing was applied, and the policy believes it
			}
		}
		if c := h.model.contracts[d.wish.tool]; happened[d] > allowed && !isFree(c) {
			t.Errorf("effect %s happened %d times, allowed are %d", d.id, happened[d], allowed)
		}
		if r := h.record(t, d); r.State == effect.StateCommitted && happened[d] == 0 && !d.isError {
			t.Errorf("effect %s is committed and never happened", d.id)
		}
	}
}
