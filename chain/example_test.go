package chain_test

import (
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
