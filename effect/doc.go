// Package effect is the domain: what makes two tool calls the same call, what may be done when one comes
// again, and where an effect stands. It knows nothing of MCP messages, interceptors, stores and transports.
//
//	contract, err := policy.For(call, trusted)    // what holds for it
//	id, err := contract.Identify(call)            // the signature of the call
//	…                                             // in the log's transaction, facts gathered:
//	verdict := effect.Decide(call, id, contract, facts, continuation)
//	…                                             // dispatched, answered:
//	state := effect.Settlement(contract, outcome)
//
// The states, without those of approvals and undo (the whole table is Moves, drawn in
// docs/state_machine.md):
//
//	claimed ─▶ committed                 answered, and the answer is the record
//	      ├──▶ failed    ─▶ claimed      answered: nothing was applied
//	      ├──▶ released  ─▶ claimed      proof that nothing was sent
//	      ├──▶ waiting   ─▶ claimed      another round, or a task handle
//	      └──▶ in_doubt  ─▶ committed    sent, and no answer
package effect

//go:generate go test -run TestMoves_AreDrawnInTheDocs -update .
