// Command validator is an interceptor host on stdio whose one validator refuses calls of dangerous tools.
package main

import (
	"context"
	"log"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
)

func main() {
	host := interceptors.NewServer(nil)
	if err := host.Add(&interceptors.Validator{
		Descriptor: interceptors.Descriptor{
			Name:  "example/no-deletes",
			Hooks: []interceptors.Hook{{Events: []string{"tools/call"}, Phase: interceptors.PhaseRequest}},
		},
		Validate: noDeletes,
	}); err != nil {
		log.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "validator", Version: "1"}, &mcp.ServerOptions{Capabilities: host.Capabilities()})
	if err := host.Install(server); err != nil {
		log.Fatal(err)
	}
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}

var dangerous = []string{"delete_file", "drop_table", "wipe"}

// noDeletes denies the dangerous tools, and calls that it cannot read.
func noDeletes(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	tool, _, err := interceptors.ToolCall(in.Payload)
	if err != nil {
		return interceptors.Deny("the call cannot be read"), nil
	}
	if slices.Contains(dangerous, tool) {
		return interceptors.Deny(tool + " is not allowed here"), nil
	}
	return interceptors.Allow(), nil
}
