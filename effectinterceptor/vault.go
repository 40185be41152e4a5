package effectinterceptor

import (
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/undolog/undolog/effect"
)

// vaultMost bounds how many secrets a Vault remembers: the latest so many.
const vaultMost = 1024

// Vault remembers the secrets of calls that are under way and of the latest that were, so that they can be
// taken out of what no call owns: lines of a log, a target's standard error, the words of other interceptors.
// They are in memory alone. A Vault is safe for concurrent use; nil remembers nothing.
type Vault struct {
	merged atomic.Pointer[effect.Secrets] // nil: there are none

	mu     sync.Mutex
	values []string // oldest first, each once
	known  map[string]struct{}
}

// NewVault returns an empty vault.
func NewVault() *Vault { return &Vault{known: map[string]struct{}{}} }

// add remembers secrets. Most callers send the same ones again and again, which costs nothing.
func (v *Vault) add(s *effect.Secrets) {
	if v == nil || s == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	changed := false
	for _, value := range s.Values() {
		if _, ok := v.known[value]; ok {
			continue
		}
		v.known[value] = struct{}{}
		v.values, changed = append(v.values, value), true
	}
	if !changed {
		return
	}
	if over := len(v.values) - vaultMost; over > 0 {
		for _, old := range v.values[:over] {
			delete(v.known, old)
		}
		v.values = slices.Delete(v.values, 0, over)
	}
	v.merged.Store((*effect.Secrets)(nil).With(v.values...))
}

// Text returns a text without the secrets.
func (v *Vault) Text(text string) string {
	if v == nil {
		return text
	}
	return v.merged.Load().Text(text)
}

// Handler returns a handler that takes the secrets out of messages and attributes before h sees them.
func (v *Vault) Handler(h slog.Handler) slog.Handler { return &vaultHandler{v, h} }

type vaultHandler struct {
	vault *Vault
	slog.Handler
}

func (h *vaultHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.vault.merged.Load() == nil {
		return h.Handler.Handle(ctx, r)
	}
	clean := slog.NewRecord(r.Time, r.Level, h.vault.Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.vault.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

func (h *vaultHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.vault.attr(a)
	}
	return &vaultHandler{h.vault, h.Handler.WithAttrs(clean)}
}

func (h *vaultHandler) WithGroup(name string) slog.Handler {
	return &vaultHandler{h.vault, h.Handler.WithGroup(name)}
}

// attr keeps an attribute as it is unless its text holds a secret.
func (v *Vault) attr(a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindGroup:
		group := value.Group()
		clean := make([]slog.Attr, len(group))
		for i, member := range group {
			clean[i] = v.attr(member)
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(clean...)}
	case slog.KindString, slog.KindAny:
		text := attrText(value)
		if clean := v.Text(text); clean != text {
			return slog.String(a.Key, clean)
		}
	}
	return slog.Attr{Key: a.Key, Value: value}
}

// attrText is an attribute as a handler writes it.
func attrText(v slog.Value) string {
	if v.Kind() == slog.KindString {
		return v.String()
	}
	switch value := v.Any().(type) {
	case []byte:
		return string(value)
	case json.RawMessage:
		return string(value)
	case encoding.TextMarshaler:
		if text, err := value.MarshalText(); err == nil {
			return string(text)
		}
	}
	return fmt.Sprintf("%+v", v.Any())
}
