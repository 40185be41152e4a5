package effectinterceptor_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

// clock stands still until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is a log on disk and the interceptors over it, on a host of their own.
type world struct {
	t      *testing.T
	clock  *clock
	ahead  time.Duration // of the log's clock before the database's
	path   string
	opts   effectinterceptor.Options
	engine effectinterceptor.Engine
	looked chan struct{}   // somebody has looked at an effect: a join waits
	begun  func()          // called when a claim is made, before its caller knows
	look   func()          // called once, before somebody looks at an effect
	away   *outage         // while the log does not answer; nil: it does
	waited []time.Duration // that claims were told of

	log  *store.Log
	ei   *effectinterceptor.Interceptors
	host *interceptors.Server
	shut func()
}

type change func(*world)

// newWorld is a world of our own engine that reports delivery, unless it is changed.
func newWorld(t *testing.T, changes ...change) *world {
	t.Helper()
	w := &world{
		t:      t,
		clock:  &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
		path:   filepath.Join(t.TempDir(), "log.db"),
		opts:   effectinterceptor.Options{Delivery: true},
		looked: make(chan struct{}, 1024),
	}
	w.opts.Now = w.clock.Now
	for _, c := range changes {
		c(w)
	}
	w.create()
	w.open()
	t.Cleanup(func() { w.shut() })
	return w
}

// foreign is a world of somebody else's engine.
func foreign(w *world) { w.opts.Delivery, w.engine = false, effectinterceptor.ForeignEngine }

func noDelivery(w *world) { w.opts.Delivery = false }

func impatient(w *world) { w.opts.JoinWait = time.Nanosecond }

func policy(text string) change {
	return func(w *world) {
		p, err := effect.ParsePolicy("undolog.yaml", []byte(text))
		if err != nil {
			w.t.Fatal(err)
		}
		w.opts.Policy = p
	}
}

// tier is a policy that gives every tool the tier and asks for nothing.
func tier(name string) change {
	approve := ", approve: never"
	if name == "read" {
		approve = ""
	}
	return policy("version: 1\ntools:\n  - {tool: \"*\", tier: " + name + approve + "}\n")
}

// watched is the driver, and tells when somebody looks at an effect or claims one. What is known of tools it does not
// say while the log is away.
type watched struct {
	store.Driver
	w *world
}

func (d watched) Begin(ctx context.Context, p *store.Begin) (*store.Begun, error) {
	d.w.clock.mu.Lock()
	d.w.waited = append(d.w.waited, p.Waited)
	d.w.clock.mu.Unlock()
	begun, err := d.Driver.Begin(ctx, p)
	if d.w.begun != nil {
		d.w.begun()
	}
	return begun, err
}

func (d watched) Effect(ctx context.Context, tenant, id string) (*effect.Record, error) {
	if look := d.w.look; look != nil {
		d.w.look = nil
		look()
	}
	defer func() {
		select {
		case d.w.looked <- struct{}{}:
		default:
		}
	}()
	return d.Driver.Effect(ctx, tenant, id)
}

