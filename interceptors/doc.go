// Package interceptors is the MCP interceptor extension (SEP-1763, renumbered SEP-2624): validators,
// which judge the payload of an operation, and mutators, which change it, at a host that any engine finds
// by interceptors/list and calls by interceptor/invoke.
//
// A host is a Server. Its Invoke is the one implementation, called directly by an engine in the same
// process and by peers over MCP:
//
//	host := interceptors.NewServer(nil)
//	err := host.Add(&interceptors.Validator{
//		Descriptor: interceptors.Descriptor{Name: "acme/guard", Hooks: hooks},
//		Validate: func(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
//			return interceptors.Deny("not today"), nil
//		},
//	})
//	server := mcp.NewServer(implementation, &mcp.ServerOptions{Capabilities: host.Capabilities()})
//	err = host.Install(server)        // stdio, in memory, …
//	handler, err := host.Handler(nil) // or HTTP, every protocol revision at one endpoint
//
// Server.MCPServer makes a server that has nothing else. Interceptors may be added and removed while peers are
// connected: engines in the process Watch, peers learn of it by Announcing, Handler or ListTTL.
//
// The calling side is a Client, on sessions of an mcp.Client prepared by AddClient.
//
// What holds for every invocation:
//
//   - A handler runs only for a hook that its descriptor shows, with a config that fits its schema.
//   - A handler gets its own copy of the payload, bare, whatever form the invoker sends; the result goes
//     out in the form that came. Payloads are bytes from end to end: numbers keep their digits.
//   - Whether a payload was modified is computed, not believed.
//   - A handler that panics, fails or returns what cannot be sent is a *CrashError; its own text reaches
//     the log and never the wire. Only *BlockError and *RespondError speak to the requester.
//   - A result says the same to every engine: a denial is invalid, of severity error and has an error
//     message; what does not block has no error message.
//
// Names and shapes follow the proposal's working draft, which still moves. The older spellings that
// engines and hosts in the field use are read and never written, but for ServerOptions.LegacyEnvelope.
//
// The package knows nothing of effects, approvals or stores, and it does not order interceptors or decide
// what a failure means for an operation: that is an engine's work.
package interceptors
