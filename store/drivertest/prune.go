package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// testPrune takes payloads away and asks whether anything happens again.
func testPrune(t *testing.T, h Harness) {
	prune := func(p *process, before time.Time, want int64) {
		t.Helper()
		if done, err := p.Prune(t.Context(), &store.Pruning{Before: before}); err != nil || done.Effects != want || (done.Bytes > 0) != (want > 0) {
			t.Errorf("Prune = %+v, %v; want %d effects", done, err, want)
		}
	}
	t.Run("a pruned effect still answers its call, and says that the answer is gone", func(t *testing.T) {
		for name, outcome := range map[string]effect.Outcome{
			"a result": result(`{"content":[]}`), "an isError result": toolError(`{"isError":true}`), "a JSON-RPC error": rpcError(`{"code":-32050,"message":"x"}`),
		} {
			w := newWorld(t, h)
			p := w.process()
			claim := p.begin(charge(key("k")), contract()).Claim
			was := p.settle(claim, contract(), outcome)
			w.clock.advance(time.Hour)
			prune(p, w.clock.Now(), 1)
			prune(p, w.clock.Now(), 0)
			for _, q := range []*process{p, w.process()} {
				r := q.wants(effect.ActReplay, charge(key("k")), contract()).Record
				if r.Answer.Kind != was.Answer.Kind || r.Answer.IsError != was.Answer.IsError || !strings.Contains(string(r.Answer.Body), "no longer kept") {
					t.Errorf("%s: replayed %+v with %s", name, r.Answer, r.Answer.Body)
				}
				if len(r.Arguments) != 0 {
					t.Errorf("%s: arguments %s", name, r.Arguments)
				}
				q.wants(effect.ActConflict, charge(key("k"), args(`{"amount":11}`)), contract())
			}
		}
	})
	t.Run("what is open, or younger, keeps everything", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		claim := p.begin(charge(args(`{"n":1}`)), contract()).Claim
		waiting := p.begin(charge(args(`{"n":2}`)), contract()).Claim
		p.settle(waiting, contract(), waits("c"))
		doubt := p.begin(charge(args(`{"n":3}`)), contract()).Claim
		p.settle(doubt, contract(), lost)
		w.clock.advance(time.Hour)
		young := p.done(charge(args(`{"n":4}`)), contract())
		prune(p, w.clock.Now(), 0)
		for _, id := range []string{claim.Effect, waiting.Effect, doubt.Effect, young.ID} {
			if r := p.show("default", id).Record; len(r.Arguments) == 0 {
				t.Errorf("effect %s, which is %s, has no arguments", id, r.State)
			}
		}
	})
	t.Run("every tenant's, reads too, and more than a step of them", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.done(charge(of("tenant-1")), contract())
		p.done(charge(of("tenant-2")), contract())
		at := w.clock.Now()
		for range 1100 {
			p.RecordRead(&effect.Record{Tenant: "tenant-2", Server: "s", Tool: "t", Rule: effect.RuleNone, State: effect.StateCommitted, CreatedAt: at, ChangedAt: at})
		}
		p.flushed(w)
		w.clock.advance(time.Hour)
		prune(p, w.clock.Now(), 1102)
		for _, tenant := range []string{"tenant-1", "tenant-2"} {
			for _, r := range p.list(&store.Filter{Tenant: tenant, Limit: 2000}) {
				if len(r.Arguments) != 0 {
					t.Fatalf("effect %s of %s has arguments", r.ID, tenant)
				}
			}
		}
	})
	t.Run("one tenant's, or one server's, and nothing when it is only counted", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.done(charge(of("tenant-1")), contract())
		p.done(charge(of("tenant-2")), contract())
		p.done(charge(of("tenant-2"), func(c *effect.Call) { c.Server = "warehouse" }), contract())
		w.clock.advance(time.Hour)
		count := func(of store.Pruning, want int64) {
			t.Helper()
			told := store.Pruned{}
			of.Before, of.Progress = w.clock.Now(), func(so store.Pruned) { told = so }
			done, err := p.Prune(t.Context(), &of)
			if err != nil || done.Effects != want || (done.Bytes > 0) != (want > 0) || told != done {
				t.Errorf("Prune %q on %q = %+v, %v; want %d effects; told %+v", of.Tenant, of.Server, done, err, want, told)
			}
		}
		count(store.Pruning{Dry: true}, 3)
		count(store.Pruning{Dry: true, Tenant: "tenant-2"}, 2)
		count(store.Pruning{Tenant: "tenant-1"}, 1)
		count(store.Pruning{Tenant: "tenant-1"}, 0)
		count(store.Pruning{Tenant: "tenant-2", Server: "warehouse"}, 1)
		count(store.Pruning{Server: "nobody"}, 0)
		count(store.Pruning{}, 1)
	})
	t.Run("what failed and was pruned runs again whole", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.settle(p.begin(charge(), contract()).Claim, contract(), rpcError(`{"code":-32602,"message":"x"}`))
		w.clock.advance(time.Hour)
		prune(p, w.clock.Now(), 1)
		claim := p.wants(effect.ActReclaim, charge(), contract()).Claim
		p.settle(claim, contract(), result(`{"second":1}`))
		if r := p.wants(effect.ActReplay, charge(), contract()).Record; string(r.Answer.Body) != `{"second":1}` {
			t.Errorf("answer %s", r.Answer.Body)
		}
	})
}
