// Package effectinterceptor turns a governed tools/call into an effect: it claims the call in the log
// before it goes out, settles it with what came back, and answers a call that comes again from the
// record. It is four interceptors for any engine of SEP-2624:
//
//	undolog/guard    validation  tools/call, both phases  refuses what cannot be identified; settles in
//	                                                      the response phase if the mutator has not
//	undolog/effect   mutation    tools/call, both phases  last before the target: claims, stamps, answers
//	                                                      in the target's place; first after it: settles
//	undolog/audit    validation  *, both phases, audit    one event per governed operation that is no effect
//	undolog/catalog  validation  tools/list, response     learns the tools' definitions and annotations
//
// For somebody else's engine they are put on a host of interceptors; package effectchain wires them to a
// chain in the same process:
//
//	ei := effectinterceptor.New(log, &effectinterceptor.Options{Policy: policy})
//	host := interceptors.NewServer(nil)
//	if err := ei.Register(host, effectinterceptor.ForeignEngine); err != nil { … }
//	…
//	ei.Close() // before the log
//
// The package knows nothing of engines: what an engine sees of a dispatch beyond the response phase
// (an error answer, a lost one, an abort) it tells by Settled and Delivered, by exchange id. A foreign
// engine tells nothing but the response phase; what it does not tell ends in doubt with the lease.
package effectinterceptor
