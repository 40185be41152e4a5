package proof_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/undolog/undolog/effect"
)

// payment is what a call says. Ref is volatile: no part of what the call is known by.
type payment struct {
	Amount int
	To     string
	Ref    int
}

// wish is a call as an agent makes it.
type wish struct {
	tenant, principal, tool string
	payment                 payment
	key, run, occurrence    string
	round                   string    // the continuation that it carries
	received                time.Time // zero: not known
}

// rule is how the call is recognised.
func (w *wish) rule() effect.Rule {
	switch {
	case w.key != "":
		return effect.RuleKey
	case w.run != "":
		return effect.RuleRun
	case w.principal != "":
		return effect.RuleWindow
	}
	return effect.RuleNone
}

// identity is what the call is recognised by; empty: by nothing.
func (w *wish) identity() string {
	switch w.rule() {
	case effect.RuleKey:
		return fmt.Sprintf("%s key %s %s %q", w.tenant, w.key, w.tool, w.occurrence)
	case effect.RuleRun:
		return fmt.Sprintf("%s run %s %s", w.tenant, w.run, w.what())
	}
	return w.window()
}

// window is what an equal call without key and run is recognised by; empty: by nothing.
func (w *wish) window() string {
	if w.principal == "" {
		return ""
	}
	return fmt.Sprintf("%s of %s %s", w.tenant, w.principal, w.what())
}

func (w *wish) what() string {
	return fmt.Sprintf("%s %d %s %q", w.tool, w.payment.Amount, w.payment.To, w.occurrence)
}

// deed is one effect as the model has it: what the log ought to say of it.
type deed struct {
	id      string
	n       int // place among all, and in the log
	wish    wish
	state   effect.State // as it was last written
	attempt int
	claim   int // number of the last claim, among all
	begun   int // number of the claim with which the attempt began
	owner   string
	lease   time.Time // zero: the owner's heart
	timeout time.Time
	changed time.Time

	answer  []byte
	isError bool
	arrived time.Time // of the answer; zero: not known to have
	round   string    // on which it waits, or by which it went on
	rounds  []string  // all it has ever asked for

	request *request
	again   bool              // one more run is allowed
	taken   map[account]spend // from limits
}

// request is a question to people.
type request struct {
	whatever    bool // asked whatever the contract says
	asked, runs payment
	quorum      int
	approvers   []string
	useFor      time.Duration
	opened      time.Time
	until       time.Time // to decide
	use         time.Time // until when it may be used; zero: not approved
	votes       []string
}

type account struct{ limit, subject string }

type spend struct {
	units int64
	at    time.Time
}

type standing struct { // a standing grant
	id        string
	tenant    string
	tool      string
	by        string
	principal string   // empty: any
	exact     *payment // nil: any call of the tool
	until     time.Time
	revoked   bool
}

// model is what the design says of a history, with none of the log's code: a list of deeds and a clock.
type model struct {
	now       time.Time
	deeds     []*deed
	hearts    map[string]time.Time // until when each owner lives
	claims    int
	grants    []*standing
	contracts map[string]*effect.Contract // by tool
}

// latest is the newest deed of an identity.
func (m *model) latest(identity string) *deed {
	for _, d := range slices.Backward(m.deeds) {
		if identity != "" && d.wish.identity() == identity {
			return d
		}
	}
	return nil
}

// state is where a deed stands now, clocks included.
func (m *model) state(d *deed) effect.State {
	over := func(t time.Time) bool { return !m.now.Before(t) }
	switch d.state {
	case effect.StateClaimed:
		lease := d.lease
		if lease.IsZero() {
			lease = m.hearts[d.owner]
		}
		if over(lease) || over(d.timeout) {
			return effect.StateInDoubt
		}
	case effect.StateAwaitingApproval:
		switch r := d.request; {
		case r.use.IsZero() && over(r.until):
			return effect.StateExpired
		case !r.use.IsZero() && over(r.use):
			return effect.StateVoid
		}
	}
	return d.state
}

// verdict is what ought to happen to a call.
type verdict struct {
	action effect.Action
	deed   *deed // which it is about; nil: a new one
	next   bool  // another deed of the same identity
	uses   *deed // whose further run is used up
	asks   bool  // people are to be asked whatever the contract says
}

func isFree(c *effect.Contract) bool { return c.Tier == effect.TierIdempotent }

