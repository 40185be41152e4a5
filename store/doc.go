// Package store is the effect log: what was called, by whom, and how it ended, recorded before it
// happens.
//
//	log, err := store.Open(driver, &store.Options{Logger: logger})
//	if err != nil { … }
//	defer log.Close()
//
//	begun, err := log.Begin(ctx, &store.BeginParams{Call: call, Identity: id, Contract: contract})
//	if err != nil { … } // nothing is known to be recorded: do not dispatch
//	if begun.Claim != nil {
//		outcome := dispatch(ctx)
//		record, err := log.Settle(ctx, *begun.Claim, contract, outcome)
//	}
//
// Log is concrete: it gives out ids, keeps this process's heart beating while it holds claims, writes in
// groups what need not be durable at once, and wraps errors once. A Driver is the log in one database,
// with the decision and its record in one transaction. The package knows the rules of effect and nothing
// of the protocol, of interceptors, or of how a call is dispatched.
package store
