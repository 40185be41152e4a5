// Package enginecheck checks an engine that is a program, from both of its sides: it is the interceptor
// host that the engine asks, the MCP server that the engine stands before, and the agent that calls.
//
// The engine speaks MCP on its standard input and output, or over Streamable HTTP. Each fixture starts it
// anew. What one phase came to shows from outside: whether the server was called, with which params, what the
// agent got.
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
	"github.com/undolog/undolog/internal/splice"
)

// Engine is the program to check.
type Engine struct {
	// Command has {hosts} where the URL of the interceptor host goes, {upstream} where that of the MCP
	// server, {config} where the path of a file made from Config, and {dir} where that of a directory which
	// lives as long as the engine; in any argument. {listen} is a free address, HOST:PORT.
	Command []string
	// URL is where the engine serves agents over Streamable HTTP, such as http://{listen}/mcp. Empty: they are
	// on its standard input and output.
	URL string
	// Tokens are the bearer tokens, over HTTP, by which the engine knows the principals of fixtures.
	Tokens map[string]string
	// Alerts says that the engine tells its operator on standard error.
	Alerts bool
	// Config is a template of the engine's configuration; the same is replaced in it.
	Config string
	// Configure, where it is not nil, writes the configuration for each fixture in place of Config; urls has
	// the fixture's hosts by name. Without it, fixtures with several hosts or a policy are skipped.
	Configure func(f *conformance.Fixture, urls map[string]string) (string, error)
	// Arguments, where it is not nil, are more arguments for a fixture, after those of Command. Without it,
	// fixtures that scrub errors are skipped.
	Arguments func(f *conformance.Fixture) []string
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

// Skips says why a fixture cannot be asked of the engine from outside; empty when it can.
func (e *Engine) Skips(f *conformance.Fixture) string {
	a := &adapter{e}
	for _, need := range f.Needs() {
		if !a.Has(need) {
			return string(need)
		}
	}
	return a.unasked(f)
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
	case conformance.FeatureAlerts:
		return a.engine.Alerts
	case conformance.FeaturePrincipal:
		return len(a.engine.Tokens) > 0
	case conformance.FeatureScrub:
		return a.engine.Arguments != nil
	}
	return slices.Contains([]conformance.Feature{conformance.FeatureServerPosture, conformance.FeatureDescriptor,
		conformance.FeatureCalls, conformance.FeatureExchange, conformance.FeatureErrorData,
		conformance.FeatureGateway, conformance.FeatureProtocol, conformance.FeatureChange, conformance.FeatureTTL}, f)
}

// CreateSession implements conformance.Adapter.
func (a *adapter) CreateSession(ctx context.Context, f *conformance.Fixture) (conformance.Session, error) {
	if why := a.unasked(f); why != "" {
		return nil, fmt.Errorf("%w: %s", conformance.ErrUnsupported, why)
	}
	s := &session{fixture: f}
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
	if r := revisionOf(f); r != wire.Legacy && r != wire.Stateless {
		return "it is about revision " + r
	}
	for i := range f.Steps {
		s := &f.Steps[i]
		if s.Op == conformance.OpChange && f.Host.TTLMs == 0 {
			return "the host does not say how long its list holds"
		}
		if s.Context != nil && s.Context.Principal != "" && a.engine.Tokens[s.Context.Principal] == "" {
			return "the engine does not know " + s.Context.Principal
		}
		if s.Context != nil && s.Context.Protocol != "" && s.Context.Protocol != revisionOf(f) {
			return "its agent speaks two revisions"
		}
		if s.Phase == "response" && s.Op == conformance.OpApply && len(f.Host.Down) > 0 {
			return "a host that is gone is not there in the request phase either"
		}
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
	fixture *conformance.Fixture
	log     behavior.Log
	asked   atomic.Value              // asked
	urls    map[string]string         // of the hosts
	hosts   map[string]*behavior.Host // by name
	servers []*httptest.Server        // hosts and upstream
	taken   []*address                // of the engine, and of hosts that are down
	target  *upstream
	agents  agents
	program *server              // over HTTP; else it is the agent's peer
	alerts  conformance.AlertLog // the program's standard error
	dir     string               // of the session
	carried int                  // responses so far

	mu         sync.Mutex // guards what the agent hears
	notes      []json.RawMessage
	notified   []json.RawMessage
	listens    []string      // methods of the notifications that count
	more       chan struct{} // closed at the next one; nil while nobody waits
	question   *conformance.Question
	questioned json.RawMessage
}

// asked is what a step is about: an event, and a phase or, empty, both with all that the server asks.
type asked struct{ event, phase string }

// counts lets the invocations that the step is about count; in all others every interceptor passes.
func (s *session) counts(in *interceptors.Invocation) bool {
	now, _ := s.asked.Load().(asked)
	if now.phase == "" && slices.Contains(serverEvents, in.Event) {
		return true
	}
	return (now.phase == "" || string(in.Phase) == now.phase) && in.Event == now.event
}

// serverEvents are the operations that a server asks of its client.
var serverEvents = []string{"sampling/createMessage", "elicitation/create", "roots/list"}

func (s *session) start(ctx context.Context, e *Engine, f *conformance.Fixture, upstream string) error {
	listen, err := s.takeAddress()
	if err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "engine-"); err != nil {
		return err
	}
	config := filepath.Join(s.dir, "engine.yaml")
	replace := strings.NewReplacer("{hosts}", s.urls[f.HostNames()[0]], "{upstream}", upstream, "{dir}", s.dir, "{config}", config, "{listen}", listen.String())
	if err := s.configure(e, config, replace); err != nil {
		return err
	}
	argv := make([]string, len(e.Command))
	for i, arg := range e.Command {
		argv[i] = replace.Replace(arg)
	}
	if e.Arguments != nil {
		argv = append(argv, e.Arguments(f)...)
	}
	s.agents = agents{revision: revisionOf(f), hear: s.hear}
	errs := io.Writer(&s.alerts)
	if e.Errs != nil {
		errs = io.MultiWriter(e.Errs, &s.alerts)
	}
	if e.URL == "" {
		return s.startLines(ctx, argv, e.Env, errs)
	}
	s.agents.url, s.agents.tokens, s.agents.web = replace.Replace(e.URL), e.Tokens, map[string]*wire.HTTP{}
	s.program, err = startServer(ctx, argv, e.Env, errs, s.agents.url)
	return err
}

