package interceptors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// ServerOptions configure a Server. The zero value is ready.
type ServerOptions struct {
	// Logger is told why handlers fail. Defaults to silence.
	Logger *slog.Logger
	// LegacyEnvelope adds the nested "validation" or "mutation" member beside the flat result on the
	// wire, for engines that read nothing else and would take a flat denial for none. Defaults to off.
	LegacyEnvelope bool
	// LegacyTimeoutCode reports time-outs on the wire as −32000. Defaults to −32603.
	LegacyTimeoutCode bool
	// MaxConcurrent bounds the invocations that run at once for peers on the wire; the others wait. It
	// does not bound Invoke. Defaults to no bound.
	MaxConcurrent int
	// ListTTL is how long peers of 2026-07-28 are told that they may keep the list: no notification reaches
	// them. Defaults to 1 minute; negative: not at all.
	ListTTL time.Duration
}

// Server is a host of interceptors. Its Invoke is the one implementation behind the wire and behind
// engines in the same process. It is safe for concurrent use.
type Server struct {
	opts  ServerOptions
	log   *slog.Logger
	slots chan struct{} // nil: no bound
	late  sync.WaitGroup

	changes watchers
	mu      sync.RWMutex
	order   []*entry
	byName  map[string]*entry
}

// NewServer returns a host without interceptors.
func NewServer(opts *ServerOptions) *Server {
	s := &Server{byName: map[string]*entry{}}
	if opts != nil {
		s.opts = *opts
	}
	if s.log = s.opts.Logger; s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.opts.ListTTL == 0 {
		s.opts.ListTTL = time.Minute
	}
	if s.opts.MaxConcurrent > 0 {
		s.slots = make(chan struct{}, s.opts.MaxConcurrent)
	}
	return s
}

// Interceptor is a *Validator or a *Mutator.
type Interceptor interface{ entry() (*entry, error) }

// entry is a registered interceptor. run returns the body of a result; its head is the server's.
type entry struct {
	Descriptor
	schema        *configSchema
	defaultConfig json.RawMessage
	readsOnly     bool
	run           func(ctx context.Context, in *Invocation) (*Result, error)
}

// Add registers interceptors, in this order. A name that is taken, a descriptor that cannot be used, a
// config schema that does not compile or a default config that does not fit it is an error; those before
// it stay. An empty Type is filled in. Descriptors MUST NOT be changed afterwards. Add may be called at any
// time: see Watch for who learns of it.
func (s *Server) Add(interceptors ...Interceptor) error {
	if len(interceptors) > 0 {
		defer s.changes.tell()
	}
	for _, i := range interceptors {
		e, err := i.entry()
		if err != nil {
			return fmt.Errorf("add interceptor: %w", err)
		}
		if err := s.add(e); err != nil {
			return fmt.Errorf("add interceptor %q: %w", e.Name, err)
		}
	}
	return nil
}

func (s *Server) add(e *entry) error {
	if err := e.prepare(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[e.Name] != nil {
		return errors.New("the name is taken")
	}
	s.byName[e.Name] = e
	s.order = append(s.order, e)
	return nil
}

func (e *entry) prepare() (err error) {
	if err := e.Descriptor.check(); err != nil {
		return err
	}
	if e.schema, err = compileSchema(e.ConfigSchema); err != nil {
		return err
	}
	if e.schema == nil || e.defaultConfig == nil {
		return nil
	}
	if problems := e.schema.check(e.defaultConfig); len(problems) > 0 {
		return fmt.Errorf("check default config: %w", &ParamsError{e.Name, problems})
	}
	return nil
}

func (v *Validator) entry() (*entry, error) {
	d, err := ofType(v.Descriptor, TypeValidation, v.Validate != nil)
	if err != nil {
		return nil, err
	}
	return &entry{Descriptor: d, defaultConfig: v.DefaultConfig, readsOnly: v.ReadsOnly, run: v.run}, nil
}

func (m *Mutator) entry() (*entry, error) {
	d, err := ofType(m.Descriptor, TypeMutation, m.Mutate != nil)
	if err != nil {
		return nil, err
	}
	return &entry{Descriptor: d, defaultConfig: m.DefaultConfig, readsOnly: m.ReadsOnly, run: m.run}, nil
}

func ofType(d Descriptor, t Type, handled bool) (Descriptor, error) {
	if d.Type == "" {
		d.Type = t
	}
	if d.Type != t {
		return d, fmt.Errorf("%q is registered as %s and says %s", d.Name, t, d.Type)
	}
	if !handled {
		return d, fmt.Errorf("%q has no handler", d.Name)
	}
	return d, nil
}

// List returns the descriptors, in the order of registration, that have a hook for the event in any
// phase; all of them when event is empty. A pattern in place of an event is a *ParamsError.
func (s *Server) List(event string) ([]Descriptor, error) {
	if !isConcrete(event) {
		return nil, &ParamsError{Problems: []Problem{{"/event", "must be one event, not a pattern"}}}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	listed := make([]Descriptor, 0, len(s.order))
	for _, e := range s.order {
		if event == "" || e.covers(event) {
			listed = append(listed, e.Descriptor)
		}
	}
	return listed, nil
}

// events are the entries of all hooks, sorted, each once.
func (s *Server) events() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	events := []string{}
	for _, e := range s.order {
		for _, h := range e.Hooks {
			events = append(events, h.Events...)
		}
	}
	slices.Sort(events)
	return slices.Compact(events)
}

func (s *Server) lookup(name string) *entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byName[name]
}

// Wait returns when the handlers whose invocation timed out have returned, and peers have been told of
// changes. It MUST NOT be called while Invoke, Add or Remove still is.
func (s *Server) Wait() { s.late.Wait() }
