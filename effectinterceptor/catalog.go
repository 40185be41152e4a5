package effectinterceptor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
)

const (
	// catalogAge is how long what was read of a server's tools is taken for true: another process may
	// have learned more.
	catalogAge = 30 * time.Second
	// rereadWait is how long a call waits for what was read before to be read anew. What it has waited in vain
	// is of the time that it waits for the log at all.
	rereadWait = time.Second
	// rereadAgain is for how long after that calls do not wait, but take what was read before.
	rereadAgain = 5 * time.Second
	// catalogServers bounds how many servers are remembered: an invoker names them as it likes.
	catalogServers = 1024
	// learnAtOnce is how many definitions of a page are recorded at a time; the log groups them.
	learnAtOnce = 16
)

// errSilent says that the log has not said in time what it knows of a server's tools.
var errSilent = errors.New("the log does not answer")

// errEnding says that nothing is read any more.
var errEnding = errors.New("the program is about to end")

// catalog is what is known of tools: learned from tools/list, kept in the log, cached here.
type catalog struct {
	log *store.Log
	now func() time.Time

	mu      sync.Mutex
	servers map[serverKey]*listing
	loads   map[serverKey]*loading
	closed  bool // nothing begins to be read any more

	life    context.Context // of what is being read
	end     context.CancelFunc
	running sync.WaitGroup
}

type serverKey struct{ tenant, server string }

// listing is one server's tools.
type listing struct {
	tools map[string]listed
	read  time.Time // from the log; zero: never
	tried time.Time // when the log was last asked in vain
}

type listed struct {
	digest      effect.Digest
	annotations *effect.Annotations
	definition  json.RawMessage // what its schemas are read from when they are wanted

	learned   time.Time // by this process; zero: read from the log
	unwritten bool      // the log does not have it yet
}

func listedOf(t *store.Tool) listed {
	return listed{digest: t.Digest, annotations: annotationsOf(t.Definition), definition: bytes.Clone(t.Definition)}
}

// found is what is known of a tool, nothing when it is not known.
type found struct {
	listed
	stale  bool          // it is what was known before: the log does not answer
	waited time.Duration // for the log, in vain
}

func newCatalog(log *store.Log, now func() time.Time) *catalog {
	c := &catalog{log: log, now: now, servers: map[serverKey]*listing{}, loads: map[serverKey]*loading{}}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// close ends what is being read, and waits for that. Nothing is read after it.
func (c *catalog) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.running.Wait()
}

// find returns what is known of a tool. It waits for the log for a moment only, and after a moment in vain not at
// all for a while: then what was known before is used, and the error is errSilent where that is nothing.
func (c *catalog) find(ctx context.Context, key serverKey, tool string) (found, error) {
	v := c.view(key, tool)
	if v.fresh {
		return found{listed: v.listed}, nil
	}
	err, from := errSilent, time.Now()
	if !v.silent {
		if err = c.reread(ctx, key, rereadWait); ctx.Err() != nil {
			return found{}, ctx.Err()
		}
		v = c.view(key, tool)
	}
	switch {
	case err == nil:
		return found{listed: v.listed}, nil
	case !v.known:
		return found{}, err
	}
	return found{listed: v.listed, stale: true, waited: time.Since(from)}, nil
}

// await is find for a call that cannot go on without: it waits for as long as the log is tried.
func (c *catalog) await(ctx context.Context, key serverKey, tool string) (found, error) {
	if err := c.reread(ctx, key, math.MaxInt64); err != nil {
		return found{}, err
	}
	return found{listed: c.view(key, tool).listed}, nil
}

// view is what is known of a tool now, and how.
type view struct {
	listed
	known  bool // to be there, or not to be there
	fresh  bool
	silent bool // the log was asked in vain a moment ago
}

func (c *catalog) view(key serverKey, tool string) view {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.servers[key]
	if l == nil {
		return view{}
	}
	t, learned := l.tools[tool]
	now := c.now()
	return view{
		listed: t, known: learned || !l.read.IsZero(),
		fresh:  !l.read.IsZero() && now.Sub(l.read) < catalogAge,
		silent: !l.tried.IsZero() && now.Sub(l.tried) < rereadAgain,
	}
}

// of returns the listing of a server. The caller holds the lock.
func (c *catalog) of(key serverKey) *listing {
	l := c.servers[key]
	if l == nil {
		if len(c.servers) >= catalogServers {
			clear(c.servers)
		}
		l = &listing{tools: map[string]listed{}}
		c.servers[key] = l
	}
	return l
}

// loading is a server's tools being read, for all who want them.
type loading struct {
	done chan struct{}
	err  error
}

// reread has the tools of a server read and waits for it, at most so long. The reading goes on.
func (c *catalog) reread(ctx context.Context, key serverKey, most time.Duration) error {
	l := c.begin(key)
	timer := time.NewTimer(most)
	defer timer.Stop()
	err := errSilent
	select {
	case <-l.done:
		err = l.err
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.of(key).tried = c.now()
	}
	return err
}

