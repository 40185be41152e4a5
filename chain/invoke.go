package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"time"

	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/jcs"
	"github.com/undolog/undolog/internal/splice"
)

// deadlineGrace is how much later than its host a chain gives up on an invocation: the host's own answer
// says more.
const deadlineGrace = 100 * time.Millisecond

// outcome is what one invocation came to: a result that is well formed, a failure, or, from an active
// entry of a trusted host, a block or an answer in the target's place.
type outcome struct {
	result  *interceptors.Result
	failure error
	block   *interceptors.BlockError
	respond *interceptors.RespondError
	elapsed time.Duration
}

// invoke runs one entry on the current payload.
func (r *run) invoke(ctx context.Context, e *entry) outcome {
	started := time.Now()
	res, err := r.call(ctx, e)
	if err == nil {
		err = r.checkEcho(ctx, e, res)
	}
	o := outcome{elapsed: time.Since(started)}
	if err != nil {
		r.sort(e, err, &o)
	} else {
		o.result = res
		if e.local {
			res.DurationMs = o.elapsed.Milliseconds()
		}
	}
	if o.failure != nil {
		r.noteFailure(ctx, e, o.failure)
	}
	return o
}

// sort tells an answer that a trusted interceptor gave by an error from a failure. A crash is a failure
// whatever it wraps.
func (r *run) sort(e *entry, err error, o *outcome) {
	var crash *interceptors.CrashError
	if !e.trusted || e.audit() || errors.As(err, &crash) {
		o.failure = err
		return
	}
	var respond *interceptors.RespondError
	if errors.As(err, &respond) {
		if e.descriptor.Type != interceptors.TypeMutation || r.params.Phase != interceptors.PhaseRequest ||
			(respond.Result == nil) == (respond.Err == nil) {
			o.failure = fmt.Errorf("answer in the target's place out of place: %w", err)
			return
		}
		o.respond = respond
		return
	}
	var block *interceptors.BlockError
	if !errors.As(err, &block) {
		o.failure = err
		return
	}
	o.block = block
}

// call invokes, and gives up when the deadline of the invocation or of the phase is over, whether or not
// the host then returns.
func (r *run) call(ctx context.Context, e *entry) (*interceptors.Result, error) {
	if e.missing != nil {
		return nil, e.missing
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("not called: %w", context.Cause(ctx))
	}
	if size := int64(len(r.current)); e.maxPayload > 0 && size > e.maxPayload {
		return nil, fmt.Errorf("not called: the payload of %d bytes is above the limit of %d", size, e.maxPayload)
	}
	params := r.invokeParams(e)
	if e.timeoutMs == 0 && r.chain.opts.Deadline == 0 {
		return contained(ctx, e.host, params)
	}
	if e.timeoutMs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.patience())
		defer cancel()
	}
	return r.callBounded(ctx, e, params)
}

type returned struct {
	res *interceptors.Result
	err error
}

func (r *run) callBounded(ctx context.Context, e *entry, params *interceptors.InvokeParams) (*interceptors.Result, error) {
	answer, gaveUp := make(chan returned), make(chan struct{})
	r.chain.inflight.add()
	go func() {
		defer r.chain.inflight.done()
		res, err := contained(ctx, e.host, params)
		select {
		case answer <- returned{res, err}:
		case <-gaveUp:
			if r.params.late != nil {
				r.params.late()
			}
		}
	}()
	select {
	case a := <-answer:
		return a.res, a.err
	case <-ctx.Done():
		close(gaveUp)
		return nil, fmt.Errorf("given up on: %w", context.Cause(ctx))
	}
}

// contained invokes and turns a panic into an error.
func contained(ctx context.Context, host Host, params *interceptors.InvokeParams) (res *interceptors.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, newPanicError("host "+host.Name(), p)
		}
	}()
	res, err = host.Invoke(ctx, params)
	if err == nil && res == nil {
		err = errors.New("malformed result: none")
	}
	return res, err
}

// invokeParams are what an entry is invoked with. What a local server would have to copy for a handler that
// may change it, it copies itself; to any other host nothing in them is shared with another invocation.
func (r *run) invokeParams(e *entry) *interceptors.InvokeParams {
	p := &interceptors.InvokeParams{
		Name:      e.descriptor.Name,
		Event:     r.params.Event,
		Phase:     r.params.Phase,
		Payload:   r.current,
		Config:    e.config,
		TimeoutMs: e.timeoutMs,
	}
	if req := r.params.Request; req != nil {
		p.Caller = req.Caller
	}
	if !e.local {
		p.Payload, p.Context = bytes.Clone(r.current), r.describe()
		return p
	}
	r.describeOnce.Do(func() { r.described = r.describe() })
	p.Context = r.described
	if req := r.params.Request; req != nil && r.params.Phase == interceptors.PhaseRequest {
		p.Aside = req.Aside
	}
	return p
}

