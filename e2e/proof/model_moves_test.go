package proof_test

import (
	"slices"
	"time"

	"github.com/undolog/undolog/effect"
)

// begin does to the model what a verdict does, for a call that process owner makes. It returns the deed that the
// verdict is about; nil: none.
func (m *model) begin(w *wish, v verdict, id, owner string, remote bool) *deed {
	d := v.deed
	if d == nil || v.next {
		if v.action != effect.ActInsert && v.action != effect.ActRequest {
			return d
		}
		d = &deed{id: id, n: len(m.deeds), wish: *w, attempt: 1, taken: map[account]spend{}}
		m.deeds = append(m.deeds, d)
	} else if v.action == effect.ActReclaim || v.action == effect.ActRequest && m.state(d) != effect.StateAwaitingApproval {
		d.attempt++
	}
	switch v.action {
	case effect.ActRequest:
		m.question(d, w, v.asks)
	case effect.ActInsert, effect.ActReclaim, effect.ActApproved, effect.ActContinue:
		m.claim(d, w, v.action, owner, remote)
		if v.uses != nil {
			v.uses.again = false
		}
	}
	return d
}

func (m *model) question(d *deed, w *wish, whatever bool) {
	asking := m.contracts[w.tool].Asking
	d.request = &request{
		whatever: whatever, asked: w.payment, runs: w.payment, quorum: asking.Quorum, approvers: asking.Approvers,
		useFor: asking.UseFor, opened: m.now, until: m.now.Add(asking.DecideFor),
	}
	m.move(d, effect.StateAwaitingApproval)
	d.round = ""
}

func (m *model) claim(d *deed, w *wish, action effect.Action, owner string, remote bool) {
	c := m.contracts[w.tool]
	m.claims++
	d.claim = m.claims
	m.move(d, effect.StateClaimed)
	d.owner, d.timeout, d.lease = owner, m.now.Add(c.Timeout), time.Time{}
	if remote {
		d.lease = m.now.Add(c.Lease)
	}
	if action == effect.ActContinue {
		return // the attempt that was allowed goes on
	}
	d.begun, d.round = m.claims, ""
	if action == effect.ActReclaim {
		d.request = nil
	}
	for _, l := range c.Limits {
		a, units := takes(&l, w)
		d.taken[a] = spend{units, m.now}
	}
}

func (m *model) move(d *deed, to effect.State) {
	d.state, d.changed, d.arrived = to, m.now, time.Time{}
}

// settle is what an outcome does to a deed, told by who made claim number claim as owner. It reports whether it
// moves the deed.
func (m *model) settle(d *deed, claim, attempt int, owner string, o *effect.Outcome) bool {
	to := m.end(d, o)
	mine := d.state == effect.StateClaimed && d.claim == claim
	late := d.attempt == attempt && d.owner == owner && slices.Contains(stillTo[d.state], to)
	if !mine && !late {
		return false
	}
	m.move(d, to)
	d.round = o.Continuation
	if o.Continuation != "" {
		d.rounds = append(d.rounds, o.Continuation)
	}
	if o.Answer.Kind != effect.AnswerNone {
		d.answer, d.isError = o.Answer.Body, o.Answer.IsError || o.Answer.Kind == effect.AnswerError
	}
	return true
}

// stillTo are the ends that an attempt may come to after its claim was over.
var stillTo = map[effect.State][]effect.State{
	effect.StateInDoubt: {effect.StateCommitted, effect.StateFailed},
	effect.StateWaiting: {effect.StateCommitted, effect.StateFailed, effect.StateInDoubt, effect.StateReleased},
}

func (m *model) end(d *deed, o *effect.Outcome) effect.State {
	switch {
	case o.Kind == effect.OutcomeLost:
		return effect.StateInDoubt
	case o.Kind == effect.OutcomeUnsent:
		return effect.StateReleased
	case o.Kind == effect.OutcomeWaiting:
		return effect.StateWaiting
	case string(o.Answer.Body) == refusal:
		return effect.StateFailed
	case o.Answer.IsError:
		return m.contracts[d.wish.tool].OnToolError
	}
	return effect.StateCommitted
}

// ruling is what became of a person's decision.
type ruling string

const (
	taken     ruling = "taken"
	tooLate   ruling = "too late"
	forbidden ruling = "forbidden"
)

// rule is a person's decision on a deed, of which edit is another payment.
func (m *model) rule(d *deed, kind effect.DecisionKind, by string, edit payment, more time.Duration) ruling {
	if r := m.mayRule(d, kind, by); r != taken {
		return r
	}
	r := *d.request
	switch state := d.state; kind {
	case effect.DecideApprove:
		if r.runs != r.asked && m.isOnRecord(d, r.runs) {
			return forbidden
		}
		if r.votes = append(slices.Clone(r.votes), by); len(r.votes) >= r.quorum {
			r.use = m.now.Add(r.useFor)
		}
	case effect.DecideEdit:
		if edit != r.asked && m.isOnRecord(d, edit) {
			return forbidden
		}
		r.runs, r.votes = edit, nil
	case effect.DecideExtend:
		r.until = m.now.Add(more)
	case effect.DecideDeny, effect.DecideWithdraw:
		m.move(d, effect.StateDenied)
	case effect.DecideReopen:
		r.until, r.opened, r.use, r.votes = m.now.Add(r.until.Sub(r.opened)), m.now, time.Time{}, nil
		if state == effect.StateDenied {
			m.move(d, effect.StateAwaitingApproval)
		}
	}
	d.request = &r
	m.move(d, d.state)
	return taken
}

func (m *model) mayRule(d *deed, kind effect.DecisionKind, by string) ruling {
	r := d.request
	if r == nil || !may(r.approvers, by) {
		return forbidden
	}
	state := m.state(d)
	if kind == effect.DecideReopen {
		if d.state == effect.StateDenied {
			return taken
		}
		return tooLate
	}
	approved := !r.use.IsZero()
	switch withdraw := kind == effect.DecideWithdraw; {
	case state != effect.StateAwaitingApproval, approved && !withdraw:
		return tooLate
	case withdraw && !approved:
		return forbidden
	case kind == effect.DecideApprove && slices.Contains(r.votes, by):
		return tooLate
	}
	return taken
}

// isOnRecord reports whether the call that a deed was changed into is there beside it, and may have been applied.
func (m *model) isOnRecord(d *deed, edited payment) bool {
	as := d.wish
	as.payment = edited
	if as.window() == "" || as.window() == d.wish.window() {
		return false
	}
	return slices.ContainsFunc(m.deeds, func(o *deed) bool {
		switch m.state(o) {
		case effect.StateReleased, effect.StateFailed, effect.StateExpired, effect.StateVoid, effect.StateDenied:
			return false
		}
		return o.wish.window() == as.window()
	})
}

// isOpen reports whether somebody has to do something about a deed.
func (m *model) isOpen(d *deed) bool {
	switch m.state(d) {
	case effect.StateInDoubt, effect.StateWaiting, effect.StateAwaitingApproval:
		return true
	}
	return false
}