// empty is a log without effects: making one takes longer than most tests.
var empty = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "log")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "log.db")
	driver, err := sqlite.Open(context.Background(), path, nil)
	if err != nil {
		return nil, err
	}
	if err := driver.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func (w *world) create() {
	w.t.Helper()
	file, err := empty()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path, file, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open() {
	w.t.Helper()
	driver, err := sqlite.Open(w.t.Context(), w.path, &sqlite.Options{Now: w.clock.Now})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.log, err = store.Open(watched{driver, w}, &store.Options{Now: w.logNow, TTL: time.Hour}); err != nil {
		w.t.Fatal(err)
	}
	w.ei = effectinterceptor.New(w.log, &w.opts)
	w.host = interceptors.NewServer(nil)
	if err := w.ei.Register(w.host, w.engine); err != nil {
		w.t.Fatal(err)
	}
	w.shut = sync.OnceFunc(func() {
		if err := w.log.Close(); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) logNow() time.Time { return w.clock.Now().Add(w.ahead) }

// restart is another process on the same log. What waited to be written is written.
func (w *world) restart() {
	w.t.Helper()
	w.shut()
	w.open()
}

// only is the one effect of the tenant.
func (w *world) only() *effect.Record {
	w.t.Helper()
	all := w.effects("default")
	if len(all) != 1 {
		w.t.Fatalf("%d effects, want 1", len(all))
	}
	return all[0]
}

func (w *world) effects(tenant string) []*effect.Record {
	w.t.Helper()
	all, err := w.log.List(w.t.Context(), &store.Filter{Tenant: tenant})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// wantState checks where an effect stands now.
func (w *world) wantState(id string, want effect.State) *effect.Record {
	w.t.Helper()
	shown, err := w.log.Show(w.t.Context(), "default", id)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := shown.Record.StateAt(w.clock.Now()); got != want {
		w.t.Errorf("effect is %s, want %s", got, want)
	}
	return shown.Record
}

// events are the kinds of the events so far, after a restart that writes them.
func (w *world) events() []effect.Event {
	w.t.Helper()
	w.restart()
	events, err := w.log.Events(w.t.Context(), "default", 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

func (w *world) wantEvent(kind string, want int) []effect.Event {
	w.t.Helper()
	var found []effect.Event
	for _, ev := range w.events() {
		if ev.Kind == kind {
			found = append(found, ev)
		}
	}
	if len(found) != want {
		w.t.Errorf("%d events %s, want %d", len(found), kind, want)
	}
	return found
}

// caller is who invokes, and what it tells of itself.
type caller struct {
	w        *world
	caller   interceptors.Caller
	context  interceptors.Context
	exchange string
	header   string // Idempotency-Key of its request
	handle   string // by which it goes on with a request for approval
	config   string
	aside    interceptors.Aside // asks the target
}

// alice calls through our own engine.
func (w *world) alice() *caller {
	return &caller{w: w, caller: interceptors.Caller{Local: true}, context: interceptors.Context{Principal: user("alice")}}
}

// remote is alice through somebody else's engine.
func (w *world) remote() *caller {
	return &caller{w: w, context: interceptors.Context{Principal: user("alice")}}
}

func user(id string) *interceptors.Principal { return &interceptors.Principal{Type: "user", ID: id} }

// with is the caller, changed.
func (c *caller) with(changes ...func(*caller)) *caller {
	changed := *c
	for _, change := range changes {
		change(&changed)
	}
	return &changed
}

func session(id string) func(*caller) { return func(c *caller) { c.context.SessionID = id } }
func principal(id string) func(*caller) {
	return func(c *caller) { c.context.Principal = user(id) }
}
func nobody(c *caller)                 { c.context.Principal = nil }
func exchange(id string) func(*caller) { return func(c *caller) { c.exchange = id } }
func span(id string) func(*caller) {
	return func(c *caller) { c.context.TraceID, c.context.SpanID = "trace", id }
}

func (c *caller) params(name string, phase interceptors.Phase, payload string) *interceptors.InvokeParams {
	ctx := c.context
	ctx.Extra = map[string]json.RawMessage{}
	if c.exchange != "" {
		ctx.Extra["dev.undolog/exchange"] = json.RawMessage(`"` + c.exchange + `"`)
	}
	if c.header != "" {
		ctx.Extra["dev.undolog/idempotency-key"] = json.RawMessage(`"` + c.header + `"`)
	}
	if c.handle != "" {
		ctx.Extra["dev.undolog/handle"] = json.RawMessage(`"` + c.handle + `"`)
	}
	p := &interceptors.InvokeParams{
		Name: name, Event: "tools/call", Phase: phase, Payload: json.RawMessage(payload), Context: &ctx, Caller: c.caller, Aside: c.aside,
	}
	if c.config != "" {
		p.Config = json.RawMessage(c.config)
	}
	return p
}

func (c *caller) invoke(name string, phase interceptors.Phase, payload string) (*interceptors.Result, error) {
	return c.w.host.Invoke(context.Background(), c.params(name, phase, payload))
}

// call is the request phase: the guard, then the effect.
func (c *caller) call(payload string) (*interceptors.Result, error) {
	r, err := c.invoke(effectinterceptor.GuardName, interceptors.PhaseRequest, payload)
	if err != nil || !r.Valid {
		return r, err
	}
	return c.invoke(effectinterceptor.EffectName, interceptors.PhaseRequest, payload)
}

// claimed is a call that may be dispatched, with its effect id.
type claimed struct {
	id      string
	attempt int
	payload json.RawMessage
	info    json.RawMessage
}

func (c *caller) mustClaim(payload string) claimed {
	c.w.t.Helper()
	r, err := c.call(payload)
	if err != nil {
		c.w.t.Fatalf("%s: %v", payload, err)
	}
	var stamp struct {
		ID      string `json:"id"`
		Attempt int    `json:"attempt"`
	}
	if err := json.Unmarshal(splice.Get(r.Payload, "_meta", "dev.undolog/effect"), &stamp); err != nil {
		c.w.t.Fatalf("no stamp in %s (info %s): %v", r.Payload, r.Info, err)
	}
	return claimed{stamp.ID, stamp.Attempt, r.Payload, r.Info}
}

// mustRespond is a call that is answered in the target's place.
func (c *caller) mustRespond(payload string) *interceptors.RespondError {
	c.w.t.Helper()
	_, err := c.call(payload)
	var answer *interceptors.RespondError
	if !errors.As(err, &answer) {
		c.w.t.Fatalf("%s: %v, want an answer in the target's place", payload, err)
	}
	return answer
}

// mustBlock is a call that is stopped with a reason.
func (c *caller) mustBlock(payload string) *interceptors.BlockError {
	c.w.t.Helper()
	_, err := c.call(payload)
	var block *interceptors.BlockError
	if !errors.As(err, &block) {
		c.w.t.Fatalf("%s: %v, want a typed reason", payload, err)
	}
	return block
}

// answer is the response phase in the order of a server's posture: the effect, then the guard.
func (c *caller) answer(result string) json.RawMessage {
	c.w.t.Helper()
	r, err := c.invoke(effectinterceptor.EffectName, interceptors.PhaseResponse, result)
	if err != nil {
		c.w.t.Fatal(err)
	}
	c.guardAnswer(string(r.Payload))
	return r.Payload
}

func (c *caller) guardAnswer(result string) {
	c.w.t.Helper()
	if _, err := c.invoke(effectinterceptor.GuardName, interceptors.PhaseResponse, result); err != nil {
		c.w.t.Fatal(err)
	}
}

// settled is what our own engine reports of an exchange.
func (c *caller) settled(end effectinterceptor.End) {
	c.w.ei.Settled(context.Background(), c.exchange, end)
}

func answered(result string) effectinterceptor.End {
	return effectinterceptor.End{Kind: effect.OutcomeAnswered, Result: json.RawMessage(result)}
}

func failed(body string) effectinterceptor.End {
	return effectinterceptor.End{Kind: effect.OutcomeAnswered, Error: json.RawMessage(body)}
}

var (
	lost   = effectinterceptor.End{Kind: effect.OutcomeLost, Reason: "the stream broke"}
	unsent = effectinterceptor.End{Kind: effect.OutcomeUnsent, Reason: "connection refused"}
)

// run is a whole call through our own engine, its answer delivered.
func (c *caller) run(payload, result string) claimed {
	c.w.t.Helper()
	done := c.mustClaim(payload)
	c.settled(answered(result))
	c.answer(result)
	c.w.ei.Delivered(c.exchange, c.w.clock.Now(), true)
	return done
}

const (
	pay  = `{"name":"pay","arguments":{"to":"bob","amount":9007199254740993}}`
	paid = `{"content":[{"type":"text","text":"paid"}],"receipt":9007199254740993}`
)
