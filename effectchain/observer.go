package effectchain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// Observer tells ei, by exchange id, what a chain tells of its exchanges. It is for a chain of one's own
// options, on which ei was registered for effectinterceptor.OwnEngine; New does both.
func Observer(ei *effectinterceptor.Interceptors) chain.Observer { return observer(ei, "") }

// observer is Observer of a chain before the named server, where its exchanges do not name one.
func observer(ei *effectinterceptor.Interceptors, server string) chain.Observer {
	return chain.Observer{
		Sending: func(ctx context.Context, x *chain.Exchange) error { return ei.MaySend(ctx, x.ID) },
		Settled: func(ctx context.Context, x *chain.Exchange, a chain.Answer) {
			ei.Settled(ctx, x.ID, endOf(a))
		},
		Delivered: func(_ context.Context, x *chain.Exchange, at time.Time, delivered bool) {
			ei.Delivered(x.ID, at, delivered)
		},
		Explain: func(_ context.Context, x *chain.Exchange, a chain.Answer) *interceptors.BlockError {
			return ei.Explain(x.ID, endOf(a).Kind)
		},
		Await: func(ctx context.Context, x *chain.Exchange, p *chain.Pause) error {
			return ei.AwaitDecision(ctx, x.Request.Caller.Tenant, p.Handle)
		},
		Decide: func(ctx context.Context, x *chain.Exchange, p *chain.Pause, d *chain.Decision) error {
			return ei.Decide(ctx, effectinterceptor.HostDecision{
				Tenant: x.Request.Caller.Tenant, Principal: principalID(x.Request), Handle: p.Handle, Approve: d.Approve, Reason: d.Reason,
			})
		},
		Followed: func(_ context.Context, x *chain.Exchange, following bool) { ei.Followed(x.ID, following) },
		Ended: func(ctx context.Context, x *chain.Exchange, a chain.Answer) {
			ei.Ended(ctx, x.ID, endOf(a))
		},
		Unfinished: func(ctx context.Context, r *chain.Request) ([]chain.Unfinished, error) {
			return unfinished(ctx, ei, r)
		},
		Outcome: func(ctx context.Context, x *chain.Exchange, o chain.Outcome) {
			if o.Verdict == chain.Blocked || o.Verdict == chain.Failed {
				ei.Stopped(effectinterceptor.Stop{
					Tenant: x.Request.Caller.Tenant, Principal: principalID(x.Request), Event: x.Request.Event,
					Exchange: x.ID, Server: cmp.Or(server, serverOf(x.Request)), Tool: toolOf(x.Request),
					By: interceptors.Brief(o.By), Reason: o.Reason,
				})
			}
		},
	}
}

// hold has each pause waited for, for so long.
func hold(o *chain.Observer, most time.Duration) func(context.Context, *chain.Exchange, *chain.Pause) bool {
	return func(ctx context.Context, x *chain.Exchange, p *chain.Pause) bool {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		return o.Await(ctx, x, p) == nil
	}
}

// unfinished takes up the tasks of a request's principal on the server that its attributes name.
func unfinished(ctx context.Context, ei *effectinterceptor.Interceptors, r *chain.Request) ([]chain.Unfinished, error) {
	var server string
	if err := json.Unmarshal(r.Attributes[serverAttribute], &server); err != nil {
		return nil, fmt.Errorf("read attribute %s: %w", serverAttribute, err)
	}
	list, err := ei.Unfinished(ctx, r.Caller.Tenant, principalID(r), server)
	found := make([]chain.Unfinished, 0, len(list))
	for _, u := range list {
		x := &chain.Exchange{ID: u.Exchange, Request: r, Started: u.At}
		found = append(found, chain.Unfinished{Exchange: x, Handle: u.Handle, At: u.At})
	}
	return found, err
}

// serverOf is the server that an exchange names; empty where it names none.
func serverOf(r *chain.Request) string {
	name, _ := splice.Text(r.Attributes[serverAttribute])
	return name
}

// toolOf is the tool that is called, as the requester names it; empty for other operations.
func toolOf(r *chain.Request) string {
	if r.Event != "tools/call" {
		return ""
	}
	name, _ := splice.Text(splice.Get(r.Params, "name"))
	return name
}

// serverAttribute is the attribute by which an engine names the server of an exchange.
const serverAttribute = "dev.undolog/server"

func endOf(a chain.Answer) effectinterceptor.End {
	end := effectinterceptor.End{Kind: effect.OutcomeLost, Result: a.Result, Error: a.Error}
	switch a.Kind {
	case chain.Answered:
		end.Kind = effect.OutcomeAnswered
	case chain.Unsent:
		end.Kind = effect.OutcomeUnsent
	}
	if a.Cause != nil {
		end.Reason = interceptors.Brief(a.Cause.Error())
	}
	return end
}

func principalID(r *chain.Request) string {
	if r.Principal == nil {
		return ""
	}
	return r.Principal.ID
}
