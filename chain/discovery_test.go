package chain_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

// listing is a host that says for how long its list may be kept.
type listing struct {
	*fakeHost
	listing interceptors.Listing
	asked   int
}

func (h *listing) Listing(context.Context) (*interceptors.Listing, error) {
	h.asked++
	l := h.listing
	l.Interceptors, _ = h.list()
	return &l, nil
}

func TestDiscovery_AHostsOwnTTL(t *testing.T) {
	const ours = time.Minute
	says := func(ttl time.Duration) interceptors.Listing { return interceptors.Listing{TTL: ttl, HasTTL: true} }
	cases := map[string]struct {
		ours time.Duration
		says interceptors.Listing
		want time.Duration // 0: never
	}{
		"that is shorter counts":           {ours, says(20 * time.Second), 20 * time.Second},
		"that is longer does not":          {ours, says(time.Hour), ours},
		"of nothing is a second":           {ours, says(0), time.Second},
		"that it does not name is ours":    {ours, interceptors.Listing{}, ours},
		"is nothing to one who never asks": {-1, says(time.Second), 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
			host := &listing{fakeHost: answering("v", interceptors.TypeValidation, &interceptors.Result{Valid: true}), listing: c.says}
			ch := newChain(t, &chain.Options{DiscoveryTTL: c.ours, Now: func() time.Time { return now }})
			use(t, ch, host, nil)
			if execute(t, ch, chain.Receiving, hi); host.asked != 1 {
				t.Fatalf("asked %d times by the first phase", host.asked)
			}
			if c.want == 0 {
				now = now.Add(1000 * time.Hour)
				if execute(t, ch, chain.Receiving, hi); host.asked != 1 {
					t.Errorf("asked %d times", host.asked)
				}
				return
			}
			now = now.Add(c.want - time.Millisecond)
			if execute(t, ch, chain.Receiving, hi); host.asked != 1 {
				t.Errorf("asked again before %s", c.want)
			}
			now = now.Add(time.Millisecond)
			if execute(t, ch, chain.Receiving, hi); host.asked != 2 {
				t.Errorf("not asked again after %s", c.want)
			}
		})
	}
}

// What changes in the process is in the plan of the next phase.
func TestDiscovery_ALocalServerThatChanges(t *testing.T) {
	server := interceptors.NewServer(nil)
	c := newChain(t, nil)
	use(t, c, chain.Local("local", server), nil)
	steps := []struct {
		change func()
		want   []string
	}{
		{func() {}, nil},
		{func() { addAllowing(t, server, "a", "b") }, []string{"a", "b"}},
		{func() { server.Remove("a") }, []string{"b"}},
	}
	for i, step := range steps {
		step.change()
		if diff := cmp.Diff(step.want, recorded(execute(t, c, chain.Receiving, hi))); diff != "" {
			t.Errorf("step %d: called (-want +got)\n%s", i, diff)
		}
	}
}

func addAllowing(t *testing.T, s *interceptors.Server, names ...string) {
	t.Helper()
	for _, name := range names {
		err := s.Add(&interceptors.Validator{
			Descriptor: interceptors.Descriptor{Name: name, Hooks: bothPhases},
			Validate: func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
				return interceptors.Allow(), nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