// decide is what ought to happen to a call now.
func (m *model) decide(w *wish) verdict {
	c := m.contracts[w.tool]
	v := m.recognise(w, c)
	if named := c.Asking.Quorum > 1 || len(c.Asking.Approvers) > 0; dispatches(v.action) && (v.uses == nil || named) {
		v = m.ask(w, c, v)
	}
	if c.Deny != "" && v.action != effect.ActContinue && (dispatches(v.action) || v.action == effect.ActRequest || v.action == effect.ActAsk) {
		return verdict{action: effect.ActDenied, deed: v.deed}
	}
	if v.action != effect.ActContinue && (dispatches(v.action) || v.action == effect.ActRequest) && !m.hasRoom(w, c) {
		return verdict{action: effect.ActLimit, deed: v.deed}
	}
	return v
}

func dispatches(a effect.Action) bool {
	switch a {
	case effect.ActInsert, effect.ActReclaim, effect.ActContinue, effect.ActApproved:
		return true
	}
	return false
}

// recognise says what the record of the call means for it.
func (m *model) recognise(w *wish, c *effect.Contract) verdict {
	d := m.latest(w.identity())
	if d == nil {
		return m.first(w, c)
	}
	if byHandle := w.rule() != effect.RuleWindow; byHandle {
		another := d.wish.payment.Amount != w.payment.Amount || d.wish.payment.To != w.payment.To
		if another || d.wish.principal != w.principal && !c.ShareTenant {
			return verdict{action: effect.ActConflict, deed: d}
		}
	}
	switch m.state(d) {
	case effect.StateClaimed:
		return verdict{action: effect.ActJoin, deed: d}
	case effect.StateInDoubt:
		if isFree(c) {
			return m.once(d)
		}
		return verdict{action: effect.ActInDoubt, deed: d}
	case effect.StateWaiting:
		return m.goOn(w, d)
	case effect.StateReleased, effect.StateFailed, effect.StateExpired, effect.StateVoid:
		return m.once(d)
	case effect.StateDenied:
		return verdict{action: effect.ActDenied, deed: d}
	case effect.StateAwaitingApproval:
		return m.asked(w, c, d)
	}
	return m.repeated(w, c, d)
}

// once more the same deed: nothing of it was applied, or it may be applied twice.
func (m *model) once(d *deed) verdict {
	return verdict{action: effect.ActReclaim, deed: d, asks: d.request != nil && d.request.whatever}
}

func (m *model) first(w *wish, c *effect.Contract) verdict {
	v := verdict{action: effect.ActInsert}
	like := m.likeness(w, c)
	switch {
	case like == nil || c.Lookalike != effect.RepeatAsk:
	case like.again:
		v.uses = like
	default:
		v.asks = true
	}
	return v
}

// likeness is the newest equal call under another handle that may have been applied.
func (m *model) likeness(w *wish, c *effect.Contract) *deed {
	if w.window() == "" {
		return nil
	}
	var plain *deed
	for _, d := range slices.Backward(m.deeds) {
		if d.wish.window() != w.window() || d.wish.identity() == w.identity() || !m.stands(d, c) {
			continue
		}
		if d.wish.rule() != effect.RuleWindow {
			return d
		}
		if plain == nil {
			plain = d
		}
	}
	return plain
}

func (m *model) stands(d *deed, c *effect.Contract) bool {
	switch d.state {
	case effect.StateClaimed, effect.StateWaiting, effect.StateInDoubt:
		return true
	case effect.StateAwaitingApproval:
		return m.state(d) == effect.StateAwaitingApproval
	case effect.StateCommitted:
		return d.changed.After(m.now.Add(-c.Window))
	}
	return false
}

func (m *model) goOn(w *wish, d *deed) verdict {
	switch {
	case w.round == "":
	case w.round == d.round:
		return verdict{action: effect.ActContinue, deed: d}
	case !slices.Contains(d.rounds, w.round):
		return verdict{action: effect.ActConflict, deed: d}
	}
	return verdict{action: effect.ActReplay, deed: d}
}

// repeated is a call whose deed is done.
func (m *model) repeated(w *wish, c *effect.Contract, d *deed) verdict {
	anew := verdict{action: effect.ActInsert, deed: d, next: true}
	replay := verdict{action: effect.ActReplay, deed: d}
	if d.again {
		anew.uses = d
		return anew
	}
	if w.rule() != effect.RuleWindow {
		return replay
	}
	if m.now.Sub(d.changed) >= c.Window {
		return anew
	}
	if unseen := d.arrived.IsZero() || !w.received.IsZero() && w.received.Before(d.arrived); unseen {
		return replay
	}
	if m.hasDoneElse(d) || isFree(c) {
		return anew
	}
	how := c.Repeat
	if d.isError {
		how = c.RepeatError
	}
	switch how {
	case effect.RepeatReplay:
		return replay
	case effect.RepeatAsk:
		anew.asks = true
	}
	return anew
}

