package interceptors_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/undolog/undolog/interceptors"
)

func Example() {
	s := interceptors.NewServer(nil)
	err := s.Add(&interceptors.Validator{
		Descriptor: interceptors.Descriptor{
			Name:  "acme/no-wipe",
			Hooks: []interceptors.Hook{{Events: []string{"tools/call"}, Phase: interceptors.PhaseRequest}},
		},
		Validate: func(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
			name, _, err := interceptors.ToolCall(in.Payload)
			if err != nil || name == "wipe" {
				return interceptors.Deny("wipe is not allowed here"), nil
			}
			return interceptors.Allow(), nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := s.Invoke(context.Background(), &interceptors.InvokeParams{
		Name: "acme/no-wipe", Event: "tools/call", Phase: interceptors.PhaseRequest,
		Payload: json.RawMessage(`{"name":"wipe","arguments":{"disk":"/dev/sda"}}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Valid, r.Messages[0].Message)
	// Output: false wipe is not allowed here
}
