package proof_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// history is one random history: the log, the tool and the model of both.
type history struct {
	ctx     context.Context
	name    string
	open    func() (store.Driver, error)
	mu      sync.Mutex // guards model.now, which is the log's clock
	model   *model
	tool    tool
	running []*process
	flights []*flight
	wishes  []wish
	rounds  int
}

func (h *history) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.model.now
}

func (h *history) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.model.now = h.model.now.Add(d)
}

const processes = 2

func newHistory(t *rapid.T, ctx context.Context, name string, open func(now func() time.Time) (store.Driver, error)) *history {
	h := &history{ctx: ctx, name: name, model: &model{
		now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), hearts: map[string]time.Time{}, contracts: drawContracts(t),
	}}
	h.open = func() (store.Driver, error) { return open(h.now) }
	for range processes {
		h.running = append(h.running, h.start(t))
	}
	return h
}

func (h *history) start(t *rapid.T) *process {
	p, err := start(h.open, h.now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (h *history) close(t *rapid.T) {
	for _, p := range h.running {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// actions are what may happen; the clock goes on a little with each. What is named twice happens more often.
func (h *history) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){}
	for name, act := range map[string]func(*rapid.T){
		"call": h.call, "call more": h.call, "call often": h.call, "calls at once": h.callsAtOnce, "call and die": h.callAndDie,
		"reach": h.reach, "reach more": h.reach, "settle": h.settle, "settle more": h.settle, "settle often": h.settle,
		"deliver": h.deliver, "deliver more": h.deliver, "kill": h.kill, "quit": h.quit, "beat": h.beat, "wait": h.wait,
		"decide": h.decide, "decide more": h.decide, "grant": h.grant, "revoke": h.revoke,
		"decisions at once": h.decisionsAtOnce, "call meets decision": h.callMeetsDecision,
		"again": h.again, "resolve": h.resolve, "reap": h.reap, "new policy": h.newPolicy,
	} {
		actions[name] = func(t *rapid.T) {
			h.pass(time.Millisecond)
			act(t)
		}
	}
	actions[""] = func(*rapid.T) {}
	return actions
}

func (h *history) process(t *rapid.T) *process {
	return rapid.SampledFrom(h.running).Draw(t, "process")
}

// one draws one of those for which something holds; there must be one.
func one[T any](t *rapid.T, label string, all []T, is func(T) bool) T {
	var those []T
	for _, v := range all {
		if is(v) {
			those = append(those, v)
		}
	}
	if len(those) == 0 {
		t.Skip("no such " + label)
	}
	return those[len(those)-1-rapid.IntRange(0, min(len(those), 8)-1).Draw(t, label)]
}

// attempt is a call as it is put to the log.
type attempt struct {
	wish     *wish
	contract *effect.Contract
	sent     string
	params   *store.BeginParams
}

func (h *history) attempt(t *rapid.T, w *wish, remote bool) *attempt {
	c := h.model.contracts[w.tool]
	call := &effect.Call{
		Tenant: h.tenant(w), Principal: w.principal, Server: "payments", Tool: w.tool, Key: w.key, Run: w.run, Occurrence: w.occurrence,
		Arguments: []byte(w.payment.spell(t)), ReceivedAt: w.received,
	}
	id, err := c.Identify(call)
	if err != nil {
		t.Fatalf("Identify: %v", err)
	}
	return &attempt{w, c, string(call.Arguments), &store.BeginParams{
		Call: call, Identity: id, Contract: c, Policy: "b3:policy", Remote: remote, Continuation: w.round}}
}

func (h *history) tenant(w *wish) string { return h.name + w.tenant }

func (h *history) beatFor(t *rapid.T, p *process) {
	if err := p.driver.Beat(h.ctx, p.Owner(), hearts); err != nil {
		t.Fatalf("Beat: %v", err)
	}
	h.model.hearts[p.Owner()] = h.model.now.Add(hearts)
}

func (h *history) call(t *rapid.T) {
	w, remote := h.draw(t), rapid.IntRange(0, 3).Draw(t, "remote") == 0
	p := h.process(t)
	h.beatFor(t, p)
	a := h.attempt(t, w, remote)
	v := h.model.decide(w)
	begun, err := p.Begin(h.ctx, a.params)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	h.began(t, a, v, begun, p)
}

// began compares what the log has done with a call with what it ought to do, and does the same to the model.
func (h *history) began(t *rapid.T, a *attempt, v verdict, begun *store.Begun, p *process) {
	t.Helper()
	if begun.Verdict.Action != v.action {
		t.Fatalf("%+v is %s (%s), ought to be %s", *a.wish, begun.Verdict.Action, begun.Verdict.Reason, v.action)
	}
	if (begun.Claim != nil) != dispatches(v.action) {
		t.Fatalf("%s with claim %+v", v.action, begun.Claim)
	}
	h.judgeDispatch(t, v)
	id := ""
	if begun.Record != nil {
		id = begun.Record.ID
	}
	d := h.model.begin(a.wish, v, id, p.Owner(), a.params.Remote)
	h.compareShown(t, a, v, d, begun)
	if begun.Claim != nil {
		h.flights = append(h.flights, &flight{
			deed: d, attempt: d.attempt, claim: *begun.Claim, number: d.claim, contract: a.contract, process: p, leased: a.params.Remote,
			sent: h.sent(a, v, d, begun),
		})
	}
}

// sent is what goes out: of an approved call what was approved, else what the caller says.
func (h *history) sent(a *attempt, v verdict, d *deed, begun *store.Begun) string {
	if v.action == effect.ActApproved && d.request.runs != a.wish.payment {
		return string(begun.Record.Executed())
	}
	return a.sent
}

// compareShown checks the effect that a caller is shown.
func (h *history) compareShown(t *rapid.T, a *attempt, v verdict, d *deed, begun *store.Begun) {
	t.Helper()
	if begun.Record == nil {
		if v.action == effect.ActReplay || v.action == effect.ActJoin || v.action == effect.ActAsk {
			t.Fatalf("%s shows no effect", v.action)
		}
		return
	}
	r := begun.Record
	if r.Tenant != h.tenant(a.wish) || r.Principal != a.wish.principal && !a.contract.ShareTenant {
		t.Fatalf("%s for %+v shows an effect of %s in %s", v.action, *a.wish, r.Principal, r.Tenant)
	}
	if d != nil && r.ID != d.id {
		t.Fatalf("%s for %+v shows effect %s, ought to show %s", v.action, *a.wish, r.ID, d.id)
	}
	if v.action == effect.ActReplay && string(r.Answer.Body) != string(d.answer) {
		t.Fatalf("the replay is %s, the answer was %s", r.Answer.Body, d.answer)
	}
	if v.action == effect.ActApproved && !says(string(r.Executed()), d.request.runs) {
		t.Fatalf("approved is %+v, what runs is %s", d.request.runs, r.Executed())
	}
}

// callsAtOnce makes the same call several times at once: the first decides on the others.
func (h *history) callsAtOnce(t *rapid.T) {
	w := h.draw(t)
	for _, p := range h.running {
		h.beatFor(t, p)
	}
	const callers = 4
	var wait sync.WaitGroup
	attempts, begun, errs := [callers]*attempt{}, [callers]*store.Begun{}, [callers]error{}
	for i := range callers {
		attempts[i] = h.attempt(t, w, false)
		wait.Go(func() { begun[i], errs[i] = h.running[i%len(h.running)].Begin(h.ctx, attempts[i].params) })
	}
	wait.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatalf("Begin: %v", err)
	}
	// The model takes them in an order in which each is right, if there is one.
	for left := []int{0, 1, 2, 3}; len(left) > 0; {
		v := h.model.decide(w)
		at := slices.IndexFunc(left, func(i int) bool { return begun[i].Verdict.Action == v.action && h.isNext(v, begun[i]) })
		if at < 0 {
			t.Fatalf("%+v: of %d calls at once one ought to be %s, they are %s", *w, callers, v.action, actionsOf(begun[:]))
		}
		i := left[at]
		left = slices.Delete(left, at, at+1)
		h.began(t, attempts[i], v, begun[i], h.running[i%len(h.running)])
	}
}

// isNext reports whether a call whose verdict is about a deed that is there is about the right one.
func (h *history) isNext(v verdict, begun *store.Begun) bool {
	return v.deed == nil || v.next || begun.Record == nil || begun.Record.ID == v.deed.id
}

func actionsOf(begun []*store.Begun) (all []string) {
	for _, b := range begun {
		all = append(all, fmt.Sprintf("%s (%s)", b.Verdict.Action, b.Verdict.Reason))
	}
	return all
}

// callAndDie is a call whose process is killed when the database has decided, and before it knows.
func (h *history) callAndDie(t *rapid.T) {
	w, p := h.draw(t), h.process(t)
	h.beatFor(t, p)
	a := h.attempt(t, w, false)
	v := h.model.decide(w)
	p.driver.doomed.Store(true)
	if _, err := p.Begin(h.ctx, a.params); !errors.Is(err, errDead) {
		t.Fatalf("Begin of a killed process: %v", err)
	}
	h.began(t, a, v, p.driver.last, p)
	if dispatches(v.action) {
		h.flights[len(h.flights)-1].gone = true
	}
	h.bury(t, p)
}

func (h *history) kill(t *rapid.T) { h.bury(t, h.process(t)) }

// bury kills a process and starts another in its place.
func (h *history) bury(t *rapid.T, p *process) {
	p.kill()
	h.replace(t, p)
}

// quit ends a process in order: what it still holds is in doubt at once.
func (h *history) quit(t *rapid.T) {
	p := h.process(t)
	if err := p.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	held := slices.ContainsFunc(h.flights, func(f *flight) bool { return f.claim.Owner == p.Owner() && !f.leased })
	if held {
		delete(h.model.hearts, p.Owner())
	}
	h.replace(t, p)
}

func (h *history) replace(t *rapid.T, p *process) {
	for _, f := range h.flights {
		if f.process == p {
			f.process = nil
		}
	}
	h.running[slices.Index(h.running, p)] = h.start(t)
}

func (h *history) beat(t *rapid.T) { h.beatFor(t, h.process(t)) }

// wait lets time pass. Clocks also go back, as those of machines do.
func (h *history) wait(t *rapid.T) {
	h.pass(rapid.SampledFrom([]time.Duration{
		-5 * time.Minute, time.Second, 5 * time.Minute, window + time.Minute, lease + time.Minute, hearts, timeout, decideFor,
	}).Draw(t, "pause"))
}

// reach is the moment in which a dispatch takes effect at the tool, which is later than one may think.
func (h *history) reach(t *rapid.T) {
	h.tool.do(one(t, "dispatch", h.flights, func(f *flight) bool { return !f.gone && f.reached == 0 }))
}

func (h *history) settle(t *rapid.T) {
	f := one(t, "dispatch", h.flights, func(f *flight) bool { return f.process != nil && !f.ended })
	h.rounds++
	o := f.end(rapid.SampledFrom([]string{"result", "result", "lost", "unsent", "error", "tool error"}).Draw(t, "end"), h.rounds)
	if o.Kind != effect.OutcomeLost {
		f.gone, f.ended = true, true
	}
	moves := h.model.settle(f.deed, f.number, f.attempt, f.claim.Owner, o)
	r, err := f.process.Settle(h.ctx, f.claim, f.contract, *o)
	if err != nil {
		t.Fatalf("Settle: %v", err)
	}
	f.told = moves && f.deed.state == effect.StateFailed
	h.compare(t, f.deed, r)
}

// deliver tells the log that an answer arrived at its agent, or that it did not after all.
func (h *history) deliver(t *rapid.T) {
	d := one(t, "answered effect", h.model.deeds, func(d *deed) bool {
		return d.state == effect.StateCommitted && !d.changed.After(h.model.now) // not while the clock is set back
	})
	p := h.process(t)
	if d.arrived.IsZero() {
		p.Delivered(h.tenant(&d.wish), d.id, h.model.now)
		d.arrived = h.model.now
	} else {
		p.Withdraw(h.tenant(&d.wish), d.id, d.arrived)
		d.arrived = time.Time{}
	}
	h.awaitDelivery(t, d)
}

// awaitDelivery waits until what was noted is in the log, where other processes see it too.
func (h *history) awaitDelivery(t *rapid.T, d *deed) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		r := h.record(t, d)
		if r.Delivered == !d.arrived.IsZero() && (!r.Delivered || r.ArrivedAt.Equal(d.arrived)) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("effect %s: delivered %t at %s, want %s", d.id, r.Delivered, r.ArrivedAt, d.arrived)
		}
	}
}

