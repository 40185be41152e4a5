package interceptors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"time"
)

// What an invoker is told of a failed handler.
const (
	reasonInternal  = "internal error"
	reasonMalformed = "malformed result"
	reasonCancelled = "cancelled"
)

// Invoke runs one interceptor. Params that cannot be used are a *ParamsError, *NotFoundError or
// *HookError, and no handler is called. A *RespondError of a mutator in the request phase and a
// *BlockError come back as the handler returned them; any other failure of a handler, a panic and an
// unusable result included, is a *CrashError. With a TimeoutMs, Invoke returns a *TimeoutError when it is
// over, cancels the handler's context and discards what it still returns; without one it returns when the
// handler does. What the handler may change is copied for it. An invoker in the same process, which says
// so by Caller.Local, measures by itself: Result.DurationMs is left to it.
func (s *Server) Invoke(ctx context.Context, p *InvokeParams) (*Result, error) {
	e, config, err := s.admit(p)
	if err != nil {
		return nil, err
	}
	w := unwrap(p)
	payload := w.inner
	if !e.readsOnly {
		payload, config = clones(payload, config)
	}
	in := &Invocation{
		Event:   p.Event,
		Phase:   p.Phase,
		Payload: payload,
		Config:  config,
		Context: contextFor(e, p),
		Meta:    p.Meta,
		Caller:  p.Caller,
		Aside:   p.Aside,
	}
	var start time.Time
	if !p.Caller.Local { // an engine in the same process looks at its own clock
		start = time.Now()
	}
	r, err := s.run(ctx, e, in, p.TimeoutMs)
	if err != nil {
		return nil, s.failed(ctx, e, in, err)
	}
	r.Interceptor, r.Type, r.Phase = e.Name, e.Type, p.Phase
	if !p.Caller.Local {
		r.DurationMs = time.Since(start).Milliseconds()
	}
	w.finish(r)
	return r, nil
}

// contextFor is the context that a handler is given: of its own, unless it changes nothing.
func contextFor(e *entry, p *InvokeParams) *Context {
	switch {
	case p.Context == nil:
		return new(Context)
	case e.readsOnly || !p.Caller.Local: // a message's is nobody else's
		return p.Context
	}
	c := *p.Context
	c.Extra = maps.Clone(c.Extra)
	if c.Principal != nil {
		principal := *c.Principal
		c.Principal = &principal
	}
	return &c
}

// clones copies both into one piece of memory; appending to one does not reach the other.
func clones(payload, config json.RawMessage) (_, _ json.RawMessage) {
	if payload == nil || config == nil {
		return bytes.Clone(payload), bytes.Clone(config)
	}
	both := make([]byte, 0, len(payload)+len(config))
	both = append(append(both, payload...), config...)
	at := len(payload)
	return both[:at:at], both[at:]
}

// admit checks the params against what is registered and picks the config.
func (s *Server) admit(p *InvokeParams) (*entry, json.RawMessage, error) {
	if problems := p.problems(nil); len(problems) > 0 {
		return nil, nil, &ParamsError{p.Name, problems}
	}
	e := s.lookup(p.Name)
	if e == nil {
		return nil, nil, &NotFoundError{p.Name}
	}
	if !e.Hooked(p.Event, p.Phase) {
		return nil, nil, &HookError{p.Name, p.Event, p.Phase, e.Hooks}
	}
	if p.Config == nil && e.defaultConfig != nil {
		return e, e.defaultConfig, nil
	}
	if e.schema == nil {
		return e, p.Config, nil
	}
	config := p.Config
	if config == nil {
		config = json.RawMessage("{}") // fits only a schema that requires nothing
	}
	if problems := e.schema.check(config); len(problems) > 0 {
		return nil, nil, &ParamsError{p.Name, problems}
	}
	return e, p.Config, nil
}

