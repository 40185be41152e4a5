package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"
)

// External is an adapter in another program, spoken to in JSON lines over its standard input and output as
// docs/conformance-adapter.md says. It is safe for concurrent use; calls go one at a time.
type External struct {
	name     string
	features []Feature
	apply    string // what the adapter calls the fourth call

	mu       sync.Mutex
	in       io.WriteCloser
	out      *bufio.Reader
	stop     func() error
	id       int64
	sessions int64
	broken   error // set when the program can no longer be spoken to
}

var _ Adapter = (*External)(nil)

// helloTimeout bounds the start of an adapter.
const helloTimeout = 30 * time.Second

// StartExternal starts an adapter. Its standard error goes to errs.
func StartExternal(ctx context.Context, argv []string, errs io.Writer) (*External, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start adapter: %w", err)
	}
	e := &External{in: in, out: bufio.NewReaderSize(out, 64<<10), apply: "apply"}
	e.stop = func() error {
		timer := time.AfterFunc(15*time.Second, func() { _ = cmd.Process.Kill() }) // it may be gone
		defer timer.Stop()
		return cmd.Wait()
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if err := e.hello(ctx); err != nil {
		_ = cmd.Process.Kill() // the first error says more
		return nil, errors.Join(err, in.Close())
	}
	return e, nil
}

// adapterCall is one line to an adapter.
type adapterCall struct {
	ID           int64           `json:"id"`
	Call         string          `json:"call"`
	Session      string          `json:"session,omitempty"`
	Interceptors []Interceptor   `json:"interceptors,omitempty"`
	Posture      Posture         `json:"posture,omitempty"`
	Policy       *Policy         `json:"policy,omitempty"`
	Host         *HostOptions    `json:"host,omitempty"`
	Event        *string         `json:"event,omitempty"`
	Params       json.RawMessage `json:"params,omitempty"`
	Phase        string          `json:"phase,omitempty"`
	Payload      json.RawMessage `json:"payload,omitempty"`
	SessionID    *string         `json:"sessionId,omitempty"`
	Context      *Context        `json:"context,omitempty"`
	Upstream     *Upstream       `json:"upstream,omitempty"`
}

// adapterReply is one line of an adapter.
type adapterReply struct {
	ID           int64                        `json:"id"`
	OK           bool                         `json:"ok"`
	Message      string                       `json:"message"` // why it is not ok
	Unsupported  bool                         `json:"unsupported"`
	ErrorCode    *int64                       `json:"errorCode"`
	Error        *WireError                   `json:"error"`
	Name         string                       `json:"name"`
	Features     []Feature                    `json:"features"`
	Apply        string                       `json:"apply"`
	Result       json.RawMessage              `json:"result"`
	Decision     string                       `json:"decision"`
	FinalPayload json.RawMessage              `json:"finalPayload"`
	Summary      json.RawMessage              `json:"summary"`
	Recorded     []string                     `json:"recorded"`
	Failed       []string                     `json:"failed"`
	Calls        map[string][]json.RawMessage `json:"calls"` // by this call
	Received     json.RawMessage              `json:"received"`
	Alerts       []string                     `json:"alerts"` // of this call
}

func (e *External) hello(ctx context.Context) error {
	reply, err := e.call(ctx, &adapterCall{Call: "hello"})
	if err != nil {
		return fmt.Errorf("greet adapter: %w", err)
	}
	if !reply.OK || reply.Name == "" {
		return fmt.Errorf("greet adapter: it answers without a name: %s", reply.Message)
	}
	e.name, e.features = reply.Name, reply.Features
	if reply.Apply != "" {
		e.apply = reply.Apply
	}
	return nil
}

// call sends a line and reads the answer. After a failure the adapter is not spoken to again.
func (e *External) call(ctx context.Context, c *adapterCall) (*adapterReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken != nil {
		return nil, e.broken
	}
	e.id++
	c.ID = e.id
	line, err := marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode call: %w", err)
	}
	type read struct {
		line []byte
		err  error
	}
	got := make(chan read, 1)
	go func() {
		if _, err := e.in.Write(append(line, '\n')); err != nil {
			got <- read{nil, err}
			return
		}
		line, err := e.out.ReadBytes('\n')
		got <- read{line, err}
	}()
	select {
	case r := <-got:
		reply := new(adapterReply)
		if r.err == nil {
			r.err = json.Unmarshal(r.line, reply)
		}
		if r.err == nil && reply.ID != c.ID {
			r.err = fmt.Errorf("answer to call %d, want %d", reply.ID, c.ID)
		}
		if r.err != nil {
			e.broken = fmt.Errorf("call adapter %s: %w", c.Call, r.err)
			return nil, e.broken
		}
		return reply, nil
	case <-ctx.Done():
		e.broken = fmt.Errorf("call adapter %s: no answer: %w", c.Call, ctx.Err())
		return nil, e.broken
	}
}

// Name implements Adapter.
func (e *External) Name() string { return e.name }

// Has implements Adapter.
func (e *External) Has(f Feature) bool {
	return f == FeatureInvoke && !slices.Contains(e.features, "no-invoke") || slices.Contains(e.features, f)
}