func (h *history) record(t *rapid.T, d *deed) *effect.Record {
	r, err := h.running[0].driver.Effect(h.ctx, h.tenant(&d.wish), d.id)
	if err != nil {
		t.Fatalf("read effect %s: %v", d.id, err)
	}
	return r
}

// seen is what of an effect model and log must agree on.
type seen struct {
	Recorded, State effect.State
	Attempt         int
	Answer, Round   string
	Delivered       bool
}

func (h *history) compare(t *rapid.T, d *deed, r *effect.Record) {
	t.Helper()
	want := seen{d.state, h.model.state(d), d.attempt, string(d.answer), d.round, !d.arrived.IsZero()}
	got := seen{r.State, r.StateAt(h.now()), r.Attempt, string(r.Answer.Body), r.Continuation, r.Delivered}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("effect %s of %+v (-want +got)\n%s", d.id, d.wish, diff)
	}
}

func says(arguments string, p payment) bool {
	for spelling := range spellings {
		if arguments == p.spelt(spelling) {
			return true
		}
	}
	return false
}

const spellings = 3

func (p payment) spell(t *rapid.T) string {
	return p.spelt(rapid.IntRange(0, spellings-1).Draw(t, "spelling"))
}

func (p payment) spelt(spelling int) string {
	switch spelling {
	case 1:
		return fmt.Sprintf(`{"ref":%d,"to":%q,"amount":%d}`, p.Ref, p.To, p.Amount)
	case 2:
		return fmt.Sprintf("{ \"amount\" : %d,\n\"\\u0074o\":%q, \"ref\":%d}", p.Amount, p.To, p.Ref)
	}
	return fmt.Sprintf(`{"amount":%d,"to":%q,"ref":%d}`, p.Amount, p.To, p.Ref)
}
