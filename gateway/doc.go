// Package gateway is a message relay between an agent and an MCP server, which runs a chain of
// interceptors around the requests that pass.
//
// It relays; it does not re-type. A message is kept as the bytes that came, and what nobody changes goes
// out as it came in: ids, numbers, unknown members and the order of members included. Both generations of
// the protocol pass end to end, sessions (up to 2025-11-25) and stateless requests (2026-07-28), without
// being translated into each other.
//
//	agent ── Conn ─▶ session (Serve): one agent, one upstream, ids unchanged ──── Conn ─▶ upstream
//	agents ─ HTTP ─▶ shared (Do): one upstream per tenant and principal, ids mapped ─ Conn ─▶ upstream
//	                     │
//	                     └─ a governed request: chain.Do ─ request phase ─ dispatch ─ response phase
//
// What the upstream asks of the agent (sampling, elicitation, roots) passes the chain the other way round,
// and so does what it asks inside answers; what a task ends with passes as the answer of the call that
// began it. What is not governed (the handshake, notifications, liveness) is passed on as it is. An upstream that dies is opened again on the next request, after a pause that grows, and
// told again what its predecessor knew: the handshake, the logging level, the subscriptions, never a call.
//
//	g := gateway.New(&gateway.Options{
//		Chain: c, Target: "npx some-server", Prime: true,
//		Dial: func(ctx context.Context, _ *gateway.AgentInfo) (gateway.Conn, error) {
//			return gateway.StartProcess(ctx, []string{"npx", "some-server"}, nil)
//		},
//	})
//	agent := gateway.NewLineConn(os.Stdin, os.Stdout, nil)
//	err := g.Serve(ctx, agent, gateway.AgentInfo{Principal: "agent:me"})
//
// A program that serves an agent on its own stdout MUST ignore SIGPIPE, or the end of the agent ends it
// before what is under way has been recorded.
//
// The package knows nothing of effects and their log. What an interceptor wants done it says through the
// chain: that a dispatch outlives its caller, or that an answer takes the upstream's place; and it is told
// whether an answer reached the agent.
package gateway
