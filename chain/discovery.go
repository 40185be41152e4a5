package chain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/undolog/undolog/interceptors"
)

const (
	discoveryTimeout = 10 * time.Second
	discoveryRetry   = time.Second // how long an unreachable host is left alone
	shortestTTL      = time.Second // that a host can ask for: not every operation is to ask it
)

// Lister is a Host that says for how long its list may be kept. That counts where it is shorter than
// Options.DiscoveryTTL, but for no less than a second, and not at all when that is negative.
type Lister interface {
	// Listing is List with what the host says.
	Listing(ctx context.Context) (*interceptors.Listing, error)
}

// hostEntry is a host in use, with what it last listed.
type hostEntry struct {
	host    Host
	policy  HostPolicy
	trusted bool
	local   bool

	listed []interceptors.Descriptor // nil until the host has answered once
	ttl    time.Duration             // how long that is believed; negative: until Invalidate
	asked  time.Time
	err    error // of the last asking
	known  bool  // listed is an answer, though perhaps an older one
}

// snapshot is what all hosts together offer, until it is to be asked again. It is never changed.
type snapshot struct {
	entries []*entry
	left    []leftOut
	until   time.Time // zero: for ever
	plans   planCache
}

// Use adds a host after those already there; its interceptors take part from the next phase on. A nil
// policy leaves everything as the authors declared it. Use fails on a policy that cannot be meant, on a
// second host of the same name, and, for a Local host, on hooks that widen.
func (c *Chain) Use(host Host, policy *HostPolicy) error {
	h := &hostEntry{host: host}
	if policy != nil {
		h.policy = *policy
	}
	if t, ok := host.(Truster); ok {
		h.trusted = t.Trusted()
	}
	if err := h.policy.check(); err != nil {
		return fmt.Errorf("use host %s: %w", host.Name(), err)
	}
	if _, h.local = host.(*localHost); h.local {
		if err := h.checkOverrides(); err != nil {
			return fmt.Errorf("use host %s: %w", host.Name(), err)
		}
	}
	if err := c.add(h); err != nil {
		return fmt.Errorf("use host %s: %w", host.Name(), err)
	}
	if w, ok := host.(Watcher); ok {
		w.Watch(func() { c.Invalidate(host.Name()) })
	}
	return nil
}

func (c *Chain) add(h *hostEntry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.hosts {
		if other.host.Name() == h.host.Name() {
			return errors.New("the name is taken")
		}
	}
	c.hosts = append(c.hosts, h)
	c.resolved.Store(nil)
	return nil
}

