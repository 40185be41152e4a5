package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
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

// paused asks the observer whether the request phase is to run once more. What the stopped try began is
// settled first: nobody may hold a claim while people decide.
func (o *operation) paused(ctx context.Context, p *Pause) (again bool) {
	ask := o.chain.opts.Observer.Pause
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
	if !ask(ctx, o.exchange, p) || ctx.Err() != nil {
		return false
	}
	return p.Until.IsZero() || o.chain.opts.Now().Before(p.Until)
}
