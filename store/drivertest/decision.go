package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

func isForbidden(err error) bool {
	_, ok := errors.AsType[*effect.ForbiddenError](err)
	return ok
}

func decidedBy(err error) *effect.DecidedError {
	decided, _ := errors.AsType[*effect.DecidedError](err)
	return decided
}

// testDecision is about who may decide what, one after the other.
func testDecision(t *testing.T, h Harness) {
	t.Run("a quorum is of different people", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		c := contract(asks, quorum(2))
		r := p.asked(charge(), c)
		p.approve(r)
		_, err := q.Decide(t.Context(), decision(r, effect.DecideApprove, "user:u"))
		if decided := decidedBy(err); decided == nil || !decided.Same || decided.By != "user:u" {
			t.Errorf("the same person again: %v", err)
		}
		p.wants(effect.ActAsk, charge(), c)
		q.decide(decision(r, effect.DecideApprove, "user:v"))
		if votes := p.wants(effect.ActApproved, charge(), c).Record.Approval.Votes; len(votes) != 2 {
			t.Errorf("votes %+v", votes)
		}
	})
	t.Run("nobody decides on their own call, and only who may", func(t *testing.T) {
		p := newWorld(t, h).process()
		r := p.asked(charge(by("user:u")), contract(asks, func(c *effect.Contract) { c.Asking.Approvers = []string{"user:u", "user:v*"} }))
		for _, by := range []string{"user:u", "user:other", "agent:b", ""} {
			if _, err := p.Decide(t.Context(), decision(r, effect.DecideApprove, by)); !isForbidden(err) {
				t.Errorf("%q approves: %v", by, err)
			}
		}
		p.decide(decision(r, effect.DecideApprove, "user:v1"))
	})
	t.Run("a denied call is denied until somebody reopens it", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		c := contract(asks)
		r := p.asked(charge(), c)
		deny := decision(r, effect.DecideDeny, "user:u")
		deny.Reason = "not today"
		q.decide(deny)
		begun := p.wants(effect.ActDenied, charge(), c)
		if begun.Verdict.Reason != "not today" || begun.Record.By != "user:u" {
			t.Errorf("denied by %s: %s", begun.Record.By, begun.Verdict.Reason)
		}
		_, err := p.Decide(t.Context(), decision(r, effect.DecideApprove, "user:v"))
		if decided := decidedBy(err); decided == nil || decided.Kind != effect.DecideDeny || decided.By != "user:u" || decided.Reason != "not today" {
			t.Errorf("approve a denied call: %v", err)
		}
		p.decide(decision(r, effect.DecideReopen, "user:v"))
		q.wants(effect.ActAsk, charge(), c)
		q.approve(r)
		p.wants(effect.ActApproved, charge(), c)
	})
	t.Run("an approval that was not used can be taken back", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks)
		r := p.asked(charge(), c)
		if _, err := p.Decide(t.Context(), decision(r, effect.DecideWithdraw, "user:u")); !isForbidden(err) {
			t.Errorf("withdraw what is not approved: %v", err)
		}
		p.approve(r)
		p.decide(decision(r, effect.DecideWithdraw, "user:u"))
		p.wants(effect.ActDenied, charge(), c)
	})
	t.Run("a decision is on what was shown", func(t *testing.T) {
		p := newWorld(t, h).process()
		r := p.asked(charge(), contract(asks))
		for name, change := range map[string]func(*store.DecideParams){
			"other arguments": func(d *store.DecideParams) { d.Complete[0] = 1 },
			"another request": func(d *store.DecideParams) { d.Request = "another" },
		} {
			d := decision(r, effect.DecideApprove, "user:u")
			change(d)
			if _, err := p.Decide(t.Context(), d); !isForbidden(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		d := decision(r, effect.DecideApprove, "user:u")
		d.Complete, d.Request = r.Approval.Complete, r.Approval.ID
		p.decide(d)
	})
	t.Run("what runs, or never asked, is not decided on", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks)
		r := p.asked(charge(), c)
		p.approve(r)
		p.wants(effect.ActApproved, charge(), c)
		for _, kind := range []effect.DecisionKind{effect.DecideApprove, effect.DecideDeny, effect.DecideWithdraw, effect.DecideReopen} {
			_, err := p.Decide(t.Context(), decision(r, kind, "user:v"))
			if decided := decidedBy(err); decided == nil || decided.State != effect.StateClaimed || decided.By != "user:u" {
				t.Errorf("%s what runs: %v", kind, err)
			}
		}
		plain := p.begin(charge(tool("plain")), contract()).Record
		if _, err := p.Decide(t.Context(), decision(plain, effect.DecideDeny, "user:v")); !isForbidden(err) {
			t.Errorf("deny what never asked: %v", err)
		}
	})
	t.Run("the id of another tenant's is not found", func(t *testing.T) {
		p := newWorld(t, h).process()
		r := p.asked(charge(of("tenant-2")), contract(asks))
		d := decision(r, effect.DecideApprove, "user:u")
		d.Tenant = "default"
		if _, err := p.Decide(t.Context(), d); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Decide = %v, want ErrNotFound", err)
		}
	})
	t.Run("nobody moves what awaits approval as an owner", func(t *testing.T) {
		p := newWorld(t, h).process()
		r := p.asked(charge(), contract(asks))
		for _, state := range []effect.State{effect.StateClaimed, effect.StateDenied, effect.StateAwaitingApproval} {
			_, err := p.driver.Append(t.Context(), "default", &effect.Transition{Effect: r.ID, Ordinal: 1, Attempt: 1, State: state, Owner: p.Owner(), Approval: r.Approval})
			if !isConflict(err) {
				t.Errorf("moved to %s: %v", state, err)
			}
		}
		if n := len(p.show("default", r.ID).Transitions); n != 1 {
			t.Errorf("%d moves, want 1", n)
		}
	})
}

