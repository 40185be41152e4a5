// Package mcptest holds MCP clients for tests that need the wire in their hands: the exact bytes of a
// request, its id used twice, a connection cut in mid-answer, a process killed. They decode nothing but
// the envelope, so that numbers keep their spelling.
//
//	agent := mcptest.Start(t, mcptest.Build(t, "./cmd/undolog"), "gateway", "--", payments)
//	agent.Initialize("2025-11-25")
//	answer := agent.Call(`1`, "charge", `{"account":"a","amount":10}`)
//
// Programs are built once a test process, by Build.
package mcptest
