// Package effectchain puts the effect interceptors on a chain in the same process:
//
//	ei := effectinterceptor.New(log, &effectinterceptor.Options{Delivery: true})
//	c, err := effectchain.New(ei, &effectchain.Options{Server: "bank"})
//	if err != nil { … }
//	server.AddReceivingMiddleware(c.Middleware(nil))
//	…
//	ei.Close() // when the chain has been drained, before the log
//
// An interceptor's two phases do not show every end of a call: a target's error, a lost answer, a call
// that another interceptor stopped after it was claimed, an answer that did not arrive. The chain sees
// them all and tells its observer; this package is that observer, and nothing else. The chain knows
// nothing of effects, and the effect interceptors nothing of chains.
package effectchain

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
)

// Options configures New. nil stands for all defaults.
type Options struct {
	// Server names the server that the tools belong to, in the log and in policies. Defaults to what the
	// exchange's attribute "dev.undolog/server" says.
	Server string
	// Posture is the chain's. Defaults to that of a server. In a gateway undolog/guard stands at the
	// boundary to the agent, among the validators that see a call first, and the others at the boundary to
	// the upstream.
	Posture chain.Posture
	// Hold is how long a call that waits for a person's decision is held before it is answered with the reason.
	// A gateway holds by itself, since it can ask the agent meanwhile. Defaults to not at all.
	Hold time.Duration
	// Deadline bounds one phase as a whole, see chain.Options. Defaults to no bound.
	Deadline time.Duration
	// Logger gets what the chain and the interceptors have to tell. Defaults to silence.
	Logger *slog.Logger
}

// New returns a chain with the effect interceptors on it, told of every end of a call. More hosts are
// added by its Use; undolog/effect stays nearest the target whatever they are. Drain the chain, then
// close the log.
func New(ei *effectinterceptor.Interceptors, opts *Options) (*chain.Chain, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	server := interceptors.NewServer(&interceptors.ServerOptions{Logger: o.Logger})
	if err := ei.Register(server, effectinterceptor.OwnEngine); err != nil {
		return nil, fmt.Errorf("register effect interceptors: %w", err)
	}
	told := observer(ei, o.Server)
	if o.Hold > 0 {
		told.Pause = hold(&told, o.Hold)
	}
	c, err := chain.New(&chain.Options{Logger: o.Logger, Posture: o.Posture, Observer: told, Deadline: o.Deadline})
	if err != nil {
		return nil, err
	}
	if err := c.Use(chain.Local("undolog", server), policyFor(o.Server)); err != nil {
		return nil, fmt.Errorf("use effect interceptors: %w", err)
	}
	return c, nil
}

// policyFor puts the interceptors where they belong, and configures them with the name of the server that
// they stand before.
func policyFor(server string) *chain.HostPolicy {
	var config json.RawMessage
	if server != "" {
		config = interceptorConfig(server)
	}
	return &chain.HostPolicy{
		Side: chain.SideUpstream,
		Overrides: map[string]chain.Override{
			effectinterceptor.GuardName:   {Config: config, Side: chain.SideAgent},
			effectinterceptor.EffectName:  {Config: config, Nearest: true},
			effectinterceptor.CatalogName: {Config: config},
		},
	}
}

func interceptorConfig(server string) json.RawMessage {
	config, err := json.Marshal(struct {
		Server string `json:"server"`
	}{server})
	if err != nil {
		panic(err) // a string
	}
	return config
}