// testEdit is about arguments that a person changes before approving them.
func testEdit(t *testing.T, h Harness) {
	edit := func(r *effect.Record, arguments string) *store.DecideParams {
		d := decision(r, effect.DecideEdit, "user:e")
		d.Arguments = []byte(arguments)
		return d
	}
	const edited = ` {"amount": 9, "to":"alice", "id":9007199254740993,"html":"<&>"} `
	t.Run("an edit voids the votes, and what is approved then runs, byte for byte", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		c := contract(asks, quorum(2))
		r := p.asked(charge(), c)
		p.approve(r)
		p.decide(edit(r, edited))
		q.approve(r)
		q.wants(effect.ActAsk, charge(), c)
		q.decide(decision(r, effect.DecideApprove, "user:v"))
		begun := w.process().wants(effect.ActApproved, charge(), c)
		if got := string(begun.Record.Executed()); got != edited {
			t.Errorf("executed %q", got)
		}
		if got := string(begun.Record.Arguments); got != `{"amount":10,"to":"alice"}` {
			t.Errorf("asked with %q", got)
		}
		shown := q.show("default", r.ID)
		assertMoves(t, shown.Transitions, effect.StateAwaitingApproval, effect.StateAwaitingApproval, effect.StateAwaitingApproval,
			effect.StateAwaitingApproval, effect.StateAwaitingApproval, effect.StateClaimed)
		var executed []string
		for _, m := range shown.Transitions {
			executed = append(executed, string(m.Approval.Arguments))
		}
		if diff := cmp.Diff([]string{"", "", edited, edited, edited, edited}, executed); diff != "" {
			t.Errorf("edited arguments in the history (-want +got)\n%s", diff)
		}
		if shown.Record.Approval.Votes[0].By != "user:u" || len(shown.Transitions[2].Approval.Votes) != 0 {
			t.Errorf("votes %+v", shown.Record.Approval.Votes)
		}
		if diff := cmp.Diff(begun.Record, shown.Record, ignoreHeart); diff != "" {
			t.Errorf("Begin and Show (-begun +shown)\n%s", diff)
		}
	})
	t.Run("an edit back to what was asked is none", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks)
		r := p.asked(charge(), c)
		p.decide(edit(r, `{"amount":9}`))
		p.decide(edit(r, `{"to":"alice","amount":10}`))
		p.approve(r)
		if r := p.wants(effect.ActApproved, charge(), c).Record; r.Approval.IsEdited() || string(r.Executed()) != string(r.Arguments) {
			t.Errorf("executed %s", r.Executed())
		}
	})
	t.Run("an edited call that is under way, asked about or has run is refused", func(t *testing.T) {
		for name, other := range map[string]func(p *process, call *effect.Call){
			"under way":             func(p *process, call *effect.Call) { p.begin(call, contract()) },
			"has run":               func(p *process, call *effect.Call) { p.done(call, contract()) },
			"is asked about itself": func(p *process, call *effect.Call) { p.asked(call, contract(asks)) },
		} {
			for which, call := range map[string]*effect.Call{"plainly": charge(args(`{"amount":9}`)), "under a key": charge(args(`{"amount":9}`), key("k"))} {
				p := newWorld(t, h).process()
				c := contract(asks)
				r := p.asked(charge(), c)
				other(p, call)
				if _, err := p.Decide(t.Context(), edit(r, `{"amount":9.0}`)); !isForbidden(err) || !strings.Contains(err.Error(), "twice") {
					t.Errorf("what %s %s: %v", name, which, err)
				}
				p.wants(effect.ActAsk, charge(), c)
			}
		}
	})
	t.Run("an edited call is looked up with its occurrence", func(t *testing.T) {
		p := newWorld(t, h).process()
		second := func(c *effect.Call) { c.Occurrence = "2" }
		r := p.asked(charge(second), contract(asks))
		p.done(charge(args(`{"amount":9}`)), contract())
		p.decide(edit(r, `{"amount":9}`)) // the first is another call
		p.done(charge(args(`{"amount":8}`), second), contract())
		if _, err := p.Decide(t.Context(), edit(r, `{"amount":8}`)); !isForbidden(err) {
			t.Errorf("edit to what has run: %v", err)
		}
	})
	t.Run("an edited call that runs before its approval is not approved any more", func(t *testing.T) {
		p := newWorld(t, h).process()
		r := p.asked(charge(), contract(asks))
		p.decide(edit(r, `{"amount":9}`))
		p.done(charge(args(`{"amount":9}`)), contract())
		if _, err := p.Decide(t.Context(), decision(r, effect.DecideApprove, "user:u")); !isForbidden(err) {
			t.Errorf("approve it: %v", err)
		}
		p.decide(decision(r, effect.DecideDeny, "user:u"))
	})
	t.Run("what was not applied does not stand in the way", func(t *testing.T) {
		p := newWorld(t, h).process()
		c := contract(asks)
		r := p.asked(charge(), c)
		p.settle(p.begin(charge(args(`{"amount":9}`)), contract()).Claim, contract(), unsent)
		p.decide(edit(r, `{"amount":9}`))
		p.approve(r)
		p.wants(effect.ActApproved, charge(), c)
	})
	t.Run("no arguments are no edit", func(t *testing.T) {
		p := newWorld(t, h).process()
		r := p.asked(charge(), contract(asks))
		for _, bad := range []string{``, `[]`, `null`, `{"a":1,"a":2}`, `{`} {
			_, err := p.Decide(t.Context(), edit(r, bad))
			if _, ok := errors.AsType[*effect.InvalidError](err); !ok {
				t.Errorf("edit to %q: %v", bad, err)
			}
		}
	})
	t.Run("pruning takes edited arguments away, and leaves who decided what", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		c := contract(asks)
		r := p.asked(charge(), c)
		open := p.asked(charge(tool("open")), c)
		for _, r := range []*effect.Record{r, open} {
			p.decide(edit(r, edited))
			p.approve(r)
		}
		was := p.settle(p.wants(effect.ActApproved, charge(), c).Claim, c, rpcError(`{"code":-32602,"message":"x"}`))
		w.clock.advance(window)
		if n, err := p.Prune(t.Context(), &store.Pruning{Before: w.clock.Now()}); err != nil || n.Effects != 1 {
			t.Errorf("Prune = %+v, %v", n, err)
		}
		if n, err := p.Prune(t.Context(), &store.Pruning{Before: w.clock.Now()}); err != nil || n.Effects != 0 {
			t.Errorf("Prune again = %+v, %v", n, err)
		}
		shown := p.show("default", r.ID)
		for _, m := range shown.Transitions {
			if len(m.Approval.Arguments) != 0 {
				t.Errorf("move %d has arguments %s", m.Ordinal, m.Approval.Arguments)
			}
		}
		want, got := *was.Approval, *shown.Record.Approval
		want.Arguments, got.Arguments = nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("approval (-want +got)\n%s", diff)
		}
		if got := p.show("default", open.ID).Record.Approval.Arguments; string(got) != edited {
			t.Errorf("what is open has arguments %q", got)
		}
		// The call comes again: what it is asked about is there.
		second := p.asked(charge(), c)
		p.approve(second)
		if got := string(p.wants(effect.ActApproved, charge(), c).Record.Executed()); got != `{"amount":10,"to":"alice"}` {
			t.Errorf("executed %q", got)
		}
	})
}

