package effectchain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effectchain"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

const stack = "it broke\n  at guard.js:12\n  payload: canary"

// breaking is a host whose one validator breaks.
type breaking struct{}

func (breaking) Name() string { return "far" }

func (breaking) List(context.Context) ([]interceptors.Descriptor, error) {
	return []interceptors.Descriptor{{Name: "guard", Type: interceptors.TypeValidation,
		Hooks: []interceptors.Hook{{Events: []string{"tools/call"}, Phase: interceptors.PhaseRequest}}}}, nil
}

func (breaking) Invoke(context.Context, *interceptors.InvokeParams) (*interceptors.Result, error) {
	return nil, errors.New(stack)
}

func TestNew_theLogHasNoStacksOfOthers(t *testing.T) {
	cases := map[string]struct {
		use func(c *chain.Chain) error
		up  func() chain.Answer
	}{
		"a host that fails":       {func(c *chain.Chain) error { return c.Use(breaking{}, nil) }, func() chain.Answer { return paid }},
		"an answer that is lost":  {func(*chain.Chain) error { return nil }, func() chain.Answer { return chain.Answer{Kind: chain.Lost, Cause: errors.New(stack)} }},
		"an upstream that panics": {func(*chain.Chain) error { return nil }, func() chain.Answer { panic(stack) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			driver, err := sqlite.Open(t.Context(), filepath.Join(dir, "log.db"), nil)
			if err != nil {
				t.Fatal(err)
			}
			log, err := store.Open(driver, nil)
			if err != nil {
				t.Fatal(err)
			}
			ch, err := effectchain.New(effectinterceptor.New(log, nil), &effectchain.Options{Server: "bank"})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.use(ch); err != nil {
				t.Fatal(err)
			}
			ch.Do(t.Context(), &chain.Request{
				Event: "tools/call", Params: json.RawMessage(`{"name":"pay","arguments":{"cents":5}}`),
				Principal: &interceptors.Principal{Type: "service", ID: "agent:a"},
			}, func(context.Context, json.RawMessage) chain.Answer { return c.up() })
			if err := errors.Join(ch.Drain(context.Background()), log.Close()); err != nil {
				t.Fatal(err)
			}
			written, err := os.ReadFile(filepath.Join(dir, "log.db"))
			if err != nil {
				t.Fatal(err)
			}
			for text, want := range map[string]bool{"it broke": true, "canary": false, "goroutine ": false} {
				if bytes.Contains(written, []byte(text)) != want {
					t.Errorf("%q is in the log: %t, want %t", text, !want, want)
				}
			}
		})
	}
}