// run calls the handler within the invocation's time.
func (s *Server) run(ctx context.Context, e *entry, in *Invocation, timeoutMs int64) (*Result, error) {
	if timeoutMs <= 0 {
		return e.call(ctx, in)
	}
	const most = int64(1<<63-1) / int64(time.Millisecond)
	limited, cancel := context.WithTimeout(ctx, time.Duration(min(timeoutMs, most))*time.Millisecond)
	defer cancel()
	type outcome struct {
		result *Result
		err    error
	}
	done := make(chan outcome, 1)
	s.late.Go(func() {
		r, err := e.call(limited, in)
		done <- outcome{r, err}
	})
	select {
	case o := <-done:
		if o.err == nil || limited.Err() == nil {
			return o.result, o.err
		}
	case <-limited.Done():
	}
	if err := ctx.Err(); err != nil {
		return nil, &CrashError{e.Name, reasonCancelled, err}
	}
	return nil, &TimeoutError{e.Name, in.Phase, timeoutMs}
}

// call runs the handler; a panic is its error.
func (e *entry) call(ctx context.Context, in *Invocation) (r *Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			r, err = nil, &panicError{v, debug.Stack()}
		}
	}()
	return e.run(ctx, in)
}

// panicError is a handler's panic, for the log.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// malformedError is a handler's result that cannot be used.
type malformedError struct{ what string }

func (e *malformedError) Error() string { return e.what }

// failed decides what an invoker may know of a failure, and logs the rest.
func (s *Server) failed(ctx context.Context, e *entry, in *Invocation, err error) error {
	var (
		respond   *RespondError
		block     *BlockError
		timeout   *TimeoutError
		crash     *CrashError
		malformed *malformedError
	)
	switch {
	case errors.As(err, &timeout):
		s.log.WarnContext(ctx, "interceptor timed out", slog.String("interceptor", e.Name),
			slog.Int64("timeoutMs", timeout.TimeoutMs))
		return timeout
	case errors.As(err, &crash) && crash.Reason == reasonCancelled:
		return crash
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return &CrashError{e.Name, reasonCancelled, err}
	case errors.As(err, &block):
		return err
	case errors.As(err, &respond):
		if bad := e.checkRespond(in, respond); bad != nil {
			err = &malformedError{bad.Error()}
			break
		}
		return err
	}
	reason := reasonInternal
	if errors.As(err, &malformed) {
		reason = reasonMalformed
	}
	s.logCrash(ctx, e, err)
	return &CrashError{e.Name, reason, err}
}

func (e *entry) checkRespond(in *Invocation, respond *RespondError) error {
	if e.Type != TypeMutation || in.Phase != PhaseRequest {
		return errors.New("only a mutator of the request phase can answer in the target's place")
	}
	return respond.check()
}

func (s *Server) logCrash(ctx context.Context, e *entry, err error) {
	attrs := []slog.Attr{slog.String("interceptor", e.Name), slog.Any("error", err)}
	var p *panicError
	if errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	s.log.LogAttrs(ctx, slog.LevelError, "interceptor failed", attrs...)
}

func (v *Validator) run(ctx context.Context, in *Invocation) (*Result, error) {
	verdict, err := v.Validate(ctx, in)
	if err != nil {
		return nil, err
	}
	if verdict == nil {
		return nil, &malformedError{"no verdict"}
	}
	if err := checkInfo(verdict.Info); err != nil {
		return nil, err
	}
	for _, s := range verdict.Suggestions {
		if !isValid(s.Value) {
			return nil, &malformedError{"a suggestion is not JSON"}
		}
	}
	b := verdict.body()
	return &Result{
		Info: verdict.Info, Valid: b.Valid, Severity: b.Severity, Messages: b.Messages, Suggestions: b.Suggestions,
	}, nil
}

// run returns the handler's payload, nil when it is unchanged; whether it differs is judged by finish, but
// for one that is certain.
func (m *Mutator) run(ctx context.Context, in *Invocation) (*Result, error) {
	change, err := m.Mutate(ctx, in)
	if err != nil {
		return nil, err
	}
	if change == nil {
		return &Result{}, nil
	}
	if change.Certain {
		return &Result{Payload: change.Payload, Info: change.Info, Certain: change.Payload != nil}, nil
	}
	if change.Payload != nil && !isValid(change.Payload) {
		return nil, &malformedError{"the payload is not JSON"}
	}
	if err := checkInfo(change.Info); err != nil {
		return nil, err
	}
	return &Result{Payload: change.Payload, Info: change.Info}, nil
}

func checkInfo(info json.RawMessage) error {
	if info != nil && (!isObject(info) || !isValid(info)) {
		return &malformedError{"info is not a JSON object"}
	}
	return nil
}
