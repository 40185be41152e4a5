package chain

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/interceptors"
)

// Do takes one operation through the chain: the request phase, the dispatch by up, the response phase. It
// always returns a reply. Whenever the request phase has begun and up was not answered for by an
// interceptor, Observer.Settled is called, whatever happens: an error, a panic of up, an abort, a caller
// who leaves. An operation that is not Governed goes to up directly, seen by nobody.
func (c *Chain) Do(ctx context.Context, req *Request, up Upstream) *Reply {
	if !Governed(req.Event) {
		a := contain(ctx, up, req.Params)
		return answerReply(a, nil)
	}
	for {
		o := &operation{chain: c, exchange: c.newExchange(req)}
		if reply := o.run(ctx, up); reply != nil {
			reply.operation = o
			return reply
		}
		req = o.exchange.Request.resuming(o.pause)
	}
}

func (c *Chain) newExchange(req *Request) *Exchange {
	return &Exchange{ID: rand.Text(), Request: req, Params: req.Params, Started: c.opts.Now()}
}

// Resume takes the final answer of an operation whose first answer was a handle of it, a task's: it is
// told to Observer.Settled and passes the response phase that the first answer went through. x is what
// Reply.Exchange gave; a requester's memory failing, an exchange with the request alone, which then has
// no ID.
func (c *Chain) Resume(ctx context.Context, x *Exchange, a Answer) *Reply {
	o := &operation{chain: c, exchange: x}
	o.settle(ctx, a)
	reply := o.answer(ctx, a, Outcome{Verdict: Allowed, Phase: interceptors.PhaseResponse})
	reply.operation = o
	return reply
}

// operation is one exchange under way.
type operation struct {
	chain    *Chain
	exchange *Exchange
	unsent   atomic.Bool // settled as Unsent
	told     atomic.Bool // Delivered has been called, or is to be by a waiter
	evidence evidence
	pause    *Pause // for which run returned nil
}

// run returns nil when the request phase is to be tried again, as an exchange of its own; this one is over.
func (o *operation) run(ctx context.Context, up Upstream) *Reply {
	if stopped := o.takeAnswers(ctx); stopped != nil {
		return stopped
	}
	request := o.phase(ctx, interceptors.PhaseRequest, o.exchange.Params)
	switch {
	case request.Abort != nil:
		o.settleUnsent(ctx, fmt.Errorf("stopped by interceptor %s", request.Abort.Interceptor))
		if o.paused(ctx, request.Abort.Pause) {
			o.delivered(ctx, time.Now(), false)
			o.pause = request.Abort.Pause
			return nil
		}
		return o.blocked(ctx, interceptors.PhaseRequest, request)
	case request.Respond != nil:
		o.exchange.Params = request.Payload
		return o.respond(ctx, request)
	}
	o.exchange.Params = request.Payload
	a, left := o.dispatch(ctx, up, request.Dispatch)
	switch {
	case left:
		return o.finish(ctx, &Reply{Error: errCancelled}, Outcome{Verdict: Detached, Phase: interceptors.PhaseRequest})
	case a.Kind != Answered:
		return o.unanswered(ctx, a)
	}
	return o.answer(ctx, a, Outcome{Verdict: Allowed, Phase: interceptors.PhaseResponse})
}

// phase runs one phase of the exchange.
func (o *operation) phase(ctx context.Context, phase interceptors.Phase, payload json.RawMessage) *PhaseResult {
	return o.chain.Execute(ctx, &PhaseParams{
		Event:    o.exchange.Request.Event,
		Phase:    phase,
		Payload:  payload,
		Request:  o.exchange.Request,
		Exchange: o.exchange.ID,
		late:     func() { o.settleLateClaim(ctx) },
	})
}

// respond puts an interceptor's answer in the target's place. Nothing was dispatched, so nothing is
// settled.
func (o *operation) respond(ctx context.Context, request *PhaseResult) *Reply {
	o.chain.opts.Logger.DebugContext(ctx, "answered in the target's place",
		slog.String("interceptor", request.responder), slog.String("exchange", o.exchange.ID))
	a := Answer{Kind: Answered, Result: request.Respond.Result, Error: request.Respond.Err}
	return o.answer(ctx, a, Outcome{Verdict: Responded, Phase: interceptors.PhaseRequest, By: request.responder})
}

