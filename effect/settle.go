package effect

import (
	"encoding/json"
	"slices"
)

// notApplied are the JSON-RPC errors that say the target never began: the message was not read, the
// method or the parameters were refused, or (−32020…−32022, MCP 2026-07-28) headers or capabilities were.
var notApplied = []int64{-32700, -32600, -32601, -32602, -32020, -32021, -32022}

// Settlement returns the state to which an outcome moves a claim. An answer that reports an error is
// what the contract says about errors, unless its code says that nothing began. An outcome that cannot
// be read is in doubt.
func Settlement(c *Contract, o Outcome) State {
	switch o.Kind {
	case OutcomeUnsent:
		return StateReleased
	case OutcomeWaiting:
		return StateWaiting
	case OutcomeAnswered:
		return answered(c, &o.Answer)
	}
	return StateInDoubt
}

func answered(c *Contract, a *Answer) State {
	switch {
	case a.Kind == AnswerError && neverBegan(a.Body):
		return StateFailed
	case a.Kind == AnswerError, a.Kind == AnswerResult && a.IsError:
		return c.OnToolError
	case a.Kind == AnswerResult:
		return StateCommitted
	}
	return StateInDoubt
}

// neverBegan reads the code of a JSON-RPC error object. A code that is no integer proves nothing.
func neverBegan(body json.RawMessage) bool {
	var e struct {
		Code json.Number `json:"code"`
	}
	if json.Unmarshal(body, &e) != nil {
		return false
	}
	code, err := e.Code.Int64()
	return err == nil && slices.Contains(notApplied, code)
}
