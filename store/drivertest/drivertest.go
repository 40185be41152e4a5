// Package drivertest is the one behavioural suite of the effect log: every driver passes it whole.
//
//	func TestDriver(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{Open: openTemp})
//	}
//
// It speaks to the database through store.Log and store.Driver alone, and to two of each on one
// database where processes are meant. A difference between databases is a field of Harness.
package drivertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Harness is what the suite needs to know of a database.
type Harness struct {
	// New makes a fresh, empty database and returns how to open it: each call of open is another
	// process's driver on it, with the clock now. The suite closes what it opens.
	New func(t *testing.T) (open func(now func() time.Time) store.Driver)
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Run("Decide", func(t *testing.T) { testDecide(t, h) })
	t.Run("Lookalike", func(t *testing.T) { testLookalike(t, h) })
	t.Run("Approval", func(t *testing.T) { testApproval(t, h) })
	t.Run("Clocks", func(t *testing.T) { testApprovalClocks(t, h) })
	t.Run("Edit", func(t *testing.T) { testEdit(t, h) })
	t.Run("Decision", func(t *testing.T) { testDecision(t, h) })
	t.Run("DecisionRace", func(t *testing.T) { testDecisionRace(t, h) })
	t.Run("Grant", func(t *testing.T) { testGrant(t, h) })
	t.Run("Limit", func(t *testing.T) { testLimit(t, h) })
	t.Run("Append", func(t *testing.T) { testAppend(t, h) })
	t.Run("Settle", func(t *testing.T) { testSettle(t, h) })
	t.Run("Heart", func(t *testing.T) { testHeart(t, h) })
	t.Run("Person", func(t *testing.T) { testPerson(t, h) })
	t.Run("Race", func(t *testing.T) { testRace(t, h) })
	t.Run("Wait", func(t *testing.T) { testWait(t, h) })
	t.Run("Notes", func(t *testing.T) { testNotes(t, h) })
	t.Run("Deliveries", func(t *testing.T) { testDeliveries(t, h) })
	t.Run("Query", func(t *testing.T) { testQuery(t, h) })
	t.Run("Tenants", func(t *testing.T) { testTenants(t, h) })
	t.Run("Payloads", func(t *testing.T) { testPayloads(t, h) })
	t.Run("Prune", func(t *testing.T) { testPrune(t, h) })
	t.Run("PruneWalk", func(t *testing.T) { testWalk(t, h) })
	t.Run("PruneRace", func(t *testing.T) { testPruneRace(t, h) })
	t.Run("TenantList", func(t *testing.T) { testTenantList(t, h) })
	t.Run("Tools", func(t *testing.T) { testTools(t, h) })
	t.Run("Close", func(t *testing.T) { testClose(t, h) })
}

// clock is a clock that stands until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

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

// world is one database with a clock that all its processes share.
type world struct {
	t     *testing.T
	clock *clock
	open  func(now func() time.Time) store.Driver
}

func newWorld(t *testing.T, h Harness) *world {
	t.Helper()
	return &world{t: t, clock: newClock(), open: h.New(t)}
}

func (w *world) driver() store.Driver {
	d := w.open(w.clock.Now)
	w.t.Cleanup(func() { d.Close() })
	return d
}

// process is a log of its own, as another process would have it.
func (w *world) process() *process {
	w.t.Helper()
	return w.processWith(&store.Options{Now: w.clock.Now, TTL: ttl, FlushEvery: time.Millisecond})
}