func (h *hostEntry) checkOverrides() error {
	listed, err := h.host.List(context.Background())
	if err != nil {
		return err
	}
	for i := range listed {
		if o, ok := h.policy.Overrides[listed[i].Name]; ok {
			if err := o.checkNarrowing(&listed[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Invalidate forgets what the named host listed, or what all did when the name is empty: the next phase
// asks again. A phase under way keeps its plan.
func (c *Chain) Invalidate(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hosts {
		if host == "" || h.host.Name() == host {
			h.asked = time.Time{}
		}
	}
	c.resolved.Store(nil)
}

// snapshot returns what the hosts offer. While one caller asks again, the others go on with what was
// known.
func (c *Chain) snapshot(ctx context.Context) *snapshot {
	s := c.resolved.Load()
	if s != nil && (s.until.IsZero() || c.opts.Now().Before(s.until)) {
		return s
	}
	if s == nil {
		c.mu.Lock()
	} else if !c.mu.TryLock() {
		return s
	}
	defer c.mu.Unlock()
	if now := c.resolved.Load(); now != nil && now != s {
		return now
	}
	s = c.discover(ctx)
	c.resolved.Store(s)
	return s
}

// discover asks the hosts whose list is old. It is called with mu held.
func (c *Chain) discover(ctx context.Context) *snapshot {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discoveryTimeout)
	defer cancel()
	c.askAll(ctx)
	s := &snapshot{}
	for _, h := range c.hosts {
		if until := c.validUntil(h); s.until.IsZero() || !until.IsZero() && until.Before(s.until) {
			s.until = until
		}
		s.take(h, c.opts.Logger)
	}
	return s
}

// askAll asks at the same time: one that hangs must not use up the others' time.
func (c *Chain) askAll(ctx context.Context) {
	var asked sync.WaitGroup
	for _, h := range c.hosts {
		now := c.opts.Now()
		if until := c.validUntil(h); h.asked.IsZero() || !until.IsZero() && !now.Before(until) {
			asked.Go(func() { c.ask(ctx, h, now) })
		}
	}
	asked.Wait()
}

// validUntil is when h is to be asked again; zero: never.
func (c *Chain) validUntil(h *hostEntry) time.Time {
	switch {
	case h.err != nil:
		return h.asked.Add(discoveryRetry)
	case h.ttl < 0:
		return time.Time{}
	}
	return h.asked.Add(h.ttl)
}

// ttl is how long a listing is believed.
func (c *Chain) ttl(l *interceptors.Listing) time.Duration {
	ours := c.opts.DiscoveryTTL
	if ours < 0 || !l.HasTTL {
		return ours
	}
	return min(max(l.TTL, shortestTTL), ours)
}

func (c *Chain) ask(ctx context.Context, h *hostEntry, now time.Time) {
	listing, err := h.list(ctx)
	h.asked, h.err = now, err
	if err != nil {
		h.asked = c.opts.Now() // one that hung is left alone for a while too
		c.opts.Logger.ErrorContext(ctx, "interceptor host cannot be asked",
			slog.String("host", h.host.Name()), slog.Bool("known", h.known), slog.String("error", brief(err)))
		return
	}
	h.listed, h.ttl, h.known = listing.Interceptors, c.ttl(listing), true
}

func (h *hostEntry) list(ctx context.Context) (*interceptors.Listing, error) {
	if l, ok := h.host.(Lister); ok {
		return l.Listing(ctx)
	}
	listed, err := h.host.List(ctx)
	return &interceptors.Listing{Interceptors: listed}, err
}

// leftOut is an interceptor that a host lists and no plan can hold.
type leftOut struct {
	host       string
	descriptor interceptors.Descriptor
	side       Side
	reason     string
}

// take resolves what h offers with its policy; required interceptors that are missing come as entries
// that fail.
func (s *snapshot) take(h *hostEntry, logger *slog.Logger) {
	seen := make(map[string]bool)
	for i := range h.listed {
		d := &h.listed[i]
		o := h.policy.Overrides[d.Name]
		e := newEntry(h, *d, o)
		want, required := h.policy.Required[d.Name]
		reason := unusable(d)
		switch {
		case reason != "":
		case seen[d.Name]:
			reason = "its host lists the name twice"
		case required && want != d.Type:
			reason = fmt.Sprintf("it is required to be of type %s", want) // comes back as missing
		default:
			seen[d.Name] = true
			if err := o.checkNarrowing(d); err != nil { // a host asked later gets what both cover
				logger.Error("interceptor is not hooked as the policy has it", slog.String("host", h.host.Name()), slog.Any("error", err))
			}
			if !o.Disabled {
				s.entries = append(s.entries, e)
				continue
			}
			s.left = append(s.left, leftOut{h.host.Name(), *d, e.side, "disabled by the policy"})
			continue
		}
		logger.Error("interceptor is passed over", slog.String("host", h.host.Name()),
			slog.String("interceptor", d.Name), slog.String("reason", reason))
		s.left = append(s.left, leftOut{h.host.Name(), *d, e.side, reason})
	}
	s.entries = append(s.entries, h.missing(seen)...)
}

var errMissing = errors.New("required interceptor is not there")

func (h *hostEntry) missing(seen map[string]bool) []*entry {
	var entries []*entry
	for _, name := range slices.Sorted(maps.Keys(h.policy.Required)) {
		if seen[name] {
			continue
		}
		everywhere := []interceptors.Hook{
			{Events: []string{"*"}, Phase: interceptors.PhaseRequest},
			{Events: []string{"*"}, Phase: interceptors.PhaseResponse},
		}
		e := newEntry(h, interceptors.Descriptor{Name: name, Type: h.policy.Required[name], Hooks: everywhere}, h.policy.Overrides[name])
		e.missing = errMissing
		if h.err != nil {
			e.missing = fmt.Errorf("%w: %w", errMissing, h.err)
		}
		entries = append(entries, e)
	}
	return entries
}

// unusable says why a descriptor cannot be run, empty when it can.
func unusable(d *interceptors.Descriptor) string {
	switch {
	case d.Name == "":
		return "no name"
	case d.Type != interceptors.TypeValidation && d.Type != interceptors.TypeMutation:
		return "unknown type"
	case d.Mode != "" && d.Mode != interceptors.ModeActive && d.Mode != interceptors.ModeAudit:
		return "unknown mode"
	}
	return ""
}
