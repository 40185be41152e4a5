// Package behavior is what the interceptors of conformance fixtures do, by the name of each behavior, on
// this project's host library: for the adapter of the library itself, and for the host that is put before
// an engine under test.
package behavior

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// canary is in what handlers must not let out: texts of crashes. Fixtures forbid it.
const canary = "canary-kept-inside"

// judge is the handler of a validator, change that of a mutator.
type (
	judge  func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error)
	change func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Change, error)
)

// judges and changes are the behaviors. What a behavior remembers lives as long as its interceptor.
var judges = map[string]func(conformance.Args) judge{
	"allow-all":                 always(interceptors.Allow()),
	"deny-all":                  func(conformance.Args) judge { return denyAll },
	"require-note":              func(conformance.Args) judge { return requireNote },
	"require-uppercase-note":    func(conformance.Args) judge { return requireUppercaseNote },
	"crash":                     func(conformance.Args) judge { return crashJudge },
	"deny-text":                 denyText,
	"panic":                     func(conformance.Args) judge { return panicJudge },
	"cross-boundary-guard":      newGuard,
	"slow":                      slow,
	"slow-deny":                 slowDeny,
	"slow-uncancellable":        slowUncancellable,
	"warn":                      finding(interceptors.SeverityWarn),
	"info":                      finding(interceptors.SeverityInfo),
	"capture":                   always(interceptors.Allow()),
	"config-echo":               func(conformance.Args) judge { return configEcho },
	"context-echo":              func(conformance.Args) judge { return contextEcho },
	"wrong-echo":                always(interceptors.Allow()),
	"wrong-kind":                always(interceptors.Allow()),
	"bare":                      always(interceptors.Allow()),
	"bare-deny":                 func(conformance.Args) judge { return denyAll },
	"nested":                    always(interceptors.Allow()),
	"nested-deny":               func(conformance.Args) judge { return denyAll },
	"valid-with-error-severity": always(interceptors.Allow()),
	"no-severity-deny":          func(conformance.Args) judge { return denyAll },
	"odd-severity-deny":         func(conformance.Args) judge { return denyAll },
}

var changes = map[string]func(conformance.Args) change{
	"uppercase-note":      func(conformance.Args) change { return uppercaseNote },
	"crash":               func(conformance.Args) change { return crashChange },
	"secretless-redactor": func(conformance.Args) change { return redact },
	"append":              appendTag,
	"drop-arg":            dropArg,
	"drop-tool":           dropTool,
	"rename-tool":         renameTool,
	"redact-text":         redactText,
	"null-out":            func(conformance.Args) change { return nullOut },
	"slow":                slowChange,
	"lie-unmodified":      appendTag,
	"wrong-echo":          appendTag,
	"wrong-kind":          appendTag,
	"bad-payload":         func(conformance.Args) change { return badPayload },
	"bare":                appendTag,
	"grow":                func(conformance.Args) change { return changeNothing },
}

// Known reports whether there is a behavior of this name.
func Known(name string) bool { return judges[name] != nil || changes[name] != nil }

// Log remembers what each interceptor was invoked with. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	calls   map[string][]json.RawMessage
	running int
	idle    chan struct{} // closed when nothing runs; nil while nobody waits
}

func (l *Log) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running++
}

func (l *Log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	if l.running == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// waiting is closed when no handler runs; nil when none does.
func (l *Log) waiting() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running > 0 && l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}

// Idle returns when no handler runs any more, or with ctx's error: one that was given up on must have been
// cancelled.
func (l *Log) Idle(ctx context.Context) error {
	idle := l.waiting()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("an interceptor still runs, though nobody waits for it: it was not cancelled: %w", ctx.Err())
	}
}

func (l *Log) add(name string, payload json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = map[string][]json.RawMessage{}
	}
	l.calls[name] = append(l.calls[name], payload)
}

// Calls returns what each interceptor was invoked with so far, in order.
func (l *Log) Calls() map[string][]json.RawMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string][]json.RawMessage, len(l.calls))
	for name, payloads := range l.calls {
		out[name] = payloads[:len(payloads):len(payloads)]
	}
	return out
}

// Gate says which invocations count; the others pass unseen. Nil lets all count.
type Gate func(in *interceptors.Invocation) bool

// New makes the interceptor that a fixture describes. Its invocations go into the log.
func New(f *conformance.Interceptor, log *Log, gate Gate) (interceptors.Interceptor, error) {
	d, err := descriptor(f)
	if err != nil {
		return nil, err
	}
	counts := func(in *interceptors.Invocation) bool {
		if gate != nil && !gate(in) {
			return false
		}
		log.add(f.Name, in.Payload)
		return true
	}
	switch f.Type {
	case "validation":
		return newValidator(f, d, log, counts)
	case "mutation":
		return newMutator(f, d, log, counts)
	}
	return nil, fmt.Errorf("interceptor %s: type %q", f.Name, f.Type)
}

