package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectchain"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
)

// The window is longer than any run of these tests: an equal call is the same call.
const policyFile = `
version: 1
tools:
  - {tool: charge, tier: irreversible, approve: never, repeat: replay, window: 2d}
`

// replica is one of several processes on one log, but for the process.
type replica struct {
	log   *store.Log
	chain *chain.Chain
}

// How long a claim outlives a replica.
const (
	brief  = 2 * time.Second // where databases stop: claims run out meanwhile
	steady = time.Minute     // where nobody dies: no claim runs out, however seldom a busy machine lets a heart beat
)

func newReplica(t *testing.T, address string, ttl time.Duration, opts *postgres.Options) *replica {
	t.Helper()
	driver := openDriver(t, address, opts)
	log, err := store.Open(driver, &store.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := effect.ParsePolicy("policy.yaml", []byte(policyFile))
	if err != nil {
		t.Fatal(err)
	}
	ei := effectinterceptor.New(log, &effectinterceptor.Options{Policy: policy, Delivery: true, JoinWait: 10 * time.Second})
	c, err := effectchain.New(ei, &effectchain.Options{Server: "payments"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		switch err := log.Close(); {
		case opts != nil && errors.Is(err, store.ErrUnreachable):
			t.Logf("one of little patience: %v", err) // on a busy machine
		case err != nil:
			t.Error(err)
		}
	})
	return &replica{log, c}
}

// openDriver takes its time on a busy machine, whatever the options' patience.
func openDriver(t *testing.T, address string, opts *postgres.Options) *postgres.Driver {
	t.Helper()
	var driver *postgres.Driver
	eventually(t, time.Minute, "open log", func() bool {
		var err error
		if driver, err = postgres.Open(t.Context(), address, opts); err != nil && !errors.Is(err, store.ErrUnreachable) {
			t.Fatal(err)
		}
		return err == nil
	})
	return driver
}

// told is what one call came to.
type told struct {
	n       int
	outcome string           // charged, refused, or why there is no answer
	charge  string           // the id that the tool gave, when it was charged
	end     chain.AnswerKind // of this call's own dispatch; empty when there was none
}

// The outcomes of calls that have an answer of the tool, and of those that were stopped because the log did
// not answer; all others are the interceptors' words.
const (
	wasCharged = "charged"
	wasRefused = "refused"
	wasBlocked = "blocked"
)

// charge makes call number n: an even one under a key, an odd one as it is.
func (r *replica) charge(ctx context.Context, n int, tl *tool) told {
	meta := ""
	if n%2 == 0 {
		meta = fmt.Sprintf(`,"_meta":{"idempotencyKey":"k%d"}`, n)
	}
	got := told{n: n}
	up := tl.call(n)
	reply := r.chain.Do(ctx, &chain.Request{
		Event:     "tools/call",
		Params:    fmt.Appendf(nil, `{"name":"charge","arguments":{"n":%d}%s}`, n, meta),
		Principal: &interceptors.Principal{Type: "service", ID: "agent:a"},
	}, func(ctx context.Context, params json.RawMessage) chain.Answer {
		a := up(ctx, params)
		got.end = a.Kind
		return a
	})
	reply.Delivered(n%4 == 0) // a delivered call under no key may be made again
	got.outcome, got.charge = read(reply)
	if got.outcome == "unavailable" && got.end == "" {
		got.outcome = wasBlocked
	}
	return got
}

func read(reply *chain.Reply) (outcome, charge string) {
	var result struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(reply.Result, &result); err == nil && len(result.Content) > 0 {
		return wasCharged, result.Content[0].Text
	}
	var e struct {
		Code int
		Data struct {
			Effect struct{ Outcome string } `json:"dev.undolog/effect"`
		}
	}
	if err := json.Unmarshal(reply.Error, &e); err != nil {
		return "unreadable: " + string(reply.Result) + string(reply.Error), ""
	}
	if o := e.Data.Effect.Outcome; e.Code == -32602 && (o == "" || o == "replay") {
		return wasRefused, ""
	}
	return e.Data.Effect.Outcome, ""
}

func withParameter(t *testing.T, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}
