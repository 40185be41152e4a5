package chain_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

// BenchmarkDo is one whole operation with 1 KiB of arguments. The difference between the rows is what an
// interceptor in process costs.
func BenchmarkDo(b *testing.B) {
	params := raw(`{"name":"pay","arguments":{"note":"` + strings.Repeat("x", 1000) + `"},"_meta":{"progressToken":1}}`)
	up := answers(`{"content":[{"type":"text","text":"paid"}]}`)
	req := &chain.Request{Event: call, Params: params}
	run := func(name string, all ...interceptors.Interceptor) {
		b.Run(name, func(b *testing.B) {
			c := newChain(b, nil, all...)
			b.ReportAllocs()
			for b.Loop() {
				if reply := c.Do(b.Context(), req, up); reply.Error != nil {
					b.Fatal(string(reply.Error))
				}
			}
		})
	}
	onRequest := hooks(on(interceptors.PhaseRequest, "*"))
	run("no interceptors")
	run("one validator", validator("v", allowAll, onRequest))
	run("one mutator that changes", mutator("m", appendTag("m"), onRequest))
	run("one mutator that detaches", directed("m", `{"detach":true,"timeoutMs":60000}`, onRequest))
}

// FuzzPinned: whatever a mutator leaves, what goes on is JSON and has the protocol's own members as they
// came, or the mutator has failed.
func FuzzPinned(f *testing.F) {
	f.Add(`{"name":"t"}`)
	f.Add(`{"request\u0053tate":"x","requestState":"y","requestState":"z"}`)
	f.Add(`{"_meta":null}`)
	f.Add(`{"_meta":{"progressToken":8,"a":1,"io.modelcontextprotocol/x":2},"_meta":{}}`)
	f.Add(`{ "_meta" : [ ] , "inputResponses" : 1 }`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, left string) {
		s := interceptors.NewServer(nil)
		if err := s.Add(mutator("m", func(_ context.Context, _ *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: raw(left)}, nil
		})); err != nil {
			t.Fatal(err)
		}
		c := newChain(t, nil)
		use(t, c, chain.Local("house", s), nil)
		r := execute(t, c, chain.Receiving, `{"requestState":"s","_meta":{"progressToken":7,"io.modelcontextprotocol/a":{}}}`)
		if r.Status != chain.StatusSuccess {
			return
		}
		var got struct {
			State     string                     `json:"requestState"`
			Responses *json.RawMessage           `json:"inputResponses"`
			Meta      map[string]json.RawMessage `json:"_meta"`
		}
		if err := json.Unmarshal(r.Payload, &got); err != nil {
			t.Fatalf("%s: %v", r.Payload, err)
		}
		if got.State != "s" || got.Responses != nil || string(got.Meta["progressToken"]) != "7" || string(got.Meta["io.modelcontextprotocol/a"]) != "{}" {
			t.Fatalf("%s became %s", left, r.Payload)
		}
	})
}
