package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// told is what a gateway learned of the answer of an effect, a time after it was given.
type told struct {
	after     time.Duration
	withdrawn bool
}

func (d told) tell(l *store.Log, r *effect.Record) {
	if at := r.ChangedAt.Add(d.after); d.withdrawn {
		l.Withdraw(r.Tenant, r.ID, at)
	} else {
		l.Delivered(r.Tenant, r.ID, at)
	}
}

// testDeliveries tells of arrivals in every order that matters. A process decides on them before they are
// written, others afterwards, and both decide the same.
func testDeliveries(t *testing.T, h Harness) {
	const first, second = time.Second, 2 * time.Second
	for name, tc := range map[string]struct {
		told []told
		want effect.Action
	}{
		"none":                                 {nil, effect.ActReplay},
		"arrived":                              {[]told{{first, false}}, effect.ActInsert},
		"arrived at once":                      {[]told{{0, false}}, effect.ActInsert},
		"before it was given":                  {[]told{{-time.Millisecond, false}}, effect.ActReplay},
		"arrived twice":                        {[]told{{first, false}, {second, false}}, effect.ActInsert},
		"withdrawn":                            {[]told{{first, false}, {first, true}}, effect.ActReplay},
		"withdrawn, then arrived":              {[]told{{first, false}, {first, true}, {second, false}}, effect.ActInsert},
		"withdrawn twice":                      {[]told{{first, false}, {first, true}, {second, false}, {second, true}}, effect.ActReplay},
		"another one withdrawn":                {[]told{{first, false}, {second, true}}, effect.ActInsert},
		"an earlier answer's arrival, then it": {[]told{{-time.Second, false}, {first, false}}, effect.ActInsert},
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("unwritten", func(t *testing.T) { testUnwritten(t, h, tc.told, tc.want) })
			for cut := 1; cut < len(tc.told); cut++ {
				testPartlyWritten(t, h, tc.told, cut, tc.want)
			}
		})
	}
	t.Run("what is known of one tenant's effect is not known of another's", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.unhurried()
		r := p.done(charge(), contract(repeat(effect.RepeatRun)))
		p.Delivered("tenant-2", r.ID)
		p.wants(effect.ActReplay, charge(), contract(repeat(effect.RepeatRun)))
	})
	t.Run("the arrival of one attempt's answer is not that of the next", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.unhurried()
		c := contract(onError(effect.StateFailed), repeat(effect.RepeatRun))
		r := p.settle(p.begin(charge(), c).Claim, c, toolError(`{"isError":true}`))
		p.Delivered(r.Tenant, r.ID)
		again := p.wants(effect.ActReclaim, charge(), c)
		if again.Record.Delivered || !again.Record.ArrivedAt.IsZero() {
			t.Error("the new attempt's answer has arrived before it was given")
		}
		w.clock.advance(time.Second)
		p.settle(again.Claim, c, result(`{}`))
		p.wants(effect.ActReplay, charge(), c)
	})
}

// unhurried is a process that writes nothing by itself.
func (w *world) unhurried() *process {
	w.t.Helper()
	return w.processWith(&store.Options{Now: w.clock.Now, TTL: ttl, FlushEvery: time.Hour})
}

// testUnwritten has a process decide before anything is written, and another one after it was.
func testUnwritten(t *testing.T, h Harness, all []told, want effect.Action) {
	w := newWorld(t, h)
	c := contract(repeat(effect.RepeatRun))
	p, q := w.unhurried(), w.unhurried()
	r := p.done(charge(), c)
	for _, d := range all {
		d.tell(p.Log, r)
	}
	w.clock.advance(3 * time.Second)
	if want == effect.ActReplay {
		p.wants(want, charge(), c) // and writes nothing, so that the other process can be asked the same
	}
	q.wants(effect.ActReplay, charge(), c)
	if q.show(r.Tenant, r.ID).Record.Delivered {
		t.Error("a delivery was written by a decision")
	}
	if want != effect.ActReplay {
		if begun := p.wants(want, charge(), c); begun.Record.Generation != 2 {
			t.Errorf("generation %d, want 2", begun.Record.Generation)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if got := q.show(r.Tenant, r.ID).Record.Delivered; got != (want == effect.ActInsert) {
		t.Errorf("after the flush, Delivered = %v", got)
	}
}

// testPartlyWritten writes the first deliveries and decides with the others still unwritten, and then with
// all of them known twice, as they are while they are being written.
func testPartlyWritten(t *testing.T, h Harness, all []told, cut int, want effect.Action) {
	w := newWorld(t, h)
	c := contract(repeat(effect.RepeatRun))
	p := w.process()
	r := p.done(charge(), c)
	deliveries := make([]store.Delivery, len(all))
	for i, d := range all {
		deliveries[i] = store.Delivery{Tenant: r.Tenant, Effect: r.ID, At: r.ChangedAt.Add(d.after), Withdrawn: d.withdrawn}
	}
	w.clock.advance(3 * time.Second)
	write := func(d []store.Delivery) {
		t.Helper()
		if err := p.driver.Write(t.Context(), &store.Notes{Deliveries: d}); err != nil {
			t.Fatal(err)
		}
	}
	known := func(unwritten []store.Delivery) {
		t.Helper()
		bp := params(t, charge(), contract()) // delivered or not it is replayed, and nothing is written
		begun, err := p.driver.Begin(context.Background(), &store.Begin{
			ID: uuid.NewString(), Call: bp.Call, Identity: bp.Identity, Contract: bp.Contract, Owner: p.Owner(), TTL: ttl, Unwritten: unwritten,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := begun.Verdict.Repeat; got != (want == effect.ActInsert) {
			t.Errorf("with %d of %d written and %d known: %s, repeat %v", cut, len(all), len(unwritten), begun.Verdict.Action, got)
		}
	}
	write(deliveries[:cut])
	known(deliveries[cut:])
	known(deliveries)
	write(deliveries[cut:])
	known(nil)
	known(deliveries)
}
