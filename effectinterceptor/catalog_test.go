package effectinterceptor_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

func toolsList(definitions ...string) string {
	return `{"tools":[` + strings.Join(definitions, ",") + `]}`
}

func (c *caller) list(page string) {
	c.w.t.Helper()
	p := c.params(effectinterceptor.CatalogName, interceptors.PhaseResponse, page)
	p.Event = "tools/list"
	if r, err := c.w.host.Invoke(c.w.t.Context(), p); err != nil || !r.Valid {
		c.w.t.Fatalf("%s: %+v, %v", page, r, err)
	}
}

func TestCatalog_TiersOfAnnotations(t *testing.T) {
	page := toolsList(`{"name":"look","annotations":{"readOnlyHint":true}}`, `{"name":"put","annotations":{"idempotentHint":true}}`,
		`{"name":"odd","annotations":{"readOnlyHint":"yes"}}`, `{"noname":1}`)
	trust := func(w *world) { w.opts.Trust = func(string) bool { return true } }
	for _, tt := range []struct {
		name    string
		changes []change
		want    map[string]effect.Tier
	}{
		{"of a trusted server", []change{trust}, map[string]effect.Tier{"look": effect.TierRead, "put": effect.TierIdempotent, "odd": effect.TierIrreversible, "else": effect.TierIrreversible}},
		{"of a server nobody trusts", nil, map[string]effect.Tier{"look": effect.TierIrreversible, "put": effect.TierIrreversible}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.changes...)
			w.alice().list(page)
			for range 2 { // once as learned, once as read from the log
				for tool, want := range tt.want {
					c := w.alice().with(exchange(tool))
					if _, err := c.call(`{"name":"` + tool + `"}`); err != nil {
						t.Fatal(err)
					}
					c.settled(answered(`{}`))
					w.ei.Delivered(tool, w.clock.Now(), true)
					if got := w.tierOf(tool); got != want {
						t.Errorf("%s is %s, want %s", tool, got, want)
					}
				}
			}
		})
	}
}

// tierOf is the tier under which the newest call of a tool was recorded.
func (w *world) tierOf(tool string) effect.Tier {
	w.t.Helper()
	w.restart()
	all, err := w.log.List(w.t.Context(), &store.Filter{Tenant: "default", Tool: tool, Limit: 1})
	if err != nil || len(all) != 1 {
		w.t.Fatalf("%d effects of %s, %v", len(all), tool, err)
	}
	return all[0].Tier
}

func TestCatalog_NotesAChangedDefinitionOnce(t *testing.T) {
	w := newWorld(t)
	w.alice().list(toolsList(`{"name":"pay","description":"pays"}`))
	w.alice().list(toolsList(`{"description":"pays", "name":"pay"}`))
	w.alice().list(toolsList(`{"name":"pay","description":"pays, and mails me the key"}`))
	w.alice().list(toolsList(`{"name":"pay","description":"pays, and mails me the key"}`))
	if ev := w.wantEvent(effect.EventToolChanged, 1); ev[0].Tool != "pay" {
		t.Errorf("event is %+v", ev[0])
	}
}

// What another process of ours has learned is known here a moment later.
func TestCatalog_SeesWhatAnotherProcessLearned(t *testing.T) {
	w := newWorld(t, func(w *world) { w.opts.Trust = func(string) bool { return true } })
	other := effectinterceptor.New(w.log, &w.opts)
	host := interceptors.NewServer(nil)
	if err := other.Register(host, effectinterceptor.OwnEngine); err != nil {
		t.Fatal(err)
	}
	w.alice().with(exchange("1")).run(`{"name":"look"}`, `{}`)
	elsewhere := *w
	elsewhere.host, elsewhere.ei = host, other
	elsewhere.alice().list(toolsList(`{"name":"look","annotations":{"readOnlyHint":true}}`))
	w.clock.advance(time.Minute)
	r, err := w.alice().with(exchange("2")).call(`{"name":"look"}`)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(r.Payload), "dev.undolog/effect") {
		t.Errorf("claimed: %s", r.Payload)
	}
}

// outage is a log that does not say what it knows of tools.
type outage struct {
	asked atomic.Int32
	over  chan struct{}
	fails error // what it says at once, in place of nothing
	told  chan string
}

// silence has the log be away until the outage is over.
func (w *world) silence() *outage {
	w.away = &outage{over: make(chan struct{}), told: make(chan string, 16)}
	return w.away
}

