package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"runtime/debug"
	"time"

	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// PauseKey is the key under which an interceptor that stops an operation says that somebody must decide
// on it: in the info of a rejection, or in the data of a BlockError. Honoured from in-process entries and
// trusted hosts.
const PauseKey = "dev.undolog/pause"

// Pause says that an operation waits for somebody's decision. The chain itself decides nothing and keeps
// nothing: who let the operation be tried again is asked by the interceptor, not by the chain.
type Pause struct {
	ID    string    `json:"id"`             // of what is to be decided
	URL   string    `json:"url,omitempty"`  // where it is decided
	Text  string    `json:"text,omitempty"` // for people
	Until time.Time `json:"until,omitzero"` // after that nobody can decide any more
	// WaitMs is how long it is worth holding the operation. Zero: not at all.
	WaitMs int64 `json:"waitMs,omitempty"`
	// Handle is by what the operation goes on when the request phase runs again, for this request or for
	// another that repeats it. It is the interceptor's to make and to judge, and the requester's to keep.
	Handle string `json:"handle,omitempty"`
	// Host says that the user of the requester's own host may decide.
	Host bool `json:"host,omitempty"`
}

// HandleKey is the context member that carries Pause.Handle when an operation goes on with a pause. A
// gateway whose requester has sent the handle with a request of its own puts it among Request.Attributes.
const HandleKey = "dev.undolog/handle"

// Decision is what the user of the requester's own host says to a Pause.
type Decision struct {
	Approve bool
	Reason  string
}

// pause is what an entry's rejection says of a decision; nil when it says nothing, or may not.
func (e *entry) pause(res *interceptors.Result) *Pause {
	if !e.trusted {
		return nil
	}
	return pauseOf(res.Info)
}

func pauseOf(object json.RawMessage) *Pause {
	if !bytes.Contains(object, []byte(PauseKey)) {
		return nil
	}
	p := new(Pause)
	if raw := splice.Get(object, PauseKey); raw == nil || json.Unmarshal(raw, p) != nil || p.ID == "" {
		return nil
	}
	return p
}

// paused asks whether the request phase is to run once more. What the stopped try began is settled first:
// nobody may hold a claim while people decide.
func (o *operation) paused(ctx context.Context, p *Pause) (again bool) {
	ask := o.exchange.Request.Pause
	if ask == nil {
		ask = o.chain.opts.Observer.Pause
	}
	if p == nil || ask == nil {
		return false
	}
	defer func() {
		if r := recover(); r != nil {
			again = false
			o.chain.opts.Logger.ErrorContext(ctx, "observer panicked", slog.String("exchange", o.exchange.ID),
				slog.Any("panic", r), slog.String("stack", string(debug.Stack())))
		}
	}()
	o.chain.opts.Logger.InfoContext(ctx, "operation waits for a decision", slog.String("exchange", o.exchange.ID),
		slog.String("event", o.exchange.Request.Event), slog.String("pause", p.ID))
	return ask(ctx, o.exchange, p) && ctx.Err() == nil
}

// resuming is the request as it goes on with a pause.
func (r *Request) resuming(p *Pause) *Request {
	if p.Handle == "" {
		return r
	}
	next := *r
	next.Attributes = maps.Clone(r.Attributes)
	if next.Attributes == nil {
		next.Attributes = make(map[string]json.RawMessage, 1)
	}
	next.Attributes[HandleKey] = quoted(p.Handle)
	return &next
}

// Await returns nil when what p waits for is decided, or can be no more, and ctx's error when ctx ends
// first. Without Observer.Await nobody can say, and it waits for ctx's end.
func (c *Chain) Await(ctx context.Context, x *Exchange, p *Pause) error {
	if c.opts.Observer.Await == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return c.opts.Observer.Await(ctx, x, p)
}

// ErrNoDecider means that nobody takes a decision of the requester's host.
var ErrNoDecider = errors.New("nobody takes this decision")

// Decide passes on what the user of the requester's host has decided. Without error it is recorded.
func (c *Chain) Decide(ctx context.Context, x *Exchange, p *Pause, d *Decision) error {
	if c.opts.Observer.Decide == nil || !p.Host {
		return ErrNoDecider
	}
	return c.opts.Observer.Decide(ctx, x, p, d)
}

// withoutPause is a block as its requester sees it: what the pause says is for the engine.
func withoutPause(b *interceptors.BlockError) *interceptors.BlockError {
	data, dropped, err := splice.Delete(b.Data, func(name string) bool { return name == PauseKey })
	if err != nil || !dropped {
		return b
	}
	told := *b
	told.Data = data
	return &told
}
