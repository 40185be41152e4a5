package effectinterceptor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
)

// catalog is what is known of tools: learned from tools/list, kept in the log, cached here.
type catalog struct {
	log *store.Log

	mu      sync.Mutex
	servers map[serverKey]map[string]*listed
}

type serverKey struct{ tenant, server string }

type listed struct {
	digest      effect.Digest
	annotations *effect.Annotations
}

func newCatalog(log *store.Log) *catalog {
	return &catalog{log: log, servers: map[serverKey]map[string]*listed{}}
}

// annotations returns what the tool's definition says of it; nil when the tool is not known.
func (c *catalog) annotations(ctx context.Context, tenant, server, tool string) (*effect.Annotations, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tools, err := c.load(ctx, serverKey{tenant, server})
	if err != nil {
		return nil, err
	}
	if t := tools[tool]; t != nil {
		return t.annotations, nil
	}
	return nil, nil
}

func (c *catalog) load(ctx context.Context, key serverKey) (map[string]*listed, error) {
	if tools, ok := c.servers[key]; ok {
		return tools, nil
	}
	known, err := c.log.Tools(ctx, key.tenant, key.server)
	if err != nil {
		return nil, fmt.Errorf("load tools of %s: %w", key.server, err)
	}
	tools := make(map[string]*listed, len(known))
	for _, t := range known {
		tools[t.Name] = &listed{digest: t.Digest, annotations: annotationsOf(t.Definition)}
	}
	c.servers[key] = tools
	return tools, nil
}

// learn keeps a definition. It reports whether the log knew another one.
func (c *catalog) learn(ctx context.Context, t *store.Tool) (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tools, err := c.load(ctx, serverKey{t.Tenant, t.Server})
	if err != nil {
		return false, err
	}
	if known := tools[t.Name]; known != nil && known.digest == t.Digest {
		return false, nil
	}
	if changed, err = c.log.LearnTool(ctx, t); err != nil {
		return false, err
	}
	tools[t.Name] = &listed{digest: t.Digest, annotations: annotationsOf(t.Definition)}
	return changed, nil
}

// learnTools is undolog/catalog: it learns a page of tools/list, and notes definitions that changed.
func (i *Interceptors) learnTools(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	var cfg config
	if len(in.Config) > 0 {
		if err := jsonv2.Unmarshal(in.Config, &cfg); err != nil {
			return nil, fmt.Errorf("read config: %w", err)
		}
	}
	var page struct {
		Tools []jsontext.Value `json:"tools"`
	}
	if err := jsonv2.Unmarshal(in.Payload, &page, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("read tools: %w", err)
	}
	for _, definition := range page.Tools {
		t := &store.Tool{Tenant: i.tenantOf(in), Server: serverOf(in, cfg.Server), Definition: definition, SeenAt: i.opts.Now()}
		if err := i.learnTool(ctx, t); err != nil {
			return nil, err
		}
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
	if changed {
		i.opts.Logger.WarnContext(ctx, "tool definition changed", slog.String("server", t.Server), slog.String("tool", t.Name))
		i.log.Note(effect.Event{At: t.SeenAt, Tenant: t.Tenant, Kind: effect.EventToolChanged, Server: t.Server, Tool: t.Name,
			Detail: detail(map[string]string{"digest": t.Digest.String()})})
	}
	return nil
}

// annotationsOf reads the hints of a tool's definition, digit for digit as MCP has them.
func annotationsOf(definition json.RawMessage) *effect.Annotations {
	var d struct {
		Annotations struct {
			ReadOnly    bool  `json:"readOnlyHint"`
			Idempotent  bool  `json:"idempotentHint"`
			Destructive *bool `json:"destructiveHint"`
		} `json:"annotations"`
	}
	if err := jsonv2.Unmarshal(definition, &d, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil
	}
	return &effect.Annotations{ReadOnly: d.Annotations.ReadOnly, Idempotent: d.Annotations.Idempotent}
}
