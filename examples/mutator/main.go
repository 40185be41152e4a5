// Command mutator is an interceptor host on stdio whose one mutator tags the results of tools.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
)

func main() {
	host := interceptors.NewServer(nil)
	if err := host.Add(&interceptors.Mutator{
		Descriptor: interceptors.Descriptor{
			Name:  "example/tag",
			Hooks: []interceptors.Hook{{Events: []string{"tools/call"}, Phase: interceptors.PhaseResponse}},
		},
		Mutate: tag,
	}); err != nil {
		log.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "mutator", Version: "1"}, &mcp.ServerOptions{Capabilities: host.Capabilities()})
	if err := host.Install(server); err != nil {
		log.Fatal(err)
	}
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}

// tag adds a member to the result's _meta. The others are never decoded, so that numbers keep their digits.
func tag(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	var result, meta map[string]json.RawMessage
	if err := json.Unmarshal(in.Payload, &result); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if raw := result["_meta"]; raw != nil {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return nil, fmt.Errorf("read _meta: %w", err)
		}
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	if result == nil {
		result = map[string]json.RawMessage{}
	}
	meta["com.example/checked"] = json.RawMessage(`true`)
	var err error
	if result["_meta"], err = json.Marshal(meta); err != nil {
		return nil, fmt.Errorf("write _meta: %w", err)
	}
	payload, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("write result: %w", err)
	}
	return &interceptors.Change{Payload: payload}, nil
}
