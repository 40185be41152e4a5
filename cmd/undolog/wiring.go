package main

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
)

// newChain is the chain of our own engine: the effect interceptors in process, told by the chain's
// observer what a response phase does not see.
func newChain(ei *effectinterceptor.Interceptors, logger *slog.Logger) (*chain.Chain, error) {
	server := interceptors.NewServer(&interceptors.ServerOptions{Logger: logger})
	if err := ei.Register(server, effectinterceptor.OwnEngine); err != nil {
		return nil, err
	}
	c, err := chain.New(&chain.Options{Logger: logger, Observer: observe(ei)})
	if err != nil {
		return nil, err
	}
	if err := c.Use(chain.Local("undolog", server), nil); err != nil {
		return nil, err
	}
	return c, nil
}

// observe tells the effect interceptors by exchange id what the chain tells about exchanges.
func observe(ei *effectinterceptor.Interceptors) chain.Observer {
	return chain.Observer{
		Settled: func(ctx context.Context, x *chain.Exchange, a chain.Answer) {
			ei.Settled(ctx, x.ID, endOf(a))
		},
		Delivered: func(_ context.Context, x *chain.Exchange, delivered bool) {
			ei.Delivered(x.ID, delivered)
		},
		Explain: func(_ context.Context, x *chain.Exchange, a chain.Answer) *interceptors.BlockError {
			return ei.Explain(x.ID, endOf(a).Kind)
		},
		Outcome: func(ctx context.Context, x *chain.Exchange, o chain.Outcome) {
			if o.Verdict == chain.Blocked || o.Verdict == chain.Failed {
				ei.Stopped(ctx, x.Request.Caller.Tenant, principalID(x.Request), x.Request.Event, o.By, o.Reason)
			}
		},
	}
}

func endOf(a chain.Answer) effectinterceptor.End {
	end := effectinterceptor.End{Kind: effect.OutcomeLost, Result: a.Result, Error: a.Error}
	switch a.Kind {
	case chain.Answered:
		end.Kind = effect.OutcomeAnswered
	case chain.Unsent:
		end.Kind = effect.OutcomeUnsent
	}
	if a.Cause != nil {
		end.Reason = a.Cause.Error()
	}
	return end
}

func principalID(r *chain.Request) string {
	if r.Principal == nil {
		return ""
	}
	return r.Principal.ID
}

// quoted is s as a JSON string.
func quoted(s string) json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string
	}
	return raw
}
