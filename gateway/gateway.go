package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/chain"
)

// Options configures a Gateway. Chain and Dial are required.
type Options struct {
	Logger *slog.Logger // nil is silent
	// Chain is what governed requests go through, those of the upstream to the agent too. Its posture is
	// PostureGateway for interceptors at either end, or PostureServer for all of them at the agent's.
	Chain *chain.Chain
	// Dial opens an upstream for an agent: starts a process or opens an HTTP session. It is called when a
	// session begins and again after its upstream has died. ctx bounds the opening alone.
	Dial func(ctx context.Context, agent *AgentInfo) (Conn, error)
	// Target is what Dial opens, whole: the command line or the URL. Its hash is part of the upstream's name;
	// it is never shown, since a key can stand in it.
	Target string
	// Label says in a word what Dial opens, for errors and logs. It MUST NOT carry secrets. Defaults to
	// "the upstream".
	Label string
	// Name is the upstream's configured name. Defaults to the name in its serverInfo, a hyphen and eight
	// hex digits of the hash of Target.
	Name string
	// Attributes says what interceptors are told about a request beside its params, as members of their
	// context. Nil: nothing.
	Attributes func(m *Message, p *Peer) map[string]json.RawMessage
	// Prime lists the upstream's tools through the chain before the first tools/call, and again when the
	// list has changed, so that interceptors know a tool's annotations before it runs.
	Prime bool
	// ScrubErrors replaces the text and data of an upstream's JSON-RPC errors toward the agent and keeps
	// their code: interceptors do not see errors, and an upstream may say in one what they would hold back.
	ScrubErrors bool
	// MaxResult is the limit for one message of the upstream. Defaults to 64 MiB. The Conn enforces it; the
	// relay names it in its error.
	MaxResult int64
	// Drain is how long dispatches that outlive their callers are awaited when a session ends. Defaults to
	// 30 s; negative: not at all.
	Drain time.Duration
	// Hold is how long a call that waits for a person's decision is held before it is answered with the reason.
	// Many clients give up at 60 s whatever they are told meanwhile. Defaults to 45 s; negative: not at all.
	Hold time.Duration
	// HoldProgress is how often the agent of a held call is told that it waits, if it wants to know. Defaults
	// to 5 s.
	HoldProgress time.Duration
	// MaxHeld is how many calls are held at once, of all sessions: each costs the gateway memory, an HTTP request
	// about 120 KB. Those beyond are answered with the reason at once; what they wait for stays to be decided.
	// Defaults to 1000.
	MaxHeld int
	// RequireElicitation answers agents from 2026-07-28 on that cannot ask their user with the protocol's error
	// for a missing capability, at once. Defaults to holding their calls, and the reason.
	RequireElicitation bool
	// MaxInFlight is how many requests of one session may be under way. Defaults to 4096.
	MaxInFlight int
	// SharedIdle is how long an upstream shared by stateless agents is kept without a request. Defaults to
	// 10 minutes.
	SharedIdle time.Duration
	// TakeUp is how often tasks are looked for that processes before us have begun and not seen the end of.
	// Defaults to 15 s.
	TakeUp time.Duration
	// Now defaults to time.Now.
	Now func() time.Time
}

// AgentInfo is who is at the agent's end, as its transport authenticated it.
type AgentInfo struct {
	Tenant    string
	Principal string // who calls; empty when nothing says so
	Session   string // attribution only
	Protocol  string // MCP revision, where the transport knows it before the messages do
}

// Peer is what a session knows of its two ends.
type Peer struct {
	Agent    AgentInfo
	Protocol string // the negotiated MCP revision; empty before it is known
	Server   string // the upstream's name: Options.Name, or made from its serverInfo
}

// Gateway relays messages between agents and their upstreams and runs governed requests through a
// chain. It is safe for concurrent use.
type Gateway struct {
	opts   Options
	logger *slog.Logger

	tasks  tasks
	held   atomic.Int64  // calls
	ending chan struct{} // closed when nothing is held any more
	endOne sync.Once
	mu     sync.Mutex
	shared map[sharedKey]*shared
	closed bool
}

// New returns a Gateway. It panics when Chain or Dial is missing.
func New(opts *Options) *Gateway {
	o := *opts
	if o.Chain == nil || o.Dial == nil {
		panic("gateway: Options.Chain and Options.Dial are required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Label == "" {
		o.Label = "the upstream"
	}
	if o.MaxResult <= 0 {
		o.MaxResult = defaultMaxResult
	}
	if o.Drain == 0 {
		o.Drain = 30 * time.Second
	}
	if o.Hold == 0 {
		o.Hold = 45 * time.Second
	}
	if o.HoldProgress <= 0 {
		o.HoldProgress = 5 * time.Second
	}
	if o.MaxHeld <= 0 {
		o.MaxHeld = 1000
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 4096
	}
	if o.TakeUp <= 0 {
		o.TakeUp = 15 * time.Second
	}
	if o.SharedIdle <= 0 {
		o.SharedIdle = 10 * time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Gateway{opts: o, logger: o.Logger, ending: make(chan struct{}), shared: make(map[sharedKey]*shared)}
}

const defaultMaxResult = 64 << 20

// Serve relays between one agent and an upstream of its own (1:1, ids unchanged) until the agent has
// gone, ctx ends, or the upstream cannot be opened at all. It then awaits what outlives its callers for
// Options.Drain and closes both ends. A nil error means that the agent went in good order or ctx ended.
func (g *Gateway) Serve(ctx context.Context, agent Conn, info AgentInfo) error {
	return g.newSession(agent, info).run(ctx)
}

// Do sends one request or notification of a stateless agent to the upstream that all agents of its
// tenant and principal share. send is given every message that belongs to the request, one at a time:
// its progress, the notifications of its subscription, and last its response; ids, tokens and
// subscription ids are the agent's own again. Do returns when the response was sent or ctx has ended,
// which cancels the request. An error of send means that the agent did not get the message; it ends the
// request like a cancellation. For a notification send is not called.
func (g *Gateway) Do(ctx context.Context, info AgentInfo, m *Message, send func(*Message) error) error {
	s, err := g.sharedFor(info)
	if err != nil {
		return err
	}
	defer s.release()
	return s.do(ctx, m, send)
}

// Close ends the shared upstreams, after what outlives its callers has been awaited for Options.Drain
// or until ctx ends. Sessions of Serve end by their own ctx.
func (g *Gateway) Close(ctx context.Context) error {
	g.endHolds()
	return g.closeShared(ctx)
}

// endHolds has every call that is held, and every one to come, answered at once.
func (g *Gateway) endHolds() { g.endOne.Do(func() { close(g.ending) }) }
