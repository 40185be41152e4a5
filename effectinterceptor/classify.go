package effectinterceptor

import (
	"encoding/json"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/splice"
)

// classify says what kind of end an answer of the target is: an input_required round and a task handle
// are no completions.
func classify(result, errorBody json.RawMessage) effect.Outcome {
	if errorBody != nil {
		return effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerError, Body: errorBody}}
	}
	s := shapeOf(result)
	out := effect.Outcome{
		Kind:   effect.OutcomeAnswered,
		Answer: effect.Answer{Kind: effect.AnswerResult, Body: result, IsError: s.isError},
	}
	switch {
	case s.resultType == "input_required":
		out.Kind, out.Continuation = effect.OutcomeWaiting, continuationOf(s.state, true)
	case s.resultType == "task":
		out.Kind, out.Continuation = effect.OutcomeWaiting, s.taskID
	case s.resultType == "" && !s.content && s.task != "": // a task handle of 2025-11-25
		out.Kind, out.Continuation = effect.OutcomeWaiting, s.task
	}
	return out
}

// shape is what tells kinds of results apart. A member of a type that it should not have is not there.
type shape struct {
	isError    bool
	resultType string
	state      *string // requestState
	taskID     string
	task       string // task.taskId
	content    bool
}

func shapeOf(result json.RawMessage) (s shape) {
	read := func(name, value []byte) {
		switch string(name) {
		case "isError":
			s.isError = string(value) == "true"
		case "resultType":
			s.resultType, _ = text(value)
		case "requestState":
			if state, ok := text(value); ok {
				s.state = &state
			}
		case "taskId":
			s.taskID, _ = text(value)
		case "task":
			s.task, _ = text(splice.Get(value, "taskId"))
		case "content":
			s.content = true
		}
	}
	if err := splice.Scan(result, read); err != nil { // not an object: an answer of no known shape
		return shape{}
	}
	return s
}
