package chain_test

import (
	"context"
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

// What interceptors want to go out beside the params reaches the upstream, detached or not; of a header the last
// interceptor's word counts, and an audit's counts for nothing.
func TestDo_headersOfTheDirective(t *testing.T) {
	for name, detach := range map[string]string{"at once": `"detach":false`, "apart": `"detach":true`} {
		t.Run(name, func(t *testing.T) {
			c := newChain(t, nil,
				directed("a", `{`+detach+`,"headers":{"Request-Id":"from a","X-A":"1"}}`, priority(1, 0)),
				directed("b", `{"headers":{"Request-Id":"from b"}}`, priority(2, 0)),
				directed("watcher", `{"headers":{"X-Watched":"1"}}`, audit))
			var got map[string]string
			c.Do(t.Context(), request, func(ctx context.Context, _ json.RawMessage) chain.Answer {
				got = maps.Clone(chain.Headers(ctx))
				return chain.Answer{Kind: chain.Answered, Result: raw(`{}`)}
			})
			if diff := cmp.Diff(map[string]string{"Request-Id": "from b", "X-A": "1"}, got); diff != "" {
				t.Errorf("headers (-want +got)\n%s", diff)
			}
		})
	}
	c := newChain(t, nil, mutator("plain", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) { return nil, nil }))
	c.Do(t.Context(), request, func(ctx context.Context, _ json.RawMessage) chain.Answer {
		if h := chain.Headers(ctx); h != nil {
			t.Errorf("headers %v, want none", h)
		}
		return chain.Answer{Kind: chain.Answered, Result: raw(`{}`)}
	})
}