// takeAddress finds an address that is this session's until its end.
func (s *session) takeAddress() (*address, error) {
	a, err := freeAddress()
	if err == nil {
		s.taken = append(s.taken, a)
	}
	return a, err
}

// configure writes the engine's configuration.
func (s *session) configure(e *Engine, path string, replace *strings.Replacer) (err error) {
	text := replace.Replace(e.Config)
	if e.Configure != nil {
		if text, err = e.Configure(s.fixture, s.urls); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

func (s *session) startLines(ctx context.Context, argv, env []string, errs io.Writer) error {
	lines, err := wire.Command(argv, &wire.CommandOptions{Errs: errs, Env: env, OnMessage: s.hear})
	if err != nil {
		return err
	}
	s.agents.lines = lines
	_, err = lines.Start(ctx, s.agents.revision)
	return err
}

// Alerts implements conformance.Alerter. Who names a host by its address has named it.
func (s *session) Alerts(ctx context.Context, texts []string) string {
	told := s.alerts.Await(ctx, texts)
	for name, url := range s.urls {
		if strings.Contains(told, url) {
			told += "host-" + name
		}
	}
	return told
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
	got, received, err := s.exchange(ctx, "", "tools/call", params, &conformance.Upstream{Result: answer})
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
	s.asked.Store(asked{event: governedEvent(*step.Event)})
	s.listen(step.Upstream)
	principal := ""
	if step.Context != nil {
		principal = step.Context.Principal
	}
	got, received, err := s.exchange(ctx, principal, *step.Event, step.Payload, step.Upstream)
	if err != nil {
		return nil, err
	}
	s.awaitNotified(ctx, step.Expect.Notified)
	x := &conformance.Exchanged{Answer: *got, Told: s.target.told()}
	s.heard(x)
	if received != nil {
		x.Received = stripped(received)
	}
	return x, nil
}

// governedEvent is the event that interceptors see of an exchange: what a task ends with is the response of
// the call that began it.
func governedEvent(method string) string {
	if strings.HasPrefix(method, "tasks/") || strings.HasPrefix(method, "subscriptions/") {
		return "tools/call"
	}
	return method
}

func (s *session) exchange(ctx context.Context, principal, method string, params json.RawMessage, u *conformance.Upstream) (*conformance.Answer, json.RawMessage, error) {
	agent, err := s.agents.as(ctx, principal)
	if err != nil {
		return nil, nil, err
	}
	s.target.script(method, u)
	got, err := agent.Call(ctx, method, params)
	if err == nil {
		err = envelopeFault(got)
	}
	if err != nil {
		return nil, nil, err
	}
	return got, s.target.received(), nil
}

// envelopeFault says what is wrong with an answer to the agent, whatever it says: requests have numbers for
// ids.
func envelopeFault(a *conformance.Answer) error {
	if id := splice.Get(a.Raw, "id"); id == nil || id[0] < '0' || id[0] > '9' {
		return fmt.Errorf("the agent's request has a number for an id, the answer has %s", id)
	}
	if a.Error != nil && a.Error.Message == "" {
		return fmt.Errorf("the agent got error %d without a message", a.Error.Code)
	}
	return nil
}

func (s *session) Close() error {
	err := s.agents.close()
	if s.program != nil {
		s.program.close()
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	for _, server := range s.servers {
		server.CloseClientConnections()
		server.Close()
	}
	for _, a := range s.taken {
		err = errors.Join(err, a.Close())
	}
	return err
}
