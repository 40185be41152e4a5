package effect_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/undolog/undolog/effect"
)

func TestSettlement(t *testing.T) {
	irreversible := effect.DefaultContract(nil, false)
	read := effect.DefaultContract(&effect.Annotations{ReadOnly: true}, true)
	result := func(isError bool) effect.Outcome {
		return effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerResult, Body: json.RawMessage(`{}`), IsError: isError}}
	}
	rpcError := func(body string) effect.Outcome {
		return effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerError, Body: json.RawMessage(body)}}
	}

	for _, tt := range []struct {
		name     string
		contract *effect.Contract
		outcome  effect.Outcome
		want     effect.State
	}{
		{"a result is committed", irreversible, result(false), effect.StateCommitted},
		{"an error result of a write is committed", irreversible, result(true), effect.StateCommitted},
		{"an error result of a read failed", read, result(true), effect.StateFailed},
		{"an error of the target is committed for a write", irreversible, rpcError(`{"code":-32603,"message":"x"}`), effect.StateCommitted},
		{"an error of the target failed for a read", read, rpcError(`{"code":1,"message":"x"}`), effect.StateFailed},
		{"a code that is a fraction proves nothing", irreversible, rpcError(`{"code":-32602.5}`), effect.StateCommitted},
		{"a code that is text proves nothing", irreversible, rpcError(`{"code":"x"}`), effect.StateCommitted},
		{"an error without a code proves nothing", irreversible, rpcError(`{}`), effect.StateCommitted},
		{"an answer without a message is in doubt", irreversible, effect.Outcome{Kind: effect.OutcomeAnswered}, effect.StateInDoubt},
		{"what was not sent is released", irreversible, effect.Outcome{Kind: effect.OutcomeUnsent}, effect.StateReleased},
		{"what was lost is in doubt", irreversible, effect.Outcome{Kind: effect.OutcomeLost}, effect.StateInDoubt},
		{"a lost read is in doubt too", read, effect.Outcome{Kind: effect.OutcomeLost}, effect.StateInDoubt},
		{"another round waits", irreversible, effect.Outcome{Kind: effect.OutcomeWaiting}, effect.StateWaiting},
		{"an outcome nobody knows is in doubt", irreversible, effect.Outcome{Kind: "new"}, effect.StateInDoubt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := effect.Settlement(tt.contract, tt.outcome); got != tt.want {
				t.Errorf("Settlement = %s, want %s", got, tt.want)
			}
		})
	}

	for _, code := range []int{-32700, -32600, -32601, -32602, -32020, -32021, -32022} {
		t.Run(fmt.Sprintf("%d says that nothing began", code), func(t *testing.T) {
			body := fmt.Sprintf(`{"message":"x","code":%d}`, code)
			if got := effect.Settlement(irreversible, rpcError(body)); got != effect.StateFailed {
				t.Errorf("Settlement = %s, want failed", got)
			}
		})
	}
}