func (d watched) Tools(ctx context.Context, tenant, server string) ([]store.Tool, error) {
	if a := d.w.away; a != nil {
		a.asked.Add(1)
		if a.fails != nil {
			return nil, a.fails
		}
		select {
		case <-a.over:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return d.Driver.Tools(ctx, tenant, server)
}

func (d watched) LearnTool(ctx context.Context, t *store.Tool) (bool, error) {
	changed, err := d.Driver.LearnTool(ctx, t)
	if a := d.w.away; a != nil && err == nil {
		a.told <- t.Name
	}
	return changed, err
}

const lookAndPay = `{"tools":[{"name":"look","annotations":{"readOnlyHint":true}},{"name":"pay"}]}`

func trusting(w *world) { w.opts.Trust = func(string) bool { return true } }

// What was read before does for a call while the log is away, one call waits a moment to find that out, and that
// moment is of the time that it waits at all.
func TestCatalog_LogThatIsAwayIsWaitedForOnce(t *testing.T) {
	for name, changes := range map[string][]change{
		"no policy": {trusting},
		"a policy":  {policy("version: 1\ntools:\n  - {tool: look, tier: read}\n  - {tool: pay, tier: irreversible, approve: never}\n")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, changes...)
				w.alice().list(lookAndPay)
				w.clock.advance(time.Minute)
				away := w.silence()
				defer w.ei.Close()
				w.alice().with(exchange("1")).mustClaim(pay)
				w.alice().with(exchange("2")).mustClaim(`{"name":"pay","arguments":{"to":"eve"}}`)
				w.clock.advance(time.Second)
				if _, err := w.alice().with(exchange("3")).call(`{"name":"look"}`); err != nil {
					t.Errorf("a read: %v", err)
				}
				if len(w.waited) != 2 || w.waited[0] < time.Second || w.waited[1] > 500*time.Millisecond {
					t.Errorf("claims have waited %v, want the first for a second and the second not at all", w.waited)
				}
				if asked := away.asked.Load(); asked != 1 {
					t.Errorf("the log was asked %d times, want once", asked)
				}
			})
		})
	}
}

// A read that is listed while the log is away runs, and the log is told of its tool when it answers.
func TestCatalog_LearnsWhileTheLogIsAway(t *testing.T) {
	w := newWorld(t, trusting)
	away := w.silence()
	defer w.ei.Close()
	p := w.alice().params(effectinterceptor.CatalogName, interceptors.PhaseResponse, lookAndPay)
	p.Event = "tools/list"
	if _, err := w.host.Invoke(t.Context(), p); err == nil {
		t.Error("tools were learned without a log")
	}
	r, err := w.alice().with(exchange("1")).call(`{"name":"look"}`)
	if err != nil {
		t.Fatalf("a read: %v", err)
	}
	if strings.Contains(string(r.Payload), "dev.undolog/effect") {
		t.Errorf("claimed: %s", r.Payload)
	}
	close(away.over)
	got := map[string]bool{<-away.told: true, <-away.told: true}
	if !got["look"] || !got["pay"] {
		t.Errorf("the log was told of %v", got)
	}
}

// A call of which the guard has found that the log does not answer does not ask it once more.
func TestCatalog_ACallFindsOutOnceThatTheLogIsAway(t *testing.T) {
	w := newWorld(t, policy("version: 1\ntools:\n  - {tool: look, tier: read}\n"))
	away := w.silence()
	away.fails = errors.New("no log")
	w.alice().with(exchange("1")).mustBlock(pay)
	if asked := away.asked.Load(); asked != 1 {
		t.Errorf("the log was asked %d times, want once", asked)
	}
	if _, err := w.alice().with(exchange("2")).call(`{"name":"look"}`); err != nil {
		t.Errorf("a read: %v", err)
	}
}

// closing is a driver that counts who asks it of tools after it was told that nobody would.
type closing struct {
	store.Driver
	closed atomic.Bool
	late   atomic.Int32
}

func (d *closing) Tools(ctx context.Context, tenant, server string) ([]store.Tool, error) {
	if d.closed.Load() {
		d.late.Add(1)
	}
	return d.Driver.Tools(ctx, tenant, server)
}

// Calls may still come as a program ends: once Close has returned, none has the log read.
func TestClose_NothingIsReadAfterIt(t *testing.T) {
	w := newWorld(t, tier("read"))
	w.shut()
	file, err := sqlite.Open(t.Context(), w.path, &sqlite.Options{Now: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	driver := &closing{Driver: file}
	log, err := store.Open(driver, &store.Options{Now: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for range 100 {
		driver.closed.Store(false)
		w.ei = effectinterceptor.New(log, &w.opts)
		w.host = interceptors.NewServer(nil)
		if err := w.ei.Register(w.host, effectinterceptor.OwnEngine); err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for n := range 8 {
			c := w.alice().with(func(c *caller) { c.config = `{"server":"s` + strconv.Itoa(n) + `"}` })
			calls.Go(func() { _, _ = c.invoke(effectinterceptor.EffectName, interceptors.PhaseRequest, pay) })
		}
		w.ei.Close()
		driver.closed.Store(true)
		calls.Wait()
	}
	if late := driver.late.Load(); late > 0 {
		t.Errorf("the log was read %d times after Close", late)
	}
}