func newValidator(f *conformance.Interceptor, d interceptors.Descriptor, log *Log, counts Gate) (interceptors.Interceptor, error) {
	build := judges[f.Behavior]
	if build == nil {
		return nil, fmt.Errorf("%w: validator %q", conformance.ErrUnsupported, f.Behavior)
	}
	do := build(f.Args)
	return &interceptors.Validator{Descriptor: d, DefaultConfig: f.DefaultConfig,
		Validate: func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
			log.begin()
			defer log.end()
			if !counts(in) {
				return interceptors.Allow(), nil
			}
			return do(ctx, in)
		}}, nil
}

func newMutator(f *conformance.Interceptor, d interceptors.Descriptor, log *Log, counts Gate) (interceptors.Interceptor, error) {
	build := changes[f.Behavior]
	if build == nil {
		return nil, fmt.Errorf("%w: mutator %q", conformance.ErrUnsupported, f.Behavior)
	}
	do := build(f.Args)
	return &interceptors.Mutator{Descriptor: d, DefaultConfig: f.DefaultConfig,
		Mutate: func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
			log.begin()
			defer log.end()
			if !counts(in) {
				return nil, nil
			}
			return do(ctx, in)
		}}, nil
}

// descriptor reads what a fixture declares by the library's own decoder.
func descriptor(f *conformance.Interceptor) (interceptors.Descriptor, error) {
	d := interceptors.Descriptor{Name: f.Name, Type: interceptors.Type(f.Type), Mode: interceptors.Mode(f.Mode),
		FailOpen: f.FailOpen, ConfigSchema: f.ConfigSchema}
	if d.Mode == interceptors.ModeActive {
		d.Mode = ""
	}
	for _, h := range f.Hooked() {
		d.Hooks = append(d.Hooks, interceptors.Hook{Events: h.Events, Phase: interceptors.Phase(h.Phase)})
	}
	if f.PriorityHint != nil {
		d.PriorityHint = new(interceptors.Priority)
		if err := json.Unmarshal(f.PriorityHint, d.PriorityHint); err != nil {
			return d, fmt.Errorf("interceptor %s: priorityHint: %w", f.Name, err)
		}
	}
	if f.Compat != nil {
		d.Compat = new(interceptors.Compat)
		if err := json.Unmarshal(f.Compat, d.Compat); err != nil {
			return d, fmt.Errorf("interceptor %s: compat: %w", f.Name, err)
		}
	}
	return d, nil
}

func always(v *interceptors.Verdict) func(conformance.Args) judge {
	return func(conformance.Args) judge {
		return func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
			verdict := *v
			return &verdict, nil
		}
	}
}

func denyAll(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	return interceptors.Deny("denied by policy"), nil
}

// denyText denies what holds a text.
func denyText(a conformance.Args) judge {
	return func(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
		found := false
		_, err := mapStrings(in.Payload, func(s string) string {
			found = found || strings.Contains(s, a.Key)
			return s
		})
		if err != nil || !found {
			return interceptors.Allow(), err
		}
		return interceptors.Deny("denied by policy"), nil
	}
}

func requireNote(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	if note, ok := noteOf(in.Payload); !ok || note == "" {
		return interceptors.Deny("note is required"), nil
	}
	return interceptors.Allow(), nil
}

func requireUppercaseNote(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	if note, ok := noteOf(in.Payload); !ok || note != upper(note) {
		return interceptors.Deny("note must be uppercase"), nil
	}
	return interceptors.Allow(), nil
}

func uppercaseNote(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	note, ok := noteOf(in.Payload)
	if !ok {
		return nil, nil
	}
	changed, err := splice.Set(in.Payload, quoted(upper(note)), "arguments", "note")
	if err != nil {
		return nil, err
	}
	return &interceptors.Change{Payload: changed}, nil
}

// upper is the full mapping of Unicode, as other languages have it: one letter may become two.
func upper(s string) string { return cases.Upper(language.Und).String(s) }

// noteOf is arguments.note where that is a string.
func noteOf(payload json.RawMessage) (note string, ok bool) {
	raw := splice.Get(payload, "arguments", "note")
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &note) != nil {
		return "", false
	}
	return note, true
}

func crashJudge(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	return nil, errors.New(canary)
}

func panicJudge(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
	panic(canary)
}

