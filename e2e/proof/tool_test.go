package proof_test

import (
	"fmt"

	"github.com/undolog/undolog/effect"
)

// flight is one dispatch on its way to the tool and back.
type flight struct {
	deed     *deed
	attempt  int
	claim    effect.Claim
	number   int // of the claim, among all
	contract *effect.Contract
	process  *process // nil: it was killed
	leased   bool     // the claim holds for a fixed time, whatever becomes of its process
	sent     string   // the arguments
	gone     bool     // it cannot reach the tool any more
	reached  int      // its line in the ledger, from 1; 0: it did not
	ended    bool     // its outcome is recorded, and final
	told     bool     // the tool's answer was that nothing was applied, or an error
}

// tool is the target of every call. Its ledger is what really happened.
type tool struct{ ledger []line }

// line is one effect.
type line struct {
	deed    *deed
	attempt int
	sent    string
}

// do applies a dispatch.
func (tl *tool) do(f *flight) {
	tl.ledger = append(tl.ledger, line{f.deed, f.attempt, f.sent})
	f.reached = len(tl.ledger)
}

// refusal is the error of a target that never began.
const refusal = `{"code":-32602,"message":"no such account"}`

// end is how a dispatch may end, from what the tool has done of it.
func (f *flight) end(how string, rounds int) *effect.Outcome {
	answered := func(kind effect.AnswerKind, isError bool, body string) *effect.Outcome {
		return &effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: kind, IsError: isError, Body: []byte(body)}}
	}
	switch {
	case how == "lost":
		return &effect.Outcome{Kind: effect.OutcomeLost, Reason: "connection reset"}
	case how == "tool error":
		return answered(effect.AnswerResult, true, fmt.Sprintf(`{"content":[],"isError":true,"n":%d}`, rounds))
	case f.reached > 0 && how == "error":
		return answered(effect.AnswerError, true, fmt.Sprintf(`{"code":-32050,"message":"no","data":%d}`, rounds))
	case f.reached > 0:
		return answered(effect.AnswerResult, false, fmt.Sprintf(`{"content":[],"receipt":%d}`, f.reached))
	case how == "unsent":
		return &effect.Outcome{Kind: effect.OutcomeUnsent, Reason: "connection refused"}
	case how == "error":
		return answered(effect.AnswerError, false, refusal)
	}
	round := fmt.Sprintf("round-%d", rounds)
	return &effect.Outcome{
		Kind: effect.OutcomeWaiting, Continuation: round,
		Answer: effect.Answer{Kind: effect.AnswerResult, Body: fmt.Appendf(nil, `{"resultType":"input_required","requestState":%q}`, round)},
	}
}
