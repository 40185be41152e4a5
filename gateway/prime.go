package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/internal/splice"
)

const (
	primeTimeout = 5 * time.Second
	primePages   = 1000
)

// primer remembers whether the upstream's tools have been listed since it came up or said that they
// have changed.
type primer struct {
	mu      sync.Mutex
	current bool
	changes int           // since the session began
	running chan struct{} // nil: nobody lists
}

// stale has the tools listed again before the next call.
func (p *primer) stale() {
	p.mu.Lock()
	p.current = false
	p.changes++
	p.mu.Unlock()
}

// prime has the chain see the upstream's tools, and learns what the upstream calls itself, before the
// first call of a tool is let through. Calls that come meanwhile wait too. It is bounded and its failure
// is not fatal: a tool that nobody knows is treated as the worst that it can be.
func (c *core) prime(ctx context.Context, m *Message) {
	for {
		c.primer.mu.Lock()
		if c.primer.current {
			c.primer.mu.Unlock()
			return
		}
		if running := c.primer.running; running != nil {
			c.primer.mu.Unlock()
			if waitFor(ctx, running) != nil {
				return
			}
			continue
		}
		running := make(chan struct{})
		c.primer.running = running
		changes := c.primer.changes
		c.primer.mu.Unlock()

		done := c.primeOnce(ctx, m)

		c.primer.mu.Lock()
		c.primer.current = done && changes == c.primer.changes
		c.primer.running = nil
		c.primer.mu.Unlock()
		close(running)
		return
	}
}

// primeOnce reports whether the next call need not try again: it has worked, or the upstream is there
// and does not answer.
func (c *core) primeOnce(ctx context.Context, m *Message) bool {
	bounded, cancel := context.WithTimeout(ctx, primeTimeout)
	defer cancel()
	if _, err := c.link.open(bounded); err != nil {
		return false // the call itself will say so
	}
	meta := requestMeta(m.Params)
	if !c.knowsServer() {
		if err := c.discover(bounded, meta); err != nil {
			c.logger.Warn("upstream did not say its name", slog.Any("error", err))
		}
	}
	if c.opts.Prime {
		if err := c.listTools(bounded, m, meta); err != nil {
			c.logger.Warn("tools not listed before the first call", slog.Any("error", err))
		}
	}
	return ctx.Err() == nil // a caller that left half-way has listed nothing for the others
}

// discover asks an upstream of the stateless generation what it is.
func (c *core) discover(ctx context.Context, meta json.RawMessage) error {
	if meta == nil { // initialize has told, or nothing will
		return nil
	}
	result, err := c.ask(ctx, methodDiscover, []byte(`{"_meta":`+string(meta)+`}`))
	if err != nil {
		return err
	}
	c.learn(methodDiscover, result)
	return nil
}

// listTools runs every page of tools/list through the chain. The pages go no further.
func (c *core) listTools(ctx context.Context, m *Message, meta json.RawMessage) error {
	var cursor json.RawMessage
	for range primePages {
		page, err := c.listPage(ctx, m, toolsListParams(meta, cursor))
		if err != nil {
			return err
		}
		if cursor = splice.Get(page, "nextCursor"); len(cursor) == 0 || cursor[0] != '"' {
			return nil
		}
	}
	return fmt.Errorf("list tools: more than %d pages", primePages)
}

func (c *core) listPage(ctx context.Context, m *Message, params json.RawMessage) (json.RawMessage, error) {
	page := &Message{Method: methodToolsList, Params: params, Header: m.Header}
	reply := c.opts.Chain.Do(ctx, c.request(page), func(ctx context.Context, params json.RawMessage) chain.Answer {
		result, err := c.ask(ctx, methodToolsList, params)
		if err != nil {
			return chain.Answer{Kind: chain.Lost, Cause: err}
		}
		return chain.Answer{Kind: chain.Answered, Result: result}
	})
	reply.Delivered(true)
	if reply.Error != nil {
		return nil, fmt.Errorf("list tools: %s", shorten(string(reply.Error)))
	}
	c.listed.learn(reply.Result)
	return reply.Result, nil
}

// requestMeta returns the members of _meta without which a stateless upstream answers nothing, taken
// from a request of the agent; nil for a request of the older generation.
func requestMeta(params json.RawMessage) json.RawMessage {
	meta := splice.Get(params, "_meta")
	if splice.Get(meta, metaProtocol) == nil {
		return nil
	}
	kept, _, err := splice.Delete(meta, func(name string) bool {
		return name != metaProtocol && name != metaClientInfo && name != metaCapabilities
	})
	if err != nil {
		return nil
	}
	return kept
}

func toolsListParams(meta, cursor json.RawMessage) json.RawMessage {
	switch {
	case meta == nil && cursor == nil:
		return json.RawMessage("{}")
	case meta == nil:
		return []byte(`{"cursor":` + string(cursor) + `}`)
	case cursor == nil:
		return []byte(`{"_meta":` + string(meta) + `}`)
	}
	return []byte(`{"cursor":` + string(cursor) + `,"_meta":` + string(meta) + `}`)
}
