// Package chain runs the interceptors of SEP-2624 around an operation: it finds them on their hosts,
// orders them, lets them judge and change what passes, and keeps the promise that every dispatch is
// settled. It is a library, and a middleware for a go-sdk server.
//
// The way of one exchange in the posture of a server, for which receiving is validate, then mutate, and
// sending is mutate, then validate:
//
//	requester ── request ──▶ Do
//	                         │ request phase   validators ─▶ mutators, lowest priority first
//	                         │   ├─ blocked, failed ──────────────▶ Settled(Unsent) ─▶ an error
//	                         │   └─ answered in the target's place ───────┐
//	                         │ Upstream        the only place that calls  │
//	                         │   ├─ answered ─▶ Settled(Answered) ───┐    │
//	                         │   ├─ lost ─────▶ Settled(Lost) ─▶ an error │
//	                         │   └─ caller left ─▶ awaited, then Settled  │
//	                         │ response phase  mutators ─▶ validators ◀───┘
//	requester ◀── Reply ─────┘                       Reply.Delivered
//
// Settled is no part of a plan: no deadline and no caller that leaves keeps it from running, and an end on
// which no response phase runs is seen too: an error answer, a panic, a broken connection, an operation that a
// later interceptor stopped.
//
//	c, err := chain.New(&chain.Options{Logger: logger})
//	if err != nil { … }
//	if err := c.Use(chain.Local("house", interceptorServer), nil); err != nil { … }
//	server.AddReceivingMiddleware(c.Middleware(nil))
//
// A chain of PostureGateway stands between two such boundaries and runs a plan at each, see Side. What a
// server asks of its client (Request.FromServer) passes the other way round, also where it is asked inside
// an answer.
//
// Four hooks let an embedder do what an interceptor alone cannot. None knows what it is used for:
//
//	Respond    a trusted mutator answers in the target's place (interceptors.RespondError); the response
//	           phase runs on its answer as on any other
//	Pause      a trusted interceptor that denies says that somebody must decide (PauseKey); Observer.Pause,
//	           or Request.Pause, may wait (Await), pass on what the requester's user says (Decide), and let
//	           the request phase run once more
//	Delivered  whether the reply reached the requester: transports tell Reply, and Reply Observer.Delivered
//	Outcome    how every operation went, and who stopped it: Observer.Outcome
//
// The package knows nothing of effects, logs and approvals. What an embedder does for them hangs on the
// funcs of Observer and on the directive that an interceptor leaves under DispatchKey.
package chain
