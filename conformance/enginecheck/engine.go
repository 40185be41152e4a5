// Package enginecheck checks an engine that is a program, from both of its sides: it is the interceptor
// host that the engine asks, the MCP server that the engine stands before, and the agent that calls.
//
// The engine speaks MCP on its standard input and output. Each fixture starts it anew. What one phase came
// to shows from outside: whether the server was called, with which params, what the agent got.
package enginecheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/behavior"
	"github.com/undolog/undolog/conformance/wire"
	"github.com/undolog/undolog/interceptors"
)

// Engine is the program to check.
type Engine struct {
	// Command has {hosts} where the URL of the interceptor host goes, {upstream} where that of the MCP
	// server, {config} where the path of a file made from Config, and {dir} where that of a directory which
	// lives as long as the engine; in any argument.
	Command []string
	// Config is a template of the engine's configuration; the same is replaced in it.
	Config string
	// Configure, where it is not nil, writes the configuration for each fixture in place of Config; urls has
	// the fixture's hosts by name. Without it, fixtures with several hosts or a policy are skipped.
	Configure func(f *conformance.Fixture, urls map[string]string) (string, error)
	// Limited says that the engine was told to take no answers of the target above a size of at most 2 MB.
	Limited bool
	// Posture is the side of the trust boundary that the engine stands on. Defaults to client.
	Posture conformance.Posture
	// Env is added to the environment of the program.
	Env []string
	// Errs gets the program's standard error; nil discards it.
	Errs io.Writer
}

// Run tries the fixtures that an engine can be asked from outside; the others are skipped.
func Run(ctx context.Context, e *Engine, fixtures []*conformance.Fixture, opts *conformance.Options) *conformance.Report {
	own := *e
	if e.Errs != nil {
		own.Errs = &shared{w: e.Errs}
	}
	return conformance.Run(ctx, fixtures, &adapter{&own}, opts)
}

// shared is a writer for the programs of several fixtures.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

type adapter struct{ engine *Engine }

func (a *adapter) Name() string { return strings.Join(a.engine.Command, " ") }

func (a *adapter) Has(f conformance.Feature) bool {
	if name, ok := strings.CutPrefix(string(f), "behavior:"); ok {
		return behavior.Known(name)
	}
	switch f {
	case conformance.FeaturePolicy, conformance.FeatureHosts:
		return a.engine.Configure != nil
	case conformance.FeatureLimit:
		return a.engine.Limited
	}
	return slices.Contains([]conformance.Feature{conformance.FeatureServerPosture, conformance.FeatureDescriptor,
		conformance.FeatureCalls, conformance.FeatureExchange, conformance.FeatureErrorData,
		conformance.FeatureGateway}, f)
}