// describe makes an invocation's context.
func (r *run) describe() *interceptors.Context {
	var own struct { // in one piece: they live as long as each other
		context   interceptors.Context
		principal interceptors.Principal
	}
	c := &own.context
	c.Timestamp = r.timestamp
	var attributes map[string]json.RawMessage
	if req := r.params.Request; req != nil {
		if req.Principal != nil {
			own.principal = *req.Principal
			c.Principal = &own.principal
		}
		c.TraceID, c.SpanID, c.SessionID = req.TraceID, req.SpanID, req.SessionID
		attributes = req.Attributes
	}
	if r.exchange == nil {
		c.Extra = maps.Clone(attributes)
		return c
	}
	c.Extra = make(map[string]json.RawMessage, len(attributes)+1)
	maps.Copy(c.Extra, attributes)
	c.Extra[ExchangeKey] = r.exchange
	return c
}

// checkEcho refuses a result that is not about this invocation. A host that echoes nothing at all is an
// old one and taken at its word, unless it was made strict.
func (r *run) checkEcho(ctx context.Context, e *entry, res *interceptors.Result) error {
	if res.Interceptor == "" && res.Type == "" && res.Phase == "" {
		r.chain.opts.Logger.WarnContext(ctx, "interceptor result names neither interceptor, type nor phase",
			slog.String("interceptor", e.descriptor.Name), slog.String("host", e.host.Name()))
	} else if res.Interceptor != e.descriptor.Name || res.Type != e.descriptor.Type || res.Phase != r.params.Phase {
		return fmt.Errorf("malformed result: it is of %s %q in phase %s", res.Type, res.Interceptor, res.Phase)
	}
	if res.Modified && len(res.Payload) == 0 {
		return errors.New("malformed result: modified, and no payload")
	}
	return nil
}

// direct takes the dispatch directive of a trusted entry of the request phase: any of them may detach,
// the shortest timeout counts, and of a header the last.
func (r *run) direct(e *entry, o *outcome) {
	if o.result == nil || !e.trusted || e.audit() || r.params.Phase != interceptors.PhaseRequest ||
		!bytes.Contains(o.result.Info, []byte(DispatchKey)) {
		return
	}
	own, ok := readDispatch(splice.Get(o.result.Info, DispatchKey))
	if !ok {
		return
	}
	d := &r.out.Dispatch
	d.Detach = d.Detach || own.Detach
	if ms := own.TimeoutMs; ms > 0 && (d.TimeoutMs == 0 || ms < d.TimeoutMs) {
		d.TimeoutMs = ms
	}
	if len(own.Headers) > 0 {
		all := maps.Clone(d.Headers)
		if all == nil {
			all = make(map[string]string, len(own.Headers))
		}
		maps.Copy(all, own.Headers)
		d.Headers = all
	}
}

// readDispatch reads a directive; false when there is none, or one that cannot be read.
func readDispatch(raw json.RawMessage) (d Dispatch, ok bool) {
	plain := true // as we write it ourselves
	err := splice.Scan(raw, func(name, value []byte) {
		ms, notNumber := strconv.ParseInt(string(value), 10, 64)
		switch {
		case string(name) == "detach" && string(value) == "true":
			d.Detach = true
		case string(name) == "timeoutMs" && notNumber == nil:
			d.TimeoutMs = ms
		default:
			plain = false
		}
	})
	if err == nil && plain {
		return d, true
	}
	var decoded Dispatch
	if raw == nil || json.Unmarshal(raw, &decoded) != nil {
		return Dispatch{}, false
	}
	return decoded, true
}

func quoted(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // a string always encodes
	return raw
}

func isObject(raw json.RawMessage) bool {
	trimmed := bytes.TrimLeft(raw, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{'
}

// sameJSON reports whether two payloads mean the same, integers compared by every digit.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	ca, err := jcs.Canonical(a)
	if err != nil {
		return false
	}
	cb, err := jcs.Canonical(b)
	return err == nil && bytes.Equal(ca, cb)
}
