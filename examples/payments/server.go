package main

import (
	"context"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/examples/payments/ledger"
)

// payments holds what the tools work on. gone is closed when nobody can be answered any more.
type payments struct {
	book    *ledger.Ledger
	faults  string
	gone    <-chan struct{}
	updated func(ctx context.Context, uri string)
}

func newServer(book *ledger.Ledger, faultsPath string, gone <-chan struct{}) *mcp.Server {
	p := &payments{book: book, faults: faultsPath, gone: gone}
	server := mcp.NewServer(&mcp.Implementation{Name: "payments", Title: "Payments example", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions:       "Charge accounts, refund charges, send receipts. Nothing here is real money.",
		Logger:             slog.New(slog.DiscardHandler),
		Capabilities:       &mcp.ServerCapabilities{},
		CompletionHandler:  p.complete,
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	p.updated = func(ctx context.Context, uri string) {
		// The only error is that of a session that has ended.
		_ = server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
	}
	for _, t := range tools() {
		server.AddTool(t.definition(), p.handle(t))
	}
	p.addResources(server)
	return server
}

// handle is the way of one call: check the arguments, meet the fault of the moment, do the work, answer.
func (p *payments) handle(t tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		c, problem := newCall(t, req)
		if problem != "" {
			return toolError("invalid parameters: " + problem), nil
		}
		rule, err := faults.Meet(p.faults, t.name)
		if err != nil {
			return nil, err
		}
		if !rule.Cancellable {
			ctx = context.WithoutCancel(ctx)
		}
		if err := pause(ctx, rule.DelayBeforeMs, rule.WaitBefore); err != nil {
			return nil, err
		}
		if rule.Before != faults.None {
			return p.act(rule.Before, "invalid parameters: refused before anything was done")
		}
		answer, err := t.run(ctx, p, c)
		if err != nil {
			return nil, err
		}
		if err := pause(ctx, rule.DelayAfterMs, rule.WaitAfter); err != nil {
			return nil, err
		}
		if rule.After != faults.None {
			return p.act(rule.After, "something went wrong on the way back")
		}
		return answer.result(rule)
	}
}
