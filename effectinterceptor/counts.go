package effectinterceptor

import (
	"errors"
	"sync/atomic"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// Counts says what tool calls have come to in this process. A call is counted once, when that is known: one whose end
// a foreign engine never tells is not. One that is held while people decide is counted when it is refused for that,
// and once more when it goes on.
type Counts struct {
	// Calls, by what they came to: ran (answered, reads included), failed (answered: nothing was applied), waiting
	// (answered by a task or a question), in_doubt (the answer was lost), not_sent (proof that the target had nothing
	// of it), replayed, joined (both answered from the record, the latter after waiting for an equal call) and refused.
	Calls map[string]int64
	// Refused, by the outcome that the caller was told, by "interceptor" where another one stopped the call before it
	// was claimed, and by "other". A refusal as in_doubt is of a call whose earlier try is in doubt.
	Refused map[string]int64
}

// What calls come to.
const (
	cameRan      = "ran"
	cameFailed   = "failed"
	cameWaiting  = "waiting"
	cameInDoubt  = "in_doubt"
	cameNotSent  = "not_sent"
	cameReplayed = "replayed"
	cameJoined   = "joined"
	cameRefused  = "refused"

	byInterceptor = "interceptor"
	byOther       = "other"
)

// counter counts under names that are all known from the start.
type counter map[string]*atomic.Int64

func newCounter(names ...string) counter {
	c := counter{}
	for _, name := range names {
		c[name] = new(atomic.Int64)
	}
	return c
}

func (c counter) read() map[string]int64 {
	now := make(map[string]int64, len(c))
	for name, n := range c {
		now[name] = n.Load()
	}
	return now
}

// counts is what Counts is read from.
type counts struct{ calls, refused counter }

func newCounts() counts {
	return counts{
		calls: newCounter(cameRan, cameFailed, cameWaiting, cameInDoubt, cameNotSent, cameReplayed, cameJoined, cameRefused),
		refused: newCounter(outcomeReplay, outcomeInProgress, outcomeDenied, outcomeInDoubt, outcomeConflict, outcomeInvalid,
			outcomeUnavailable, outcomeApproval, outcomeExpired, outcomeVoid, outcomeLimit, byInterceptor, byOther),
	}
}

// Counts reads what was counted until now.
func (i *Interceptors) Counts() Counts {
	return Counts{Calls: i.counts.calls.read(), Refused: i.counts.refused.read()}
}

func (c *counts) came(to string) { c.calls[to].Add(1) }

// refuse counts a call that was stopped, by the reason that its caller is told.
func (c *counts) refuse(reason string) {
	c.came(cameRefused)
	n := c.refused[reason]
	if n == nil {
		n = c.refused[byOther]
	}
	n.Add(1)
}

// stopped counts a call that err stops; an answer in the target's place was counted where it was found, and of a
// caller that has left nobody is told anything.
func (c *counts) stopped(err error) {
	var block *interceptors.BlockError
	if errors.As(err, &block) {
		outcome, _ := text(splice.Get(block.Data, effectMeta, "outcome"))
		c.refuse(outcome)
	}
}

// ended counts how the dispatch of a call ended, the first time that this is told.
func (c *counts) ended(o *open, out effect.Outcome) {
	if o.counted.Swap(true) {
		return
	}
	switch effect.Settlement(o.contract, out) {
	case effect.StateCommitted:
		c.came(cameRan)
	case effect.StateFailed:
		c.came(cameFailed)
	case effect.StateWaiting:
		c.came(cameWaiting)
	case effect.StateReleased:
		c.came(cameNotSent)
	default:
		c.came(cameInDoubt)
	}
}
