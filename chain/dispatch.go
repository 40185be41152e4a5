package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrTimeout is the Cause of a Lost answer that was awaited for as long as its Dispatch said.
var ErrTimeout = errors.New("no answer in time")

// errDrained is the cause with which a detached dispatch is cancelled when Drain gives up.
var errDrained = errors.New("the chain is shutting down")

// dispatch sends the operation to its target and settles the end. left says that the caller went away
// first: the answer is then awaited and settled without it.
func (o *operation) dispatch(ctx context.Context, up Upstream, d Dispatch) (a Answer, left bool) {
	if ctx.Err() != nil {
		return o.settleUnsent(ctx, fmt.Errorf("the caller left before the dispatch: %w", context.Cause(ctx))), false
	}
	if err := o.chain.MaySend(ctx, o.exchange); err != nil {
		return o.settleUnsent(ctx, err), false
	}
	ctx = context.WithValue(ctx, exchangeKey{}, o.exchange)
	if len(d.Headers) > 0 {
		ctx = context.WithValue(ctx, headersKey{}, d.Headers)
	}
	if !d.Detach && d.TimeoutMs <= 0 {
		a := contain(ctx, up, o.exchange.Params)
		o.end(ctx, a)
		return a, false
	}
	return o.dispatchApart(ctx, up, d)
}

// MaySend returns why an operation may not be sent any more; nil when it may. The chain asks before it calls an
// Upstream; one that then waits for its connection asks again right before it writes, and is Unsent if it must
// not.
func (c *Chain) MaySend(ctx context.Context, x *Exchange) error {
	if c.opts.Observer.Sending == nil || x == nil {
		return nil
	}
	return c.opts.Observer.Sending(ctx, x)
}

// dispatchApart runs the dispatch in a goroutine of its own, which may outlive its caller.
func (o *operation) dispatchApart(ctx context.Context, up Upstream, d Dispatch) (Answer, bool) {
	w := &waiter{operation: o, ctx: context.WithoutCancel(ctx), answer: make(chan Answer, 1)}
	sendCtx, callerLeft := ctx, (<-chan struct{})(nil)
	if d.Detach {
		sendCtx, callerLeft = w.ctx, ctx.Done()
	}
	if d.TimeoutMs > 0 {
		timer := time.NewTimer(time.Duration(d.TimeoutMs) * time.Millisecond)
		w.timer, w.over = timer, timer.C
	}
	sendCtx, cancel := context.WithCancelCause(sendCtx)
	unhook := context.AfterFunc(o.chain.stop, func() { cancel(errDrained) })
	o.chain.inflight.add()
	go func() {
		defer o.chain.inflight.done()
		w.answer <- contain(sendCtx, up, o.exchange.Params)
		unhook()
		cancel(nil)
	}()
	if !d.Detach {
		w.cancel = cancel
	}
	return w.wait(callerLeft)
}

// waiter awaits one dispatch that runs apart.
type waiter struct {
	operation *operation
	ctx       context.Context // the caller's values without its end
	answer    chan Answer
	timer     *time.Timer
	over      <-chan time.Time // nil: no timeout
	cancel    context.CancelCauseFunc
}

func (w *waiter) wait(callerLeft <-chan struct{}) (Answer, bool) {
	select {
	case a := <-w.answer:
		return w.ended(a), false
	case <-w.over:
		return w.lost(), false
	case <-callerLeft:
	}
	select {
	case a := <-w.answer: // both were true: an answer that is there is not thrown away
		return w.ended(a), false
	default:
	}
	w.apart(func() {
		select {
		case a := <-w.answer:
			w.ended(a)
		case <-w.over:
			w.settleLost()
			w.awaitLate()
		}
	})
	return Answer{}, true
}

func (w *waiter) ended(a Answer) Answer {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.operation.end(w.ctx, a)
	return a
}

// lost ends the waiting, not the dispatch: an answer that still comes is settled.
func (w *waiter) lost() Answer {
	a := w.settleLost()
	w.apart(w.awaitLate)
	return a
}

func (w *waiter) settleLost() Answer {
	a := Answer{Kind: Lost, Cause: ErrTimeout}
	w.operation.settle(w.ctx, a)
	if w.cancel != nil { // not detached: nobody has asked that it goes on
		w.cancel(ErrTimeout)
	}
	return a
}

func (w *waiter) awaitLate() {
	if a := <-w.answer; a.Kind == Answered {
		w.operation.settle(w.ctx, a)
	}
}

// apart goes on without the caller, who never gets the answer that f awaits: once it is settled, that is
// said too.
func (w *waiter) apart(f func()) {
	o := w.operation
	o.told.Store(true)
	o.chain.inflight.add()
	go func() {
		defer o.chain.inflight.done()
		f()
		o.delivered(w.ctx, time.Now(), false)
	}()
}

// end settles what a dispatch came to.
func (o *operation) end(ctx context.Context, a Answer) {
	if a.Kind == Unsent {
		o.unsent.Store(true)
	}
	o.settle(ctx, a)
}

// contain calls up. A panic, or an answer that is none, is a lost one: what up did before is not known.
func contain(ctx context.Context, up Upstream, params json.RawMessage) (a Answer) {
	defer func() {
		if p := recover(); p != nil {
			a = Answer{Kind: Lost, Cause: newPanicError("upstream", p)}
		}
	}()
	a = up(ctx, params)
	switch a.Kind {
	case Unsent, Lost:
		a.Result, a.Error = nil, nil
	case Answered:
		if (a.Result == nil) == (a.Error == nil) {
			return Answer{Kind: Lost, Cause: errors.New("an answer needs a result or an error, not both")}
		}
	default:
		return Answer{Kind: Lost, Cause: fmt.Errorf("unknown kind of answer %q", a.Kind)}
	}
	return a
}

// Wait returns when no dispatch is awaited any more that its caller has left, or with ctx's error.
func (c *Chain) Wait(ctx context.Context) error { return c.inflight.wait(ctx) }

// drainGrace is how long cancelled dispatches may take to be settled.
const drainGrace = 5 * time.Second

// Drain waits like Wait. When ctx ends first it cancels what still runs apart from its caller, lets it be
// settled as its Upstream then says, and returns ctx's error. A Chain that was drained MUST NOT be given
// new operations.
func (c *Chain) Drain(ctx context.Context) error {
	err := c.inflight.wait(ctx)
	if err == nil {
		return nil
	}
	c.giveUp()
	grace, cancel := context.WithTimeout(context.Background(), drainGrace)
	defer cancel()
	_ = c.inflight.wait(grace) // whatever is left after that has ignored its context
	return err
}
