package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/undolog/undolog/interceptors"
)

// TimeoutError says that the host did not answer in the time that a request had.
type TimeoutError struct {
	Host  string
	After time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("host %s: no answer in %s", e.Host, e.After.Round(time.Millisecond))
}

// do runs one request: in its turn, unless the breaker is open, on a connection that stands. limit is how
// long it is awaited, and patience how long the host itself was told that it has; zero: it was not.
func (h *Host) do(ctx context.Context, limit, patience time.Duration, f func(ctx context.Context, up *life) error) error {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return fmt.Errorf("host %s: wait for a turn: %w", h.name, context.Cause(ctx))
	case <-h.ctx.Done():
		return errClosed
	}
	if err := h.breaker.enter(h.name); err != nil {
		return err
	}
	outcome := undecided
	defer func() { h.judged(outcome) }()
	c := h.conns[int(h.next.Add(1))%len(h.conns)]
	waiting, stop := context.WithTimeout(ctx, h.opts.Timeout)
	up, err := c.connected(waiting)
	stop()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(up.ctx, cancel)() // a connection that is gone keeps nobody
	began := time.Now()
	up.asked.Add(1)
	err = f(bounded, up)
	up.asked.Add(-1)
	outcome, err = h.judge(bounded, time.Since(began), limit, patience, err)
	if outcome == broken {
		c.lost(up, err)
	}
	return err
}

// outcome is what a request says of its host.
type outcome int

const (
	undecided outcome = iota // nothing: its caller left, or it was cut short
	alive                    // it answers, whatever it answers
	timedOut                 // it had all the time that it was given
	broken                   // the connection does not stand any more
)

func (h *Host) judge(ctx context.Context, took, limit, patience time.Duration, err error) (outcome, error) {
	var wire *jsonrpc.Error
	var malformed *interceptors.MalformedError
	var respond *interceptors.RespondError
	var block *interceptors.BlockError
	switch {
	case err == nil, errors.As(err, &wire), errors.As(err, &malformed), errors.As(err, &respond), errors.As(err, &block):
		return alive, err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		if took >= limit || patience > 0 && took >= patience {
			return timedOut, &TimeoutError{h.name, took}
		}
		return undecided, err
	case ctx.Err() != nil:
		return undecided, err
	}
	return broken, fmt.Errorf("host %s: %w", h.name, err)
}

func (h *Host) judged(o outcome) {
	switch h.breaker.leave(o) {
	case BreakerOpen:
		h.logger.Error("interceptor host is not asked for a while: it does not answer", slog.Duration("for", h.opts.BreakFor))
	case BreakerClosed:
		h.logger.Info("interceptor host answers again")
	}
}
