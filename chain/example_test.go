package chain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

// One operation, with an interceptor in process and a target that answers at once.
func Example() {
	house := interceptors.NewServer(nil)
	err := house.Add(&interceptors.Validator{
		Descriptor: interceptors.Descriptor{
			Name:  "example/closed",
			Hooks: []interceptors.Hook{{Events: []string{"tools/*"}, Phase: interceptors.PhaseRequest}},
		},
		Validate: func(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
			if in.Event == "tools/call" {
				return interceptors.Deny("the counter is closed"), nil
			}
			return interceptors.Allow(), nil
		},
	})
	if err != nil {
		panic(err)
	}
	c, err := chain.New(nil)
	if err != nil {
		panic(err)
	}
	if err := c.Use(chain.Local("house", house), nil); err != nil {
		panic(err)
	}
	target := func(context.Context, json.RawMessage) chain.Answer {
		return chain.Answer{Kind: chain.Answered, Result: json.RawMessage(`{"tools":[]}`)}
	}
	for _, event := range []string{"tools/list", "tools/call"} {
		reply := c.Do(context.Background(), &chain.Request{Event: event}, target)
		fmt.Printf("%s: %s%s\n", reply.Outcome.Verdict, reply.Result, reply.Error)
		reply.Delivered(true)
	}
	// Output:
	// allowed: {"tools":[]}
	// blocked: {"code":-32602,"message":"Interceptor validation failed","data":{"reason":"denied","phase":"request"}}
}

// An interceptor says that somebody must decide, and the observer, which knows how to ask people, holds the
// operation until they have.
func ExamplePause() {
	decided := map[string]bool{}
	house := interceptors.NewServer(nil)
	err := house.Add(&interceptors.Validator{
		Descriptor: interceptors.Descriptor{
			Name:  "example/two-pairs-of-eyes",
			Hooks: []interceptors.Hook{{Events: []string{"tools/call"}, Phase: interceptors.PhaseRequest}},
		},
		Validate: func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
			if decided["42"] {
				return interceptors.Allow(), nil
			}
			verdict := interceptors.Deny("a second person must agree")
			verdict.Info = json.RawMessage(`{"dev.undolog/pause":{"id":"42","text":"Pay 900 EUR?","waitMs":45000}}`)
			return verdict, nil
		},
	})
	if err != nil {
		panic(err)
	}
	c, err := chain.New(&chain.Options{Observer: chain.Observer{
		Pause: func(_ context.Context, _ *chain.Exchange, p *chain.Pause) bool {
			fmt.Println(p.Text)
			decided[p.ID] = true // a real one asks, and waits for at most WaitMs
			return true
		},
	}})
	if err != nil {
		panic(err)
	}
	if err := c.Use(chain.Local("house", house), nil); err != nil {
		panic(err)
	}
	reply := c.Do(context.Background(), &chain.Request{Event: "tools/call"}, func(context.Context, json.RawMessage) chain.Answer {
		return chain.Answer{Kind: chain.Answered, Result: json.RawMessage(`{"content":[]}`)}
	})
	fmt.Println(reply.Outcome.Verdict)
	// Output:
	// Pay 900 EUR?
	// allowed
}

// An application runs an event of its own, here one that it asks of a language model.
func ExampleChain_Execute() {
	house := interceptors.NewServer(nil)
	err := house.Add(&interceptors.Mutator{
		Descriptor: interceptors.Descriptor{
			Name:  "example/redact",
			Hooks: []interceptors.Hook{{Events: []string{"llm/completion"}, Phase: interceptors.PhaseRequest}},
		},
		Mutate: func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: bytes.ReplaceAll(in.Payload, []byte("Ada"), []byte("[name]"))}, nil
		},
	})
	if err != nil {
		panic(err)
	}
	c, err := chain.New(&chain.Options{Posture: chain.PostureClient})
	if err != nil {
		panic(err)
	}
	if err := c.Use(chain.Local("house", house), nil); err != nil {
		panic(err)
	}
	r := c.Execute(context.Background(), &chain.PhaseParams{
		Event: "llm/completion", Phase: interceptors.PhaseRequest, Payload: json.RawMessage(`{"prompt":"Write to Ada"}`),
	})
	fmt.Println(r.Status, string(r.Payload))
	// Output: success {"prompt":"Write to [name]"}
}
