package proof_test

import (
	"errors"
	"time"

	"pgregory.net/rapid"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

var people = []string{"user:ann", "user:bob", "user:cyd"}

// decide is a person who decides on a call that waits, or once did.
func (h *history) decide(t *rapid.T) {
	d := one(t, "request", h.model.deeds, func(d *deed) bool { return d.request != nil })
	dec := effect.Decision{
		Kind: rapid.SampledFrom([]effect.DecisionKind{
			effect.DecideApprove, effect.DecideApprove, effect.DecideApprove, effect.DecideApprove, effect.DecideDeny, effect.DecideEdit,
			effect.DecideExtend, effect.DecideReopen, effect.DecideWithdraw,
		}).Draw(t, "decision"),
		By: rapid.SampledFrom(people).Draw(t, "who"), Reason: "because", Via: "cli",
	}
	h.ruled(t, d, &dec)
}

// ruled makes a decision, in the log and in the model.
func (h *history) ruled(t *rapid.T, d *deed, dec *effect.Decision) {
	edit := d.request.asked
	switch dec.Kind {
	case effect.DecideEdit:
		edit = h.drawPayment(t)
		dec.Arguments = []byte(edit.spell(t))
	case effect.DecideExtend:
		dec.Extend = rapid.SampledFrom([]time.Duration{time.Hour, 2 * decideFor}).Draw(t, "more")
	}
	want := h.model.rule(d, dec.Kind, dec.By, edit, dec.Extend)
	r, err := h.process(t).Decide(h.ctx, &store.DecideParams{Tenant: h.tenant(&d.wish), ID: d.id, Decision: *dec})
	if got := rulingOf(err); got != want {
		t.Fatalf("%s %s effect %s (%+v): %s (%v), ought to be %s", dec.By, dec.Kind, d.id, d.wish, got, err, want)
	}
	if err == nil {
		h.compare(t, d, r)
	}
}

func rulingOf(err error) ruling {
	if _, is := errors.AsType[*effect.DecidedError](err); is {
		return tooLate
	}
	if _, is := errors.AsType[*effect.ForbiddenError](err); is {
		return forbidden
	}
	if err != nil {
		return ruling(err.Error())
	}
	return taken
}

func (h *history) grant(t *rapid.T) {
	w := h.draw(t)
	g := effect.Grant{
		Tenant: h.tenant(w), Kind: effect.GrantTool, Server: "payments", Tool: w.tool, Reason: "for today",
		By: rapid.SampledFrom(people).Draw(t, "who"),
	}
	s := &standing{tenant: w.tenant, tool: w.tool, by: g.By}
	if rapid.Bool().Draw(t, "for one") {
		g.Principal, s.principal = w.principal, w.principal
	}
	if rapid.Bool().Draw(t, "exact") {
		complete, err := effect.DigestOf([]byte(w.payment.spell(t)))
		if err != nil {
			t.Fatal(err)
		}
		g.Kind, g.Complete, s.exact = effect.GrantExact, complete, &w.payment
	}
	if rapid.Bool().Draw(t, "ends") {
		s.until = h.model.now.Add(time.Hour)
		g.ExpiresAt = s.until
	}
	granted, err := h.process(t).Grant(h.ctx, g)
	if err != nil {
		t.Fatalf("Grant: %v", err)
	}
	s.id = granted.ID
	h.model.grants = append(h.model.grants, s)
}

func (h *history) revoke(t *rapid.T) {
	s := one(t, "grant", h.model.grants, func(*standing) bool { return true })
	_, revoked, err := h.process(t).Revoke(h.ctx, h.name+s.tenant, s.id, people[1], "enough")
	if err != nil || revoked == s.revoked {
		t.Fatalf("Revoke = %t, %v of a grant that is revoked: %t", revoked, err, s.revoked)
	}
	s.revoked = true
}

// again is a person who lets a call run once more.
func (h *history) again(t *rapid.T) {
	d := one(t, "effect", h.model.deeds, func(*deed) bool { return true })
	err := h.process(t).Again(h.ctx, store.AgainParams{Tenant: h.tenant(&d.wish), ID: d.id, By: people[0]})
	_, refused := errors.AsType[*store.ConflictError](err)
	if open := d.state.IsOpen(); refused != open || err != nil && !refused {
		t.Fatalf("Again of effect %s, which is %s: %v", d.id, d.state, err)
	}
	d.again = d.again || err == nil
}

// resolve is a person who has looked at the tool, and says what is so.
func (h *history) resolve(t *rapid.T) {
	h.resolved(t, one(t, "effect", h.model.deeds, func(*deed) bool { return true }))
}

func (h *history) resolved(t *rapid.T, d *deed) {
	state := h.model.state(d)
	settles := state == effect.StateInDoubt || state == effect.StateWaiting
	to := effect.StateFailed
	for _, f := range h.flights {
		if f.deed != d || f.attempt != d.attempt {
			continue
		}
		if f.reached > 0 {
			to = effect.StateCommitted
		}
		f.gone = f.gone || settles // what was looked for and not found does not come any more
	}
	r, err := h.process(t).Resolve(h.ctx, store.ResolveParams{Tenant: h.tenant(&d.wish), ID: d.id, To: to, By: people[0], Reason: "seen"})
	if _, refused := errors.AsType[*store.ConflictError](err); refused == settles || err != nil && !refused {
		t.Fatalf("Resolve of effect %s, which is %s: %v", d.id, state, err)
	}
	if err != nil {
		return
	}
	h.model.move(d, to)
	d.round = ""
	if to == effect.StateCommitted {
		d.answer, d.isError = r.Answer.Body, false
	}
	h.compare(t, d, r)
}

// reap writes down what the clocks have ended.
func (h *history) reap(t *rapid.T) {
	p := h.process(t)
	for _, tenant := range tenants {
		open, err := p.List(h.ctx, &store.Filter{Tenant: h.name + tenant, Open: true, Writes: true, Limit: 1000})
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		for _, r := range open {
			h.reapOne(t, p, r)
		}
	}
}

func (h *history) reapOne(t *rapid.T, p *process, r *effect.Record) {
	d := h.deed(r.ID)
	if d == nil {
		t.Fatalf("the log has effect %s, which nobody began", r.ID)
	}
	var err error
	switch state := h.model.state(d); {
	case d.state == state:
		return
	case state == effect.StateInDoubt:
		_, err = p.Lose(h.ctx, r)
		h.model.move(d, state)
		d.round = ""
	default:
		_, err = p.Expire(h.ctx, r.Tenant, r.ID)
		h.model.move(d, state)
	}
	if err != nil {
		t.Fatalf("reap effect %s: %v", r.ID, err)
	}
	h.compare(t, d, h.record(t, d))
}

func (h *history) deed(id string) *deed {
	for _, d := range h.model.deeds {
		if d.id == id {
			return d
		}
	}
	return nil
}