// hasDoneElse reports whether the caller of a deed has begun something else on the server since.
func (m *model) hasDoneElse(d *deed) bool {
	return slices.ContainsFunc(m.deeds, func(o *deed) bool {
		same := o.wish.tenant == d.wish.tenant && o.wish.principal == d.wish.principal
		return same && o.begun > d.begun && o.wish.window() != d.wish.window()
	})
}

// ask holds a call back that people must allow first.
func (m *model) ask(w *wish, c *effect.Contract, v verdict) verdict {
	if v.action != effect.ActInsert && v.action != effect.ActReclaim || !v.asks && !c.Approve {
		return v
	}
	if !v.asks && m.isGranted(w, c) {
		return v
	}
	if w.rule() == effect.RuleNone {
		return verdict{action: effect.ActDenied}
	}
	v.action, v.uses = effect.ActRequest, nil
	return v
}

// asked is a call that waits for people.
func (m *model) asked(w *wish, c *effect.Contract, d *deed) verdict {
	r := d.request
	if w.round != "" && d.attempt == 1 {
		return verdict{action: effect.ActConflict, deed: d} // nothing was sent that could have asked for it
	}
	run := verdict{action: effect.ActApproved, deed: d}
	wait := verdict{action: effect.ActAsk, deed: d}
	if !r.use.IsZero() {
		if (c.Approve || r.whatever) && m.votes(c, r) < c.Asking.Quorum {
			return verdict{action: effect.ActRequest, deed: d, asks: r.whatever}
		}
		return run
	}
	asShown := r.runs == r.asked && r.asked == w.payment && !r.whatever
	if asShown && (!c.Approve || m.isGranted(w, c)) {
		return run
	}
	return wait
}

// votes counts the approvals of those who may still give them.
func (m *model) votes(c *effect.Contract, r *request) int {
	n := 0
	for _, by := range r.votes {
		if may(c.Asking.Approvers, by) {
			n++
		}
	}
	return n
}

func may(approvers []string, by string) bool {
	return len(approvers) == 0 || slices.Contains(approvers, by)
}

// isGranted reports whether as many as must approve, of those who may, have granted the call.
func (m *model) isGranted(w *wish, c *effect.Contract) bool {
	people := map[string]bool{}
	for _, g := range m.grants {
		active := !g.revoked && (g.until.IsZero() || m.now.Before(g.until))
		named := g.tenant == w.tenant && g.tool == w.tool && (g.principal == "" || g.principal == w.principal)
		if active && named && (g.exact == nil || *g.exact == w.payment) && may(c.Asking.Approvers, g.by) {
			people[g.by] = true
		}
	}
	return len(people) >= c.Asking.Quorum
}

// hasRoom reports whether every limit has room for the call.
func (m *model) hasRoom(w *wish, c *effect.Contract) bool {
	for _, l := range c.Limits {
		a, units := takes(&l, w)
		var taken int64
		for _, d := range m.deeds {
			if s, has := d.taken[a]; has && d.wish.tenant == w.tenant && s.at.After(m.now.Add(-l.Within)) && m.counts(d, w) {
				taken += s.units
			}
		}
		if taken+units > l.Max {
			return false
		}
	}
	return true
}

// counts reports whether what a deed took from a limit is in the way of a call: not when nothing was applied,
// and not when it is the call's own that goes on.
func (m *model) counts(d *deed, w *wish) bool {
	switch d.state {
	case effect.StateCommitted:
		return true
	case effect.StateClaimed, effect.StateWaiting, effect.StateInDoubt:
		return d != m.latest(w.identity())
	}
	return false
}

func takes(l *effect.Limit, w *wish) (account, int64) {
	a := account{limit: l.Name}
	switch l.Per {
	case effect.PerRun:
		a.subject = "run " + w.run
		if w.run == "" {
			a.subject = "nobody's run " + w.principal
		}
	case effect.PerPrincipal:
		a.subject = "principal " + w.principal
	}
	if l.Units != nil {
		return a, int64(w.payment.Amount) * effect.Unit
	}
	return a, effect.Unit
}
