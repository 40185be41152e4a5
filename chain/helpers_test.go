package chain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// raw is JSON text.
func raw(s string) json.RawMessage { return json.RawMessage(s) }

const call = "tools/call"

var bothPhases = []interceptors.Hook{
	{Events: []string{"*"}, Phase: interceptors.PhaseRequest},
	{Events: []string{"*"}, Phase: interceptors.PhaseResponse},
}

// seen counts calls and keeps payloads, by interceptor.
type seen struct {
	mu       sync.Mutex
	payloads map[string][]string
	contexts map[string][]*interceptors.Context
}

func (s *seen) note(name string, in *interceptors.Invocation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.payloads == nil {
		s.payloads, s.contexts = map[string][]string{}, map[string][]*interceptors.Context{}
	}
	s.payloads[name] = append(s.payloads[name], string(in.Payload))
	s.contexts[name] = append(s.contexts[name], in.Context)
}

func (s *seen) of(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.payloads[name])
}

// mod changes a descriptor.
type mod func(*interceptors.Descriptor)

func audit(d *interceptors.Descriptor)    { d.Mode = interceptors.ModeAudit }
func failOpen(d *interceptors.Descriptor) { d.FailOpen = true }

func priority(request, response int32) mod {
	return func(d *interceptors.Descriptor) {
		d.PriorityHint = &interceptors.Priority{Request: request, Response: response}
	}
}

func hooks(h ...interceptors.Hook) mod {
	return func(d *interceptors.Descriptor) { d.Hooks = h }
}

func descriptor(name string, mods []mod) interceptors.Descriptor {
	d := interceptors.Descriptor{Name: name, Hooks: bothPhases}
	for _, m := range mods {
		m(&d)
	}
	return d
}

type judge func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error)

func validator(name string, f judge, mods ...mod) *interceptors.Validator {
	return &interceptors.Validator{Descriptor: descriptor(name, mods), Validate: f}
}

type change func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Change, error)

func mutator(name string, f change, mods ...mod) *interceptors.Mutator {
	return &interceptors.Mutator{Descriptor: descriptor(name, mods), Mutate: f}
}

func denyAll(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	return interceptors.Deny("the secret word is swordfish"), nil
}

func allowAll(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	return interceptors.Allow(), nil
}

func crash(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
	return nil, errors.New("kaboom at /etc/secret")
}

func crashJudge(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	return nil, errors.New("kaboom at /etc/secret")
}

func requireUpper(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	note := noteOf(in.Payload)
	if note != strings.ToUpper(note) {
		return interceptors.Deny("note must be uppercase"), nil
	}
	return interceptors.Allow(), nil
}

func upper(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	note := noteOf(in.Payload)
	return &interceptors.Change{Payload: bytes.Replace(in.Payload, []byte(note), []byte(strings.ToUpper(note)), 1)}, nil
}

func noteOf(payload json.RawMessage) string {
	var p struct {
		Arguments struct {
			Note string `json:"note"`
		} `json:"arguments"`
	}
	_ = json.Unmarshal(payload, &p)
	return p.Arguments.Note
}

// appendTag pushes its tag to the payload's trace.
func appendTag(tag string) change {
	return func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
		return &interceptors.Change{Payload: raw(pushed(string(in.Payload), tag))}, nil
	}
}

func pushed(payload, tag string) string {
	if before, ok := strings.CutSuffix(payload, `]}`); ok && strings.Contains(payload, `"trace":[`) {
		return fmt.Sprintf(`%s,%q]}`, before, tag)
	}
	return fmt.Sprintf(`%s,"trace":[%q]}`, strings.TrimSuffix(payload, "}"), tag)
}

func server(t testing.TB, all ...interceptors.Interceptor) *interceptors.Server {
	t.Helper()
	s := interceptors.NewServer(nil)
	if err := s.Add(all...); err != nil {
		t.Fatalf("Add: %v", err)
	}
	return s
}

func newChain(t testing.TB, opts *chain.Options, all ...interceptors.Interceptor) *chain.Chain {
	t.Helper()
	c, err := chain.New(opts)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	if len(all) > 0 {
		use(t, c, chain.Local("house", server(t, all...)), nil)
	}
	return c
}

func use(t testing.TB, c *chain.Chain, h chain.Host, p *chain.HostPolicy) {
	t.Helper()
	if err := c.Use(h, p); err != nil {
		t.Fatalf("Use: %v", err)
	}
}

// execute runs the request phase of a tools/call, or as p says.
func execute(t testing.TB, c *chain.Chain, direction chain.Direction, payload string) *chain.PhaseResult {
	t.Helper()
	return c.Execute(t.Context(), &chain.PhaseParams{
		Event: call, Phase: interceptors.PhaseRequest, Direction: direction, Payload: raw(payload),
	})
}

const hi = `{"name":"echo","arguments":{"note":"hi"}}`

func wantAllow(t testing.TB, r *chain.PhaseResult, payload string) {
	t.Helper()
	if r.Status != chain.StatusSuccess || r.Abort != nil {
		t.Fatalf("status %s, abort %+v; want success", r.Status, r.Abort)
	}
	if diff := cmp.Diff(payload, string(r.Payload)); diff != "" {
		t.Errorf("payload (-want +got)\n%s", diff)
	}
}

func wantDeny(t testing.TB, r *chain.PhaseResult, status chain.Status) {
	t.Helper()
	if r.Status != status || r.Abort == nil {
		t.Fatalf("status %s, abort %+v; want %s", r.Status, r.Abort, status)
	}
	if r.Payload != nil || r.Modified {
		t.Errorf("a blocked phase carries payload %s, modified %v", r.Payload, r.Modified)
	}
}

func recorded(r *chain.PhaseResult) []string {
	var names []string
	for _, rec := range r.Records {
		names = append(names, rec.Interceptor)
	}
	return names
}

// fakeHost is somebody else's host: whatever it lists and answers.
type fakeHost struct {
	name   string
	list   func() ([]interceptors.Descriptor, error)
	invoke func(ctx context.Context, p *interceptors.InvokeParams) (*interceptors.Result, error)
}

func (h *fakeHost) Name() string { return h.name }

func (h *fakeHost) List(context.Context) ([]interceptors.Descriptor, error) { return h.list() }

func (h *fakeHost) Invoke(ctx context.Context, p *interceptors.InvokeParams) (*interceptors.Result, error) {
	return h.invoke(ctx, p)
}

// answering is a host of one interceptor that answers with res.
func answering(name string, typ interceptors.Type, res *interceptors.Result) *fakeHost {
	return &fakeHost{
		name: "host-of-" + name,
		list: func() ([]interceptors.Descriptor, error) {
			return []interceptors.Descriptor{{Name: name, Type: typ, Hooks: bothPhases}}, nil
		},
		invoke: func(context.Context, *interceptors.InvokeParams) (*interceptors.Result, error) {
			if res == nil {
				return nil, nil
			}
			own := *res
			return &own, nil
		},
	}
}

// syncBuilder is a strings.Builder for several writers.
type syncBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuilder) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuilder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