// answer takes the target's answer back to the requester. Only results are governed: the response phase
// does not run on errors.
func (o *operation) answer(ctx context.Context, a Answer, outcome Outcome) *Reply {
	if a.Error != nil {
		return o.finish(ctx, &Reply{Error: a.Error, carries: true}, outcome)
	}
	response := o.phase(ctx, interceptors.PhaseResponse, a.Result)
	if response.Abort != nil {
		return o.blocked(ctx, interceptors.PhaseResponse, response)
	}
	result, stopped := o.takeQuestions(ctx, o.scoped(response))
	if stopped != nil {
		return stopped
	}
	return o.finish(ctx, &Reply{Result: result, carries: true}, outcome)
}

func (o *operation) blocked(ctx context.Context, phase interceptors.Phase, r *PhaseResult) *Reply {
	outcome := Outcome{Verdict: Failed, Phase: phase, By: r.Abort.Interceptor, Reason: r.Abort.Reason}
	if r.Abort.Denied {
		outcome.Verdict = Blocked
	}
	o.chain.opts.Logger.InfoContext(ctx, "operation stopped",
		slog.String("exchange", o.exchange.ID), slog.String("event", o.exchange.Request.Event),
		slog.String("phase", string(phase)), slog.String("verdict", string(outcome.Verdict)),
		slog.String("interceptor", outcome.By), slog.String("reason", outcome.Reason))
	return o.finish(ctx, &Reply{Error: abortError(phase, r), Pause: r.Abort.Pause}, outcome)
}

func (o *operation) unanswered(ctx context.Context, a Answer) *Reply {
	reply := answerReply(a, o.explain(ctx, a))
	outcome := Outcome{Verdict: Failed, Phase: interceptors.PhaseRequest, Reason: string(a.Kind)}
	if a.Cause != nil {
		outcome.Reason = brief(a.Cause)
		noteWhole(ctx, o.chain.opts.Logger, o.exchange.ID, a.Cause)
	}
	o.chain.opts.Logger.WarnContext(ctx, "dispatch unanswered",
		slog.String("exchange", o.exchange.ID), slog.String("event", o.exchange.Request.Event),
		slog.String("kind", string(a.Kind)), slog.String("reason", outcome.Reason))
	return o.finish(ctx, reply, outcome)
}

func (o *operation) finish(ctx context.Context, reply *Reply, outcome Outcome) *Reply {
	reply.Outcome = outcome
	if told := o.chain.opts.Observer.Outcome; told != nil {
		o.observe(ctx, func(ctx context.Context) { told(ctx, o.exchange, outcome) })
	}
	return reply
}

// observe calls an observer outside the caller's context; its panic ends nothing but itself.
func (o *operation) observe(ctx context.Context, f func(context.Context)) {
	defer func() {
		if p := recover(); p != nil {
			o.chain.opts.Logger.ErrorContext(ctx, "observer panicked", slog.String("exchange", o.exchange.ID),
				slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	f(context.WithoutCancel(ctx))
}

func (o *operation) settle(ctx context.Context, a Answer) {
	if settled := o.chain.opts.Observer.Settled; settled != nil {
		o.observe(ctx, func(ctx context.Context) { settled(ctx, o.exchange, a) })
	}
}

func (o *operation) delivered(ctx context.Context, at time.Time, delivered bool) {
	if told := o.chain.opts.Observer.Delivered; told != nil {
		o.observe(ctx, func(ctx context.Context) { told(ctx, o.exchange, at, delivered) })
	}
}

func (o *operation) settleUnsent(ctx context.Context, cause error) Answer {
	a := Answer{Kind: Unsent, Cause: cause}
	o.unsent.Store(true)
	o.settle(ctx, a)
	return a
}

var errLateInterceptor = errors.New("an interceptor that was given up on returned after the operation was stopped")

// settleLateClaim settles once more what an interceptor began after everybody had stopped waiting for it.
func (o *operation) settleLateClaim(ctx context.Context) {
	if o.unsent.Load() {
		o.settle(ctx, Answer{Kind: Unsent, Cause: errLateInterceptor})
	}
}

func (o *operation) explain(ctx context.Context, a Answer) (block *interceptors.BlockError) {
	if explain := o.chain.opts.Observer.Explain; explain != nil {
		o.observe(ctx, func(ctx context.Context) { block = explain(ctx, o.exchange, a) })
	}
	return block
}