func (c *catalog) begin(key serverKey) *loading {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.loads[key]; l != nil {
		return l
	}
	l := &loading{done: make(chan struct{})}
	if c.closed {
		l.err = errEnding
		close(l.done)
		return l
	}
	c.loads[key] = l
	c.running.Go(func() {
		var untold []store.Tool
		untold, l.err = c.load(c.life, key)
		c.mu.Lock()
		delete(c.loads, key)
		c.mu.Unlock()
		close(l.done)
		c.write(c.life, key, untold)
	})
	return l
}

// load reads the tools of a server. What is learned meanwhile is newer than what was read, and so is what the
// log could not be told; after it did not answer, that is returned, to be told now.
func (c *catalog) load(ctx context.Context, key serverKey) (untold []store.Tool, err error) {
	begun := c.now()
	known, err := c.log.Tools(ctx, key.tenant, key.server)
	if err != nil {
		return nil, fmt.Errorf("load tools of %s: %w", key.server, err)
	}
	tools := make(map[string]listed, len(known))
	for _, t := range known {
		tools[t.Name] = listedOf(&t)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.of(key)
	for name, t := range l.tools {
		if t.digest != tools[name].digest && (t.unwritten || !t.learned.IsZero() && !t.learned.Before(begun)) {
			tools[name] = t
			if t.unwritten && !l.tried.IsZero() {
				untold = append(untold, store.Tool{
					Tenant: key.tenant, Server: key.server, Name: name, Digest: t.digest, Definition: t.definition, SeenAt: t.learned,
				})
			}
		}
	}
	l.tools, l.read, l.tried = tools, begun, time.Time{}
	return untold, nil
}

// write tells the log what it could not be told before. What fails is told when it is learned again.
func (c *catalog) write(ctx context.Context, key serverKey, untold []store.Tool) {
	for i := range untold {
		if _, err := c.log.LearnTool(ctx, &untold[i]); err != nil {
			return
		}
		c.keep(key, &untold[i], false)
	}
}

// learn keeps a definition, for this process at once. It reports whether the log knew another one.
func (c *catalog) learn(ctx context.Context, t *store.Tool) (changed bool, err error) {
	key := serverKey{t.Tenant, t.Server}
	c.keep(key, t, true)
	known, err := c.find(ctx, key, t.Name)
	switch {
	case err != nil:
		return false, err
	case known.stale:
		return false, errSilent // it is told when it answers
	case !known.unwritten && known.digest == t.Digest:
		return false, nil
	}
	if changed, err = c.log.LearnTool(ctx, t); err != nil {
		return false, err
	}
	c.keep(key, t, false)
	return changed, nil
}

// keep remembers a definition that is not the one that is known, or that the log has it now.
func (c *catalog) keep(key serverKey, t *store.Tool, unwritten bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.of(key)
	if known, ok := l.tools[t.Name]; unwritten && ok && known.digest == t.Digest {
		return
	}
	kept := listedOf(t)
	kept.learned, kept.unwritten = c.now(), unwritten
	l.tools[t.Name] = kept
}

// learnTools is undolog/catalog: it learns a page of tools/list, and tells of definitions that changed.
func (i *Interceptors) learnTools(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	cfg, err := i.configOf(in)
	if err != nil {
		return nil, err
	}
	var page struct {
		Tools []jsontext.Value `json:"tools"`
	}
	if err := jsonv2.Unmarshal(in.Payload, &page, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("read tools: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(learnAtOnce)
	for _, definition := range page.Tools {
		t := &store.Tool{Tenant: i.tenantOf(in), Server: serverOf(in, cfg.Server), Definition: definition, SeenAt: i.opts.Now()}
		group.Go(func() error { return i.learnTool(ctx, t) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return interceptors.Allow(), nil
}

func (i *Interceptors) learnTool(ctx context.Context, t *store.Tool) error {
	var named struct {
		Name string `json:"name"`
	}
	if err := jsonv2.Unmarshal(t.Definition, &named, jsontext.AllowDuplicateNames(true)); err != nil || named.Name == "" {
		return nil // not a tool that could be called
	}
	t.Name = named.Name
	var err error
	if t.Digest, err = effect.DigestOf(t.Definition); err != nil {
		i.opts.Logger.WarnContext(ctx, "tool definition is not canonical JSON and was not learned",
			slog.String("tool", t.Name), slog.Any("error", err))
		return nil
	}
	changed, err := i.catalog.learn(ctx, t)
	if err != nil {
		return fmt.Errorf("learn tool %s: %w", t.Name, err)
	}
	if changed { // the log has noted it
		i.opts.Logger.WarnContext(ctx, "tool definition changed", slog.String("server", t.Server), slog.String("tool", t.Name))
	}
	return nil
}

// annotationsOf reads the hints of a tool's definition. Hints that cannot be read say nothing.
func annotationsOf(definition json.RawMessage) *effect.Annotations {
	var d struct {
		Annotations struct {
			ReadOnly    bool  `json:"readOnlyHint"`
			Idempotent  bool  `json:"idempotentHint"`
			Destructive *bool `json:"destructiveHint"`
			Open        *bool `json:"openWorldHint"`
		} `json:"annotations"`
	}
	if err := jsonv2.Unmarshal(definition, &d, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil
	}
	a := &d.Annotations
	return &effect.Annotations{
		ReadOnly: a.ReadOnly, Idempotent: a.Idempotent,
		Harmless: a.Destructive != nil && !*a.Destructive, Closed: a.Open != nil && !*a.Open,
	}
}