func crashChange(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
	return nil, errors.New(canary)
}

func finding(s interceptors.Severity) func(conformance.Args) judge {
	return always(&interceptors.Verdict{Severity: s, Messages: []interceptors.Message{{Message: "noted", Severity: s}}})
}

// slow allows after a time, unless it is cancelled before.
func slow(a conformance.Args) judge {
	return func(ctx context.Context, _ *interceptors.Invocation) (*interceptors.Verdict, error) {
		if err := wait(ctx, a.MS); err != nil {
			return nil, err
		}
		return interceptors.Allow(), nil
	}
}

func slowDeny(a conformance.Args) judge {
	return func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
		if err := wait(ctx, a.MS); err != nil {
			return nil, err
		}
		return denyAll(ctx, in)
	}
}

func slowUncancellable(a conformance.Args) judge {
	return func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
		return slow(a)(context.WithoutCancel(ctx), in)
	}
}

func slowChange(a conformance.Args) change {
	return func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
		if err := wait(ctx, a.MS); err != nil {
			return nil, err
		}
		return appendTag(a)(ctx, in)
	}
}

func wait(ctx context.Context, ms int64) error {
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func configEcho(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	return withInfo("config", in.Config)
}

// contextEcho shows the ids that the host was told.
func contextEcho(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	raw, err := json.Marshal(in.Context)
	if err != nil {
		return nil, err
	}
	return withInfo("context", raw)
}

func withInfo(name string, value json.RawMessage) (*interceptors.Verdict, error) {
	if value == nil {
		value = json.RawMessage("null")
	}
	info, err := splice.Set([]byte("{}"), value, name)
	if err != nil {
		return nil, err
	}
	return &interceptors.Verdict{Valid: true, Info: info}, nil
}

// appendTag pushes its tag to the payload's trace.
func appendTag(a conformance.Args) change {
	return func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
		trace := splice.Get(in.Payload, "arguments", "trace")
		if trace == nil {
			trace = json.RawMessage("[]")
		}
		longer, err := splice.Append(trace, quoted(a.Tag))
		if err != nil {
			return nil, err
		}
		changed, err := splice.Set(in.Payload, longer, "arguments", "trace")
		if err != nil {
			return nil, err
		}
		return &interceptors.Change{Payload: changed}, nil
	}
}

func dropArg(a conformance.Args) change {
	return func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
		arguments := splice.Get(in.Payload, "arguments")
		if arguments == nil {
			return nil, nil
		}
		kept, _, err := splice.Delete(arguments, func(name string) bool { return name == a.Key })
		if err != nil {
			return nil, err
		}
		changed, err := splice.Set(in.Payload, kept, "arguments")
		if err != nil {
			return nil, err
		}
		return &interceptors.Change{Payload: changed}, nil
	}
}

// renameTool calls another tool.
func renameTool(a conformance.Args) change {
	return func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
		if splice.Get(in.Payload, "name") == nil {
			return nil, nil
		}
		changed, err := splice.Set(in.Payload, quoted(a.Tag), "name")
		if err != nil {
			return nil, err
		}
		return &interceptors.Change{Payload: changed}, nil
	}
}

// redactText puts asterisks in the place of a text.
func redactText(a conformance.Args) change {
	return func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
		clean, err := mapStrings(in.Payload, func(s string) string { return strings.ReplaceAll(s, a.Key, "***") })
		if err != nil {
			return nil, err
		}
		return &interceptors.Change{Payload: clean}, nil
	}
}

// dropTool takes a tool out of a list for one principal.
func dropTool(a conformance.Args) change {
	return func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
		if in.Context.Principal == nil || in.Context.Principal.ID != a.Tag {
			return nil, nil
		}
		var tools, kept []json.RawMessage
		if err := json.Unmarshal(splice.Get(in.Payload, "tools"), &tools); err != nil {
			return nil, err
		}
		for _, tool := range tools {
			if string(splice.Get(tool, "name")) != string(quoted(a.Key)) {
				kept = append(kept, tool)
			}
		}
		raw, err := json.Marshal(kept)
		if err != nil {
			return nil, err
		}
		changed, err := splice.Set(in.Payload, raw, "tools")
		if err != nil {
			return nil, err
		}
		return &interceptors.Change{Payload: changed}, nil
	}
}

func changeNothing(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
	return nil, nil
}

func nullOut(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
	return &interceptors.Change{Payload: json.RawMessage("null")}, nil
}

func badPayload(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
	return &interceptors.Change{Payload: json.RawMessage(`{"cut`)}, nil
}

func quoted(s string) json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string
	}
	return raw
}
