package effectinterceptor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
	"github.com/undolog/undolog/store"
)

// FuzzToolCall: whatever the params are, both phases end without a crash; what is refused is refused with
// a typed reason; what goes on is the params that came, but for their _meta, where our stamp is and
// nothing else of ours; and guard and effect agree.
func FuzzToolCall(f *testing.F) {
	for _, seed := range []string{
		pay, keyed, paid, ``, `{}`, `null`, `{"name":"pay"}`, `{"name":""}`, `{"name":7}`,
		`{"_meta":{},"name":"a"}`, `{ "_meta" : null , "name" : "a" } `, `{"name":"a","_meta":[]}`, `{"name":"a","_meta":{"a":{"b":"}"},"dev.undolog/run":"r"}}`,
		`{"name":"a","_meta":{"dev.undolog/effect":{},"\u0064ev.undolog/x":1,"idempotencyKey":"k","z":1}}`,
		`{"name":"a","arguments":{"b":1e999}}`, `{"name":"a","arguments":{"c":{"c":1,"c":2}}}`, `{"name":"a","arguments":{"s":"\ud800"}}`,
		`{"name":"a","requestState":"s","inputResponses":null}`, `{"name":"a","name":"b"}`, `{"name":"a"}{}`,
		`{"resultType":"input_required","requestState":3}`, `{"task":{"taskId":"t"}}`, `{"_meta":{"dev.undolog/effect":{"id":"x","attempt":1e400}}}`,
	} {
		f.Add([]byte(seed))
	}
	log, err := store.Open(discard{}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = log.Close() }) // a driver that keeps nothing
	ei := effectinterceptor.New(log, nil)
	host := interceptors.NewServer(nil)
	if err := ei.Register(host, effectinterceptor.ForeignEngine); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		invoke := func(name string, phase interceptors.Phase) (*interceptors.Result, error) {
			r, err := host.Invoke(context.Background(), &interceptors.InvokeParams{
				Name: name, Event: "tools/call", Phase: phase, Payload: payload,
				Context: &interceptors.Context{Principal: user("alice"), SessionID: "s"},
			})
			var crash *interceptors.CrashError
			if errors.As(err, &crash) {
				t.Fatalf("%s %s of %q: %v", name, phase, payload, err)
			}
			return r, err
		}
		verdict, err := invoke(effectinterceptor.GuardName, interceptors.PhaseRequest)
		if err != nil {
			t.Fatalf("guard of %q: %v", payload, err)
		}
		change, err := invoke(effectinterceptor.EffectName, interceptors.PhaseRequest)
		if !verdict.Valid && err == nil {
			t.Errorf("%q is refused by the guard and goes on all the same", payload)
		}
		if err == nil {
			checkStamped(t, payload, change.Payload)
		}
		if json.Valid(payload) {
			for _, name := range []string{effectinterceptor.EffectName, effectinterceptor.GuardName} {
				if _, err := invoke(name, interceptors.PhaseResponse); err != nil {
					t.Errorf("%s of the response %q: %v", name, payload, err)
				}
			}
		}
	})
}

func checkStamped(t *testing.T, before, after json.RawMessage) {
	t.Helper()
	if params := splice.Get(before, "params"); params != nil && splice.Get(before, "name") == nil {
		before, after = params, splice.Get(after, "params") // came wrapped
	}
	want, got := membersBut(t, before), membersBut(t, after)
	if !bytes.Equal(want, got) {
		t.Errorf("%s became %s", before, after)
	}
	if splice.Get(after, "_meta", "dev.undolog/effect", "id") == nil || splice.Get(after, "_meta", "idempotencyKey") == nil {
		t.Errorf("%s has no stamp", after)
	}
	err := splice.Each(splice.Get(after, "_meta"), func(name string, _ []byte) {
		switch name {
		case "dev.undolog/effect", "dev.undolog/run", "dev.undolog/occurrence", "dev.undolog/idempotency-key":
			return
		}
		if bytes.HasPrefix([]byte(name), []byte("dev.undolog/")) {
			t.Errorf("%s lets %s pass", after, name)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// membersBut are the members other than _meta, in their order.
func membersBut(t *testing.T, params json.RawMessage) []byte {
	t.Helper()
	var all bytes.Buffer
	err := splice.Each(params, func(name string, value []byte) {
		if name != "_meta" {
			all.WriteString(name)
			all.Write(value)
		}
	})
	if err != nil {
		t.Fatalf("%s: %v", params, err)
	}
	return all.Bytes()
}