// testDecisionRace is about decisions, claims and clocks at the same time.
func testDecisionRace(t *testing.T, h Harness) {
	t.Run("of 200 decisions that exclude each other one wins, and the others are told", func(t *testing.T) {
		w := newWorld(t, h)
		processes := []*process{w.process(), w.process(), w.process(), w.process()}
		r := processes[0].asked(charge(), contract(asks))
		kinds := []effect.DecisionKind{effect.DecideApprove, effect.DecideDeny}
		won := make(chan *effect.Record, 200)
		told := make(chan *effect.DecidedError, 200)
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range 200 {
			all.Go(func() {
				<-start
				record, err := processes[i%4].Decide(context.Background(), decision(r, kinds[i/4%2], fmt.Sprintf("user:%d", i)))
				switch decided := decidedBy(err); {
				case err == nil:
					won <- record
				case decided != nil:
					told <- decided
				default:
					t.Errorf("Decide: %v", err)
				}
			})
		}
		close(start)
		all.Wait()
		if len(won) != 1 || len(told) != 199 {
			t.Fatalf("%d won and %d were told", len(won), len(told))
		}
		last := (<-won).Approval.Last
		for range 199 {
			if d := <-told; d.By != last.By || !d.At.Equal(last.At) || d.Kind != last.Kind {
				t.Errorf("told %v, want %s by %s", d, last.Kind, last.By)
			}
		}
		if n := len(processes[1].show("default", r.ID).Transitions); n != 2 {
			t.Errorf("%d moves, want 2", n)
		}
	})
	t.Run("of many voters each counts once, up to the quorum", func(t *testing.T) {
		w := newWorld(t, h)
		processes := []*process{w.process(), w.process()}
		c := contract(asks, quorum(5))
		r := processes[0].asked(charge(), c)
		var counted atomic.Int32
		race(processes, func(p *process, i int) {
			_, err := p.Decide(context.Background(), decision(r, effect.DecideApprove, fmt.Sprintf("user:%d", i/2)))
			if err == nil {
				counted.Add(1)
			} else if decidedBy(err) == nil {
				t.Errorf("Decide: %v", err)
			}
		})
		votes := processes[1].wants(effect.ActApproved, charge(), c).Record.Approval.Votes
		voters := map[string]bool{}
		for _, v := range votes {
			voters[v.By] = true
		}
		if counted.Load() != 5 || len(votes) != 5 || len(voters) != 5 {
			t.Errorf("%d counted, votes %+v", counted.Load(), votes)
		}
	})
	t.Run("an approval is used once by 200 calls", func(t *testing.T) {
		w := newWorld(t, h)
		processes := []*process{w.process(), w.process(), w.process(), w.process()}
		c := contract(asks)
		processes[0].approve(processes[0].asked(charge(), c))
		bp := params(t, charge(), c)
		var claims, joins atomic.Int32
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				begun, err := processes[i%4].Begin(context.Background(), bp)
				switch {
				case err != nil:
					t.Errorf("Begin: %v", err)
				case begun.Claim != nil:
					claims.Add(1)
				case begun.Verdict.Action == effect.ActJoin:
					joins.Add(1)
				}
			})
		}
		all.Wait()
		if claims.Load() != 1 || joins.Load() != 199 {
			t.Errorf("%d claims and %d joins", claims.Load(), joins.Load())
		}
	})
	t.Run("of many first calls one asks", func(t *testing.T) {
		w := newWorld(t, h)
		processes := []*process{w.process(), w.process()}
		bp := params(t, charge(), contract(asks))
		var requests, waits atomic.Int32
		race(processes, func(p *process, _ int) {
			begun, err := p.Begin(context.Background(), bp)
			switch {
			case err != nil:
				t.Errorf("Begin: %v", err)
			case begun.Verdict.Action == effect.ActRequest:
				requests.Add(1)
			case begun.Verdict.Action == effect.ActAsk:
				waits.Add(1)
			}
		})
		if requests.Load() != 1 || waits.Load() != racers-1 {
			t.Errorf("%d requests, %d wait", requests.Load(), waits.Load())
		}
	})
	t.Run("an approval is taken back or used, never both", func(t *testing.T) {
		w := newWorld(t, h)
		processes := []*process{w.process(), w.process()}
		c := contract(asks)
		for n := range 1 + Scale(50)/5 {
			call := charge(numbered(n))
			r := processes[0].asked(call, c)
			processes[0].approve(r)
			bp := params(t, call, c)
			var claims, withdrawn atomic.Int32
			race(processes, func(p *process, i int) {
				if i < racers/2 {
					if begun, err := p.Begin(context.Background(), bp); err != nil {
						t.Errorf("Begin: %v", err)
					} else if begun.Claim != nil {
						claims.Add(1)
					}
					return
				}
				if _, err := p.Decide(context.Background(), decision(r, effect.DecideWithdraw, "user:v")); err == nil {
					withdrawn.Add(1)
				} else if decidedBy(err) == nil {
					t.Errorf("Decide: %v", err)
				}
			})
			if claims.Load()+withdrawn.Load() != 1 {
				t.Fatalf("%d claims and %d withdrawals", claims.Load(), withdrawn.Load())
			}
		}
	})
	t.Run("who waits, here and in another process, hears of the decision, and one of them runs", func(t *testing.T) {
		w := newWorld(t, h)
		p, q := w.process(), w.process()
		c := contract(asks)
		r := p.asked(charge(), c)
		heard := make(chan *effect.Record, 2)
		for _, p := range []*process{p, q} {
			go func() {
				record, err := p.AwaitDecision(context.Background(), "default", r.ID)
				if err != nil {
					t.Errorf("AwaitDecision: %v", err)
				}
				heard <- record
			}()
		}
		w.process().approve(r)
		for range 2 {
			if record := <-heard; record == nil || !record.Approval.IsApproved() {
				t.Errorf("heard %+v", record)
			}
		}
		p.wants(effect.ActApproved, charge(), c)
		q.wants(effect.ActJoin, charge(), c)
	})
	t.Run("who waits hears of a denial, and of the clock", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		denied, silent := p.asked(charge(), contract(asks)), p.asked(charge(tool("other")), contract(asks))
		heard := make(chan effect.State, 2)
		wait := func(id string) {
			record, err := p.AwaitDecision(context.Background(), "default", id)
			if err != nil {
				t.Errorf("AwaitDecision: %v", err)
				heard <- ""
				return
			}
			heard <- record.StateAt(w.clock.Now())
		}
		go wait(denied.ID)
		w.process().decide(decision(denied, effect.DecideDeny, "user:u"))
		if state := <-heard; state != effect.StateDenied {
			t.Errorf("heard of %s", state)
		}
		go wait(silent.ID)
		w.clock.advance(silent.Approval.DecideUntil.Sub(w.clock.Now()))
		if state := <-heard; state != effect.StateExpired {
			t.Errorf("heard of %s", state)
		}
	})
}
