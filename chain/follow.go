package chain

import (
	"context"
	"encoding/json"
	"time"
)

// Unfinished is an operation whose answer was a handle of it, a task's, and that nobody follows to its end.
type Unfinished struct {
	Exchange *Exchange
	Handle   json.RawMessage // its answer
	At       time.Time       // when that came
}

// TakesUp reports whether the observer knows of operations that processes before this one have begun.
func (c *Chain) TakesUp() bool { return c.opts.Observer.Unfinished != nil }

// Unfinished lists what was begun by processes that are no more, for the target of r and on behalf of its
// principal: an engine that can reach the target follows it from here on.
func (c *Chain) Unfinished(ctx context.Context, r *Request) ([]Unfinished, error) {
	if !c.TakesUp() {
		return nil, nil
	}
	return c.opts.Observer.Unfinished(ctx, r)
}

// Follow tells the observer that the end of an operation is being followed by its handle, or, with false, that
// it is not any more and its end is not known. Ended ends it too.
func (c *Chain) Follow(ctx context.Context, x *Exchange, following bool) {
	if told := c.opts.Observer.Followed; told != nil {
		(&operation{chain: c, exchange: x}).observe(ctx, func(ctx context.Context) { told(ctx, x, following) })
	}
}

// Ended tells the observer how an operation ended whose first answer was a handle, with no requester there to
// be answered: no phase runs. Resume is for one that is.
func (c *Chain) Ended(ctx context.Context, x *Exchange, a Answer) {
	if told := c.opts.Observer.Ended; told != nil {
		(&operation{chain: c, exchange: x}).observe(ctx, func(ctx context.Context) { told(ctx, x, a) })
	}
}

type exchangeKey struct{}

// ExchangeOf returns the exchange that is being dispatched. ctx is an Upstream's.
func ExchangeOf(ctx context.Context) *Exchange {
	x, _ := ctx.Value(exchangeKey{}).(*Exchange)
	return x
}
