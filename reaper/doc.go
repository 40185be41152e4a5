// Package reaper brings to an end what nobody else does: requests for approval whose clock is over, claims
// whose owner has died or whose answer did not come in time, and effects in doubt whose tool can be asked by a
// probe. It also takes away the payloads that were kept for as long as they are to be.
//
//	r := reaper.New(log, &reaper.Options{Every: 30 * time.Second, Probe: probe})
//	r.Run(ctx) // until ctx ends
//
// Nothing depends on it: every reader derives by itself that a clock is over. It records what they derive, so
// that people are told of it and lists stay short. Each of its steps is a compare-and-set: any number of
// processes may reap one log.
package reaper
