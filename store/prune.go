package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/undolog/undolog/effect"
)

// Prune takes away the arguments and answers of effects that were settled before a time, everything else
// stays: an equal call still matches, is still not run again where it was not, and is told that the
// recorded answer is gone. It returns how many effects lost something, and can be called at any time, by
// any number of processes.
func (l *Log) Prune(ctx context.Context, before time.Time) (int64, error) {
	n, err := l.driver.Prune(ctx, l.logTime(before))
	if err != nil {
		return n, fmt.Errorf("prune effects settled before %s: %w", before.Format(time.RFC3339), err)
	}
	return n, nil
}

// codePruned is the code of an error whose recorded object is gone; JSON-RPC 2.0 leaves it to servers.
const codePruned = -32000

// Unpruned is an answer as a driver has read it. One whose bytes were pruned, which no answer is without,
// says in its own kind what it was and that it is gone.
func Unpruned(a effect.Answer, at time.Time) effect.Answer {
	if a.Kind == effect.AnswerNone || len(a.Body) > 0 {
		return a
	}
	text := "This call was answered at " + at.UTC().Format(time.RFC3339) + ". The recorded answer is no longer kept. The call was not run again."
	var body any = prunedResult{Content: []textBlock{{Type: "text", Text: text}}, IsError: a.IsError, ResultType: "complete"}
	if a.Kind == effect.AnswerError {
		body = prunedError{Code: codePruned, Message: text}
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return a // of strings and a boolean: cannot be
	}
	a.Body = encoded
	return a
}

type prunedResult struct {
	Content    []textBlock `json:"content"`
	IsError    bool        `json:"isError,omitempty"`
	ResultType string      `json:"resultType"`
}

type prunedError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}
