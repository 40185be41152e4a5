package effectinterceptor

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
)

// Names of the interceptors.
const (
	GuardName   = "undolog/guard"
	EffectName  = "undolog/effect"
	AuditName   = "undolog/audit"
	CatalogName = "undolog/catalog"
)

// Options configures Interceptors.
type Options struct {
	// Policy holds the rules for tools, until SetPolicy says otherwise. Defaults to none: nothing asks; calls
	// are recorded, run once and replayed.
	Policy *effect.Policy
	// ApprovalURL is where people decide: a request's page is at this URL, a slash and the effect's id.
	// Defaults to none: they have the commands.
	ApprovalURL string
	// Tenant is that of callers whose transport names none. Defaults to effect.DefaultTenant.
	Tenant string
	// Trust says whether the annotations of a server's tools are believed where the policy does not say.
	// Defaults to no server.
	Trust func(server string) bool
	// Delivery says that the engine reports by Delivered whether an answer reached its requester. Without
	// it every answer counts as undelivered, and a replay within the window says to the model that it is
	// one. Defaults to false.
	Delivery bool
	// JoinWait bounds how long a call waits for an equal one that is under way. Defaults to 45 s.
	JoinWait time.Duration
	// ProbeServers are servers on which probes are made, by the name that policies give them, beside that of the
	// call itself. Defaults to none.
	ProbeServers map[string]interceptors.Aside
	// ProbeWait bounds how long the answer of a probe is awaited. Defaults to 5 s.
	ProbeWait time.Duration
	// Vault remembers the secrets of calls, for a logger that must not write them. Defaults to one of its own.
	Vault *Vault
	// Logger gets what an operator must know. Defaults to none.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Interceptors are the four interceptors over one log. They are safe for concurrent use.
type Interceptors struct {
	log     *store.Log
	opts    Options
	open    *openSet
	arrived recent[arrival]
	waiting recent[*open] // calls whose answer was the handle of a task, or a question
	catalog *catalog
	schemas schemaCache
	judged  recent[*judged]

	lastConfig atomic.Pointer[readConfig]
	policy     atomic.Pointer[effect.Policy]
	refused    tally
	replays    tally
	counts     counts
	followed   sync.Map // id: effects whose task this process follows
	asked      sync.Map // scope: the tenants and servers that calls were put to people of
}

// New returns the interceptors over log.
func New(log *store.Log, opts *Options) *Interceptors {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Tenant == "" {
		o.Tenant = effect.DefaultTenant
	}
	if o.Trust == nil {
		o.Trust = func(string) bool { return false }
	}
	if o.JoinWait == 0 {
		o.JoinWait = 45 * time.Second
	}
	if o.ProbeWait <= 0 {
		o.ProbeWait = 5 * time.Second
	}
	if o.Vault == nil {
		o.Vault = NewVault()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	i := &Interceptors{
		log:     log,
		opts:    o,
		open:    newOpenSet(),
		catalog: newCatalog(log, o.Now),
		schemas: schemaCache{logger: o.Logger},
		refused: tally{note: log.Note, most: mostStops},
		replays: tally{note: log.Note, most: mostReplays},
		counts:  newCounts(),
	}
	i.policy.Store(o.Policy)
	return i
}

// Engine says who runs the interceptors.
type Engine bool

const (
	// OwnEngine tells Settled, Delivered and denials by itself: undolog/audit is left out.
	OwnEngine Engine = false
	// ForeignEngine tells nothing beyond the two phases.
	ForeignEngine Engine = true
)

// Register adds the interceptors to s.
func (i *Interceptors) Register(s *interceptors.Server, engine Engine) error {
	all := []interceptors.Interceptor{i.guard(), i.effect(), i.catalogue()}
	if engine == ForeignEngine {
		all = append(all, i.audit())
	}
	return s.Add(all...)
}

func (i *Interceptors) guard() *interceptors.Validator {
	return &interceptors.Validator{
		Descriptor: interceptors.Descriptor{
			Name:         GuardName,
			Description:  "Refuses tool calls that cannot be told apart from others; settles effects in the response phase.",
			Type:         interceptors.TypeValidation,
			Hooks:        bothPhases("tools/call"),
			ConfigSchema: configSchema,
		},
		DefaultConfig: noConfig,
		ReadsOnly:     true,
		Validate: func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
			if in.Phase == interceptors.PhaseRequest {
				verdict, err := i.guardRequest(ctx, in)
				i.counts.stopped(err)
				if err == nil && !verdict.Valid {
					i.counts.refuse(outcomeInvalid)
				}
				return verdict, err
			}
			return i.guardResponse(ctx, in)
		},
	}
}

func (i *Interceptors) effect() *interceptors.Mutator {
	return &interceptors.Mutator{
		Descriptor: interceptors.Descriptor{
			Name:        EffectName,
			Description: "Records a tool call before it goes out, once; answers a repeated one from the record.",
			Type:        interceptors.TypeMutation,
			Hooks:       bothPhases("tools/call"),
			// Nearest the upstream: after every other mutator of the request, before every other of the response.
			PriorityHint: &interceptors.Priority{Request: 2_000_000_000, Response: -2_000_000_000},
			ConfigSchema: configSchema,
		},
		DefaultConfig: noConfig,
		ReadsOnly:     true,
		Mutate: func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
			if in.Phase == interceptors.PhaseRequest {
				change, err := i.begin(ctx, in)
				i.counts.stopped(err)
				return change, err
			}
			return i.settleResponse(ctx, in)
		},
	}
}

func (i *Interceptors) audit() *interceptors.Validator {
	return &interceptors.Validator{
		Descriptor: interceptors.Descriptor{
			Name:         AuditName,
			Description:  "Notes one event per governed operation that is not a tool call.",
			Type:         interceptors.TypeValidation,
			Hooks:        bothPhases("*"),
			Mode:         interceptors.ModeAudit,
			FailOpen:     true,
			ConfigSchema: configSchema,
		},
		DefaultConfig: noConfig,
		ReadsOnly:     true,
		Validate:      i.auditOperation,
	}
}

func (i *Interceptors) catalogue() *interceptors.Validator {
	return &interceptors.Validator{
		Descriptor: interceptors.Descriptor{
			Name:         CatalogName,
			Description:  "Learns the definitions and annotations of tools, and notes a definition that changed.",
			Type:         interceptors.TypeValidation,
			Hooks:        []interceptors.Hook{{Events: []string{"tools/list"}, Phase: interceptors.PhaseResponse}},
			Mode:         interceptors.ModeAudit,
			FailOpen:     true,
			ConfigSchema: configSchema,
		},
		DefaultConfig: noConfig,
		ReadsOnly:     true,
		Validate:      i.learnTools,
	}
}

func bothPhases(event string) []interceptors.Hook {
	return []interceptors.Hook{
		{Events: []string{event}, Phase: interceptors.PhaseRequest},
		{Events: []string{event}, Phase: interceptors.PhaseResponse},
	}
}

// clampMs is d in whole milliseconds, at least 1 for a positive d.
func clampMs(d time.Duration) int64 {
	return max(int64(math.Ceil(float64(d)/float64(time.Millisecond))), 0)
}
