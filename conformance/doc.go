// Package conformance says whether an implementation of the MCP interceptor extension (SEP-1763,
// renumbered SEP-2624) does what the proposal asks, requirement by requirement.
//
// A Fixture names interceptors by their behavior, steps to take against one session of an implementation,
// and what must come of each. An Adapter binds the behaviors to an implementation:
//
//	fixtures, err := conformance.Suite()
//	report := conformance.Run(ctx, fixtures, adapter, nil)
//	err = report.WriteText(os.Stdout, false)
//
// The format is the published one of the interceptors working group, read tolerantly: both spellings of
// the fourth call (chain, apply), both of the enforcing mode (enforce, active), ids with underscores.
// The cases of this package are in the same format with extensions that docs/conformance.md lists; a
// fixture that uses one states by that which Feature an adapter must have, and is skipped where it has not.
//
// What else certifies: package hostcheck, a live interceptor server from outside, whatever it hosts;
// package enginecheck, an engine that is a program, from both of its sides; External, an adapter in
// another language. Package goadapter binds this project's own library.
//
// The package knows nothing of effects, stores and approvals.
package conformance
