// Package hosts connects a chain to interceptor hosts in other processes: a command that speaks MCP on its
// standard streams, or a URL of Streamable HTTP, with one call each.
//
//	pii, err := hosts.URL("pii", "https://pii.example.com/mcp", nil)
//	if err != nil { … }
//	defer pii.Close()
//	err = c.Use(pii, &chain.HostPolicy{Required: map[string]interceptors.Type{"redact": interceptors.TypeMutation}})
//
// A Host connects when it is first asked, keeps a few connections for all its callers, looks now and then
// whether they live, and comes back by itself after pauses that grow. It never repeats an invocation: a
// mutator may have done something by then. What it cannot deliver is an error, and the chain does with that
// what the interceptor's mode and failOpen say.
//
//	connection:  down ──▶ connecting ──▶ connected ── lost ──▶ down, not before a pause is over
//	breaker:     closed ── 3 time-outs in a row ──▶ open ── a while ──▶ half-open ──▶ closed, or open again
//
// While the breaker is open a Host is not asked at all, so that a host that hangs costs its callers one
// error each and not one time-out each. Status shows both.
package hosts