// CreateSession implements Adapter.
func (e *External) CreateSession(ctx context.Context, f *Fixture) (Session, error) {
	e.mu.Lock()
	e.sessions++
	id := "session-" + strconv.FormatInt(e.sessions, 10)
	e.mu.Unlock()
	c := &adapterCall{Call: "createSession", Session: id, Interceptors: f.Interceptors, Posture: f.Posture}
	if c.Posture == PostureAny {
		c.Posture = PostureClient
	}
	if f.Policy.isSet() {
		c.Policy = &f.Policy
	}
	if f.Host.LegacyEnvelope || f.Host.LegacyTimeoutCode || len(f.Host.Down) > 0 {
		c.Host = &f.Host
	}
	if _, err := e.ok(ctx, c); err != nil {
		return nil, err
	}
	return &externalSession{adapter: e, id: id, calls: map[string][]json.RawMessage{}}, nil
}

// ok makes a call that must succeed.
func (e *External) ok(ctx context.Context, c *adapterCall) (*adapterReply, error) {
	reply, err := e.call(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case reply.Unsupported:
		return nil, fmt.Errorf("%w: %s", ErrUnsupported, reply.Message)
	case !reply.OK:
		return nil, fmt.Errorf("adapter: %s: %s", c.Call, reply.Message)
	}
	return reply, nil
}

// Close ends the program by closing its standard input.
func (e *External) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(e.in.Close(), e.stop())
}

type externalSession struct {
	adapter *External
	id      string
	calls   map[string][]json.RawMessage
	alerts  AlertLog
}

func (s *externalSession) List(ctx context.Context, event *string) (*Answer, error) {
	return s.answer(ctx, &adapterCall{Call: "list", Event: event})
}

func (s *externalSession) Invoke(ctx context.Context, params json.RawMessage) (*Answer, error) {
	return s.answer(ctx, &adapterCall{Call: "invoke", Params: params})
}

// answer makes a call whose failure is a JSON-RPC error.
func (s *externalSession) answer(ctx context.Context, c *adapterCall) (*Answer, error) {
	c.Session = s.id
	reply, err := s.adapter.call(ctx, c)
	if err != nil {
		return nil, err
	}
	s.note(reply)
	switch {
	case reply.Unsupported:
		return nil, fmt.Errorf("%w: %s", ErrUnsupported, reply.Message)
	case reply.OK:
		return &Answer{Result: reply.Result}, nil
	case reply.Error != nil:
		return &Answer{Error: reply.Error}, nil
	case reply.ErrorCode != nil:
		return &Answer{Error: &WireError{Code: *reply.ErrorCode, Message: reply.Message}}, nil
	}
	return nil, fmt.Errorf("adapter: %s: %s", c.Call, reply.Message)
}

func (s *externalSession) note(r *adapterReply) {
	for name, payloads := range r.Calls {
		s.calls[name] = append(s.calls[name], payloads...)
	}
	for _, text := range r.Alerts {
		fmt.Fprintln(&s.alerts, text)
	}
}

// Alerts implements Alerter: nothing comes after the answer.
func (s *externalSession) Alerts(context.Context, []string) string {
	told, _ := s.alerts.written()
	return told
}

// Calls implements Counter.
func (s *externalSession) Calls() map[string][]json.RawMessage {
	out := make(map[string][]json.RawMessage, len(s.calls))
	for name, payloads := range s.calls {
		out[name] = payloads[:len(payloads):len(payloads)]
	}
	return out
}

func (s *externalSession) Apply(ctx context.Context, step *Step) (*Decision, error) {
	c := &adapterCall{Call: s.adapter.apply, Session: s.id, Event: step.Event, Phase: step.Phase, Payload: step.Payload, Context: step.Context}
	if step.Context != nil && step.Context.SessionID != "" {
		c.SessionID = &step.Context.SessionID
	}
	reply, err := s.adapter.ok(ctx, c)
	if err != nil {
		return nil, err
	}
	s.note(reply)
	d := &Decision{Decision: reply.Decision, FinalPayload: reply.FinalPayload, Summary: reply.Summary, Recorded: reply.Recorded, Failed: reply.Failed}
	if d.Failed == nil {
		d.Failed = []string{}
	}
	return d, nil
}

func (s *externalSession) Exchange(ctx context.Context, step *Step) (*Exchanged, error) {
	c := &adapterCall{Call: "exchange", Event: step.Event, Payload: step.Payload, Context: step.Context, Upstream: step.Upstream, Session: s.id}
	reply, err := s.adapter.call(ctx, c)
	if err != nil {
		return nil, err
	}
	s.note(reply)
	if reply.Unsupported {
		return nil, fmt.Errorf("%w: %s", ErrUnsupported, reply.Message)
	}
	return &Exchanged{Answer: Answer{Result: reply.Result, Error: reply.Error}, Received: reply.Received}, nil
}

func (s *externalSession) Close() error {
	_, err := s.adapter.ok(context.Background(), &adapterCall{Call: "closeSession", Session: s.id})
	return err
}
