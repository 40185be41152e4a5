package effectinterceptor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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
	// catalogServers bounds how many servers are remembered: an invoker names them as it likes.
	catalogServers = 1024
	// learnAtOnce is how many definitions of a page are recorded at a time; the log groups them.
	learnAtOnce = 16
)

// catalog is what is known of tools: learned from tools/list, kept in the log, cached here.
type catalog struct {
	log *store.Log
	now func() time.Time

	mu      sync.Mutex
	servers map[serverKey]*listing
}

type serverKey struct{ tenant, server string }

// listing is one server's tools.
type listing struct {
	tools   map[string]listed
	read    time.Time
	learned time.Time
}

type listed struct {
	digest      effect.Digest
	annotations *effect.Annotations
	definition  json.RawMessage // what its schemas are read from when they are wanted
}

func listedOf(t *store.Tool) listed {
	return listed{t.Digest, annotationsOf(t.Definition), bytes.Clone(t.Definition)}
}

func newCatalog(log *store.Log, now func() time.Time) *catalog {
	return &catalog{log: log, now: now, servers: map[serverKey]*listing{}}
}

// find returns what is known of a tool, nothing when it is not known. What was read before is still used when
// the log cannot be read now.
func (c *catalog) find(ctx context.Context, key serverKey, tool string) (listed, error) {
	c.mu.Lock()
	l := c.servers[key]
	if l != nil && c.now().Sub(l.read) < catalogAge {
		t := l.tools[tool]
		c.mu.Unlock()
		return t, nil
	}
	c.mu.Unlock()
	if err := c.load(ctx, key); err != nil && l == nil {
		return listed{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.servers[key]; l != nil {
		return l.tools[tool], nil
	}
	return listed{}, nil
}

// load reads the tools of a server. What is learned meanwhile is newer than what was read.
func (c *catalog) load(ctx context.Context, key serverKey) error {
	begun := c.now()
	known, err := c.log.Tools(ctx, key.tenant, key.server)
	if err != nil {
		return fmt.Errorf("load tools of %s: %w", key.server, err)
	}
	tools := make(map[string]listed, len(known))
	for _, t := range known {
		tools[t.Name] = listedOf(&t)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.servers) >= catalogServers && c.servers[key] == nil {
		clear(c.servers)
	}
	if l := c.servers[key]; l != nil && !l.learned.Before(begun) {
		l.read = begun
		return nil
	}
	c.servers[key] = &listing{tools: tools, read: begun}
	return nil
}

// learn keeps a definition. It reports whether the log knew another one.
func (c *catalog) learn(ctx context.Context, t *store.Tool) (changed bool, err error) {
	key := serverKey{t.Tenant, t.Server}
	known, err := c.find(ctx, key, t.Name)
	if err != nil || known.digest == t.Digest {
		return false, err
	}
	if changed, err = c.log.LearnTool(ctx, t); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.servers[key]; l != nil {
		l.tools[t.Name], l.learned = listedOf(t), c.now()
	}
	return changed, nil
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
