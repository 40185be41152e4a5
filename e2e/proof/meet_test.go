package proof_test

import (
	"maps"
	"sync"

	"pgregory.net/rapid"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// decision is what one person decides, with what it needs.
type decision struct {
	effect.Decision
	edit payment
}

func (h *history) drawDecision(t *rapid.T) *decision {
	dec := &decision{edit: h.drawPayment(t), Decision: effect.Decision{
		Kind: rapid.SampledFrom([]effect.DecisionKind{
			effect.DecideApprove, effect.DecideApprove, effect.DecideDeny, effect.DecideEdit, effect.DecideWithdraw, effect.DecideReopen,
		}).Draw(t, "decision"),
		By: rapid.SampledFrom(people).Draw(t, "who"), Reason: "because", Via: "cli",
	}}
	if dec.Kind == effect.DecideEdit {
		dec.Arguments = []byte(dec.edit.spell(t))
	}
	return dec
}

func (h *history) put(p *process, d *deed, dec *decision) error {
	_, err := p.Decide(h.ctx, &store.DecideParams{Tenant: h.tenant(&d.wish), ID: d.id, Decision: dec.Decision})
	return err
}

// saved is a deed as it was, to see what would become of it.
type saved struct {
	m      *model
	d      *deed
	was    deed
	claims int
}

func (m *model) save(d *deed) *saved { return &saved{m, d, *d, m.claims} }

func (s *saved) restore() {
	*s.d, s.m.claims = s.was, s.claims
	s.d.taken = maps.Clone(s.was.taken)
}

// decisionsAtOnce are two people who decide at the same moment: as if one had been first.
func (h *history) decisionsAtOnce(t *rapid.T) {
	d := one(t, "request", h.model.deeds, func(d *deed) bool { return d.request != nil })
	decs := [2]*decision{h.drawDecision(t), h.drawDecision(t)}
	var errs [2]error
	var wait sync.WaitGroup
	for i := range decs {
		wait.Go(func() { errs[i] = h.put(h.running[i], d, decs[i]) })
	}
	wait.Wait()
	was := h.model.save(d)
	for first := range decs {
		was.restore()
		matches := true
		for _, i := range []int{first, 1 - first} {
			want := h.model.rule(d, decs[i].Kind, decs[i].By, decs[i].edit, 0)
			matches = matches && rulingOf(errs[i]) == want
		}
		if matches && h.isLike(t, d) {
			return
		}
	}
	t.Fatalf("%s by %s and %s by %s at once: %v and %v", decs[0].Kind, decs[0].By, decs[1].Kind, decs[1].By, errs[0], errs[1])
}

// callMeetsDecision is a call that comes at the moment in which a person decides on it: as if one had been first.
func (h *history) callMeetsDecision(t *rapid.T) {
	d := one(t, "request", h.model.deeds, func(d *deed) bool { return d.request != nil && h.model.latest(d.wish.identity()) == d })
	w := d.wish
	dec, a := h.drawDecision(t), h.attempt(t, &w, false)
	caller, decider := h.running[0], h.running[1]
	h.beatFor(t, caller)
	var begun *store.Begun
	var callErr, decideErr error
	var wait sync.WaitGroup
	wait.Go(func() { begun, callErr = caller.Begin(h.ctx, a.params) })
	wait.Go(func() { decideErr = h.put(decider, d, dec) })
	wait.Wait()
	if callErr != nil {
		t.Fatalf("Begin: %v", callErr)
	}
	if h.meets(d, &w, dec, begun, caller, rulingOf(decideErr)) {
		h.began(t, a, h.model.decide(&w), begun, caller)
		h.model.rule(d, dec.Kind, dec.By, dec.edit, 0)
		return
	}
	if got := h.model.rule(d, dec.Kind, dec.By, dec.edit, 0); got != rulingOf(decideErr) {
		t.Fatalf("%s by %s beside a call: %v, ought to be %s", dec.Kind, dec.By, decideErr, got)
	}
	h.began(t, a, h.model.decide(&w), begun, caller)
}

// meets reports whether it is as if the call had been first.
func (h *history) meets(d *deed, w *wish, dec *decision, begun *store.Begun, caller *process, got ruling) bool {
	was, deeds := h.model.save(d), len(h.model.deeds)
	defer func() {
		was.restore()
		h.model.deeds = h.model.deeds[:deeds]
	}()
	was.restore()
	v := h.model.decide(w)
	if v.action != begun.Verdict.Action || v.uses != nil && v.uses != d {
		return false
	}
	h.model.begin(w, v, "", caller.Owner(), false)
	return h.model.rule(d, dec.Kind, dec.By, dec.edit, 0) == got
}

// isLike reports whether the log has a deed as the model has it, with what people have said of it.
func (h *history) isLike(t *rapid.T, d *deed) bool {
	r := h.record(t, d)
	voted := len(r.Approval.Votes) == len(d.request.votes) && r.Approval.IsApproved() == !d.request.use.IsZero()
	return r.State == d.state && voted && says(string(r.Executed()), d.request.runs)
}