// CreateSession implements conformance.Adapter.
func (a *adapter) CreateSession(ctx context.Context, f *conformance.Fixture) (conformance.Session, error) {
	if why := a.unasked(f); why != "" {
		return nil, fmt.Errorf("%w: %s", conformance.ErrUnsupported, why)
	}
	s := new(session)
	if err := s.startHosts(f); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.target = newUpstream(toolNames(f))
	upstream := httptest.NewServer(s.target)
	s.servers = append(s.servers, upstream)
	if err := s.start(ctx, a.engine, f, upstream.URL); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// unasked says why a fixture cannot be asked of an engine from outside.
func (a *adapter) unasked(f *conformance.Fixture) string {
	if f.Rejected {
		return "the engine registers nothing"
	}
	own := a.engine.Posture
	if own == "" {
		own = conformance.PostureClient
	}
	if f.Posture != conformance.PostureAny && f.Posture != own {
		return "it is about the posture of a " + string(f.Posture)
	}
	for i := range f.Steps {
		s := &f.Steps[i]
		if s.Context != nil && s.Context.SessionID != "" {
			return "how an engine names sessions is its own"
		}
		if s.Phase == "request" && s.Op == conformance.OpApply && toolName(s.Payload) == "" {
			return "the payload is no tool call"
		}
	}
	return ""
}

// toolNames are the tools that the fixture's steps call.
func toolNames(f *conformance.Fixture) []string {
	names := []string{carrierTool}
	for i := range f.Steps {
		if name := toolName(f.Steps[i].Payload); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func toolName(payload json.RawMessage) string {
	var p struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(payload, &p) // what is no tool call has no name
	return p.Name
}

// session is an engine with its three neighbours.
type session struct {
	log     behavior.Log
	asked   atomic.Value       // asked
	urls    map[string]string  // of the hosts
	servers []*httptest.Server // hosts and upstream
	target  *upstream
	agent   *wire.Lines
	dir     string // of the session
	carried int    // responses so far

	mu         sync.Mutex // guards what the agent hears
	notes      []json.RawMessage
	question   *conformance.Question
	questioned json.RawMessage
}

// asked is what a step is about: an event, and a phase or, empty, both.
type asked struct{ event, phase string }

// counts lets the invocations that the step is about count; in all others every interceptor passes.
func (s *session) counts(in *interceptors.Invocation) bool {
	now, _ := s.asked.Load().(asked)
	return (now.phase == "" || string(in.Phase) == now.phase) && in.Event == now.event
}

func (s *session) start(ctx context.Context, e *Engine, f *conformance.Fixture, upstream string) error {
	var err error
	if s.dir, err = os.MkdirTemp("", "engine-"); err != nil {
		return err
	}
	config := filepath.Join(s.dir, "engine.yaml")
	replace := strings.NewReplacer("{hosts}", s.urls[f.HostNames()[0]], "{upstream}", upstream, "{dir}", s.dir, "{config}", config)
	text := replace.Replace(e.Config)
	if e.Configure != nil {
		if text, err = e.Configure(f, s.urls); err != nil {
			return err
		}
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	argv := make([]string, len(e.Command))
	for i, arg := range e.Command {
		argv[i] = replace.Replace(arg)
	}
	agent, err := wire.Command(argv, &wire.CommandOptions{Errs: e.Errs, Env: e.Env, OnMessage: s.hear})
	if err != nil {
		return err
	}
	s.agent = agent
	_, err = agent.Start(ctx, wire.Legacy)
	return err
}

// Calls implements conformance.Counter.
func (s *session) Calls() map[string][]json.RawMessage { return s.log.Calls() }

func (s *session) List(context.Context, *string) (*conformance.Answer, error) {
	return nil, conformance.ErrUnsupported
}

func (s *session) Invoke(context.Context, json.RawMessage) (*conformance.Answer, error) {
	return nil, conformance.ErrUnsupported
}

// carrierTool is called where a fixture says no more than what the response is.
const carrierTool = "echo"

// carrier is a call that no other step has made: an engine may take an equal one for a retry.
func (s *session) carrier() json.RawMessage {
	s.carried++
	return fmt.Appendf(nil, `{"name":%q,"arguments":{"note":"NOTE","step":%d}}`, carrierTool, s.carried)
}

// Apply sends a tool call through the engine and looks at one phase of it.
func (s *session) Apply(ctx context.Context, step *conformance.Step) (*conformance.Decision, error) {
	s.asked.Store(asked{"tools/call", step.Phase})
	params, answer := step.Payload, json.RawMessage(`{"content":[{"type":"text","text":"answered"}]}`)
	if step.Phase == "response" {
		params, answer = s.carrier(), step.Payload
	}
	got, received, err := s.exchange(ctx, "tools/call", params, &conformance.Upstream{Result: answer})
	if err != nil {
		return nil, err
	}
	if step.Phase == "response" {
		return decideResponse(got, received)
	}
	return decideRequest(got, received)
}

// decideRequest reads the decision of a request phase: the target was called, or it was not.
func decideRequest(got *conformance.Answer, received json.RawMessage) (*conformance.Decision, error) {
	switch {
	case received == nil && !denied(got):
		return nil, fmt.Errorf("the target was not called, and the agent got a result: %.300s", got.Result)
	case received == nil:
		return &conformance.Decision{Decision: "deny", Visible: string(got.Raw)}, nil
	case got.Error != nil:
		return nil, fmt.Errorf("the target was called and answered, and the agent got error %d: %s", got.Error.Code, got.Error.Message)
	}
	return &conformance.Decision{Decision: "allow", FinalPayload: stripped(received)}, nil
}

func decideResponse(got *conformance.Answer, received json.RawMessage) (*conformance.Decision, error) {
	switch {
	case received == nil:
		return nil, errors.New("the target was not called, and only the response phase had anything against it")
	case denied(got):
		return &conformance.Decision{Decision: "deny", Visible: string(got.Raw)}, nil
	}
	return &conformance.Decision{Decision: "allow", FinalPayload: stripped(got.Result)}, nil
}

// denied reports a refusal: a JSON-RPC error, or, as some engines have it, a tool result that is one.
func denied(a *conformance.Answer) bool {
	var result struct {
		IsError bool `json:"isError"`
	}
	return a.Error != nil || json.Unmarshal(a.Result, &result) == nil && result.IsError
}

// stripped is a payload without what the protocol and engines add to every message.
func stripped(payload json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil || members == nil {
		return payload
	}
	for _, name := range []string{"_meta", "resultType", "ttlMs", "cacheScope"} {
		delete(members, name)
	}
	raw, err := json.Marshal(members)
	if err != nil {
		return payload
	}
	return raw
}

// Exchange implements conformance.Exchanger.
func (s *session) Exchange(ctx context.Context, step *conformance.Step) (*conformance.Exchanged, error) {
	event := governedEvent(*step.Event)
	if step.Upstream.Asks != nil {
		event = step.Upstream.Asks.Method
	}
	s.asked.Store(asked{event: event})
	s.expectQuestion(step.Upstream.Asks)
	got, received, err := s.exchange(ctx, *step.Event, step.Payload, step.Upstream)
	if err != nil {
		return nil, err
	}
	x := &conformance.Exchanged{Answer: *got, Told: s.target.told()}
	x.Notes, x.Asked = s.heard()
	if received != nil {
		x.Received = stripped(received)
	}
	return x, nil
}

// governedEvent is the event that interceptors see of an exchange: what a task ends with is the response of
// the call that began it.
func governedEvent(method string) string {
	if strings.HasPrefix(method, "tasks/") {
		return "tools/call"
	}
	return method
}

// expectQuestion says how the agent answers what it is asked, and forgets what it has heard.
func (s *session) expectQuestion(q *conformance.Question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.question, s.notes, s.questioned = q, nil, nil
}

// heard is the progress and the question that the agent got.
func (s *session) heard() (notes []json.RawMessage, asked json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notes, s.questioned
}

// hear is what the agent does with a message of the engine's.
func (s *session) hear(m *wire.Message) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.Method == "notifications/progress":
		s.notes = append(s.notes, m.Params)
	case s.question != nil && m.Method == s.question.Method && m.ID != nil:
		s.questioned = m.Params
		return s.question.Answer
	}
	return nil
}

func (s *session) exchange(ctx context.Context, method string, params json.RawMessage, u *conformance.Upstream) (*conformance.Answer, json.RawMessage, error) {
	s.target.script(method, u)
	got, err := s.agent.Call(ctx, method, params)
	if err != nil {
		return nil, nil, err
	}
	return got, s.target.received(), nil
}

func (s *session) Close() error {
	var err error
	if s.agent != nil {
		err = s.agent.Close()
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	for _, server := range s.servers {
		server.CloseClientConnections()
		server.Close()
	}
	return err
}
