// Package proof holds the tests that prove the promise in docs/guarantees.md: random histories of calls, people,
// clocks and crashes against a model of what may happen, and real processes under faults. The judge of both is the
// ledger at the tool.
package proof
