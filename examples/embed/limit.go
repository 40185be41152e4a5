package main

import (
	"context"
	"encoding/json"

	"github.com/undolog/undolog/interceptors"
)

const maxCents = 100_000

// limit refuses transfers of large sums before they run. What it says is for the log: a requester learns
// only that its call was refused.
var limit = &interceptors.Validator{
	Descriptor: interceptors.Descriptor{
		Name:  "example/limit",
		Hooks: []interceptors.Hook{{Events: []string{"tools/call"}, Phase: interceptors.PhaseRequest}},
	},
	Validate: func(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
		tool, arguments, err := interceptors.ToolCall(in.Payload)
		if err != nil {
			return interceptors.Deny("the call cannot be read"), nil
		}
		if tool != "transfer" {
			return interceptors.Allow(), nil
		}
		var t transferArguments
		if err := json.Unmarshal(arguments, &t); err != nil {
			return interceptors.Deny("the arguments are not a transfer"), nil
		}
		if t.Cents > maxCents {
			return interceptors.Deny("the sum is above the limit"), nil
		}
		return interceptors.Allow(), nil
	},
}

// house serves the interceptors of this program's own.
func house() *interceptors.Server {
	s := interceptors.NewServer(nil)
	if err := s.Add(limit); err != nil {
		panic(err) // a mistake in limit's descriptor
	}
	return s
}