func (w *world) processWith(opts *store.Options) *process {
	w.t.Helper()
	driver := w.driver()
	log, err := store.Open(driver, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{t: w.t, Log: log, driver: driver, now: w.clock.Now}
	w.t.Cleanup(func() {
		if err := log.Close(); err != nil {
			w.t.Errorf("Close: %v", err)
		}
	})
	return p
}

const (
	ttl    = 10 * time.Second
	window = 10 * time.Minute
)

type process struct {
	*store.Log
	t      *testing.T
	driver store.Driver
	now    func() time.Time
}

// Delivered is Log.Delivered, now.
func (p *process) Delivered(tenant, id string) { p.Log.Delivered(tenant, id, p.now()) }

// contract is an irreversible tool's under a policy, changed as a test wants it.
func contract(changes ...func(*effect.Contract)) *effect.Contract {
	c := &effect.Contract{
		Tier: effect.TierIrreversible, Window: window, Repeat: effect.RepeatReplay, RepeatError: effect.RepeatReplay,
		Lookalike: effect.RepeatRun, Annotate: true, OnToolError: effect.StateCommitted, Detach: true,
		Timeout: 10 * time.Minute, Lease: 5 * time.Minute, Source: "test",
		Asking: effect.Asking{Quorum: 1, DecideFor: 24 * time.Hour, UseFor: time.Hour},
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

func tier(t effect.Tier) func(*effect.Contract)     { return func(c *effect.Contract) { c.Tier = t } }
func repeat(r effect.Repeat) func(*effect.Contract) { return func(c *effect.Contract) { c.Repeat = r } }
func lookalike(r effect.Repeat) func(*effect.Contract) {
	return func(c *effect.Contract) { c.Lookalike = r }
}
func onError(s effect.State) func(*effect.Contract) {
	return func(c *effect.Contract) { c.OnToolError = s }
}
func share(c *effect.Contract) { c.ShareTenant = true }

// charge is a call of agent:a's, changed as a test wants it.
func charge(changes ...func(*effect.Call)) *effect.Call {
	c := &effect.Call{
		Tenant: effect.DefaultTenant, Principal: "agent:a", Server: "payments", Tool: "charge",
		Arguments: []byte(`{"amount":10,"to":"alice"}`), Session: "s1", Trace: "t1",
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

func key(k string) func(*effect.Call)  { return func(c *effect.Call) { c.Key = k } }
func run(r string) func(*effect.Call)  { return func(c *effect.Call) { c.Run = r } }
func args(a string) func(*effect.Call) { return func(c *effect.Call) { c.Arguments = []byte(a) } }
func tool(n string) func(*effect.Call) { return func(c *effect.Call) { c.Tool = n } }
func by(p string) func(*effect.Call)   { return func(c *effect.Call) { c.Principal = p } }
func of(tenant string) func(*effect.Call) {
	return func(c *effect.Call) { c.Tenant = tenant }
}

func params(t *testing.T, call *effect.Call, c *effect.Contract) *store.BeginParams {
	t.Helper()
	id, err := c.Identify(call)
	if err != nil {
		t.Fatalf("Identify: %v", err)
	}
	return &store.BeginParams{Call: call, Identity: id, Contract: c, Policy: "b3:policy"}
}

func (p *process) begin(call *effect.Call, c *effect.Contract) *store.Begun {
	p.t.Helper()
	return p.beginParams(params(p.t, call, c))
}

func (p *process) beginParams(bp *store.BeginParams) *store.Begun {
	p.t.Helper()
	begun, err := p.Begin(context.Background(), bp)
	if err != nil {
		p.t.Fatalf("Begin: %v", err)
	}
	return begun
}

// wants begins a call and checks the verdict's action; a claim comes with the actions that dispatch.
func (p *process) wants(action effect.Action, call *effect.Call, c *effect.Contract) *store.Begun {
	p.t.Helper()
	begun := p.begin(call, c)
	if begun.Verdict.Action != action {
		p.t.Fatalf("Begin = %s (%s), want %s", begun.Verdict.Action, begun.Verdict.Reason, action)
	}
	dispatches := action == effect.ActInsert || action == effect.ActReclaim || action == effect.ActContinue || action == effect.ActApproved
	if (begun.Claim != nil) != dispatches {
		p.t.Fatalf("Begin = %s with claim %v", action, begun.Claim)
	}
	return begun
}

func (p *process) settle(claim *effect.Claim, c *effect.Contract, o effect.Outcome) *effect.Record {
	p.t.Helper()
	r, err := p.Settle(context.Background(), *claim, c, o)
	if err != nil {
		p.t.Fatalf("Settle: %v", err)
	}
	return r
}

// done begins a call, which must dispatch, and settles it with a result.
func (p *process) done(call *effect.Call, c *effect.Contract) *effect.Record {
	p.t.Helper()
	begun := p.begin(call, c)
	if begun.Claim == nil {
		p.t.Fatalf("Begin = %s (%s), want a claim", begun.Verdict.Action, begun.Verdict.Reason)
	}
	return p.settle(begun.Claim, c, result(`{"content":[],"charge":"ch_1"}`))
}

func (p *process) show(tenant, id string) *store.Shown {
	p.t.Helper()
	s, err := p.Show(context.Background(), tenant, id)
	if err != nil {
		p.t.Fatalf("Show: %v", err)
	}
	return s
}

func result(body string) effect.Outcome {
	return effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerResult, Body: []byte(body)}}
}

func toolError(body string) effect.Outcome {
	o := result(body)
	o.Answer.IsError = true
	return o
}

func rpcError(body string) effect.Outcome {
	return effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerError, Body: []byte(body)}}
}

func waits(continuation string) effect.Outcome {
	o := result(`{"resultType":"input_required"}`)
	o.Kind, o.Continuation = effect.OutcomeWaiting, continuation
	return o
}

var (
	lost   = effect.Outcome{Kind: effect.OutcomeLost, Reason: "no answer"}
	unsent = effect.Outcome{Kind: effect.OutcomeUnsent, Reason: "connection refused"}
)
