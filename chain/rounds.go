package chain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// From 2026-07-28 on a server asks its client inside an answer: a result of type input_required carries
// inputRequests, and the client sends the operation once more with inputResponses under the same keys.
// Each question is a request of the server's, and each answer to it the response. They pass the chain as
// such, beside the operation that carries them: questions after its response phase, answers before its
// request phase. One that is stopped stops the operation.

// serverEvents are the operations that the protocol lets a server ask of a client.
var serverEvents = []string{"sampling/createMessage", "elicitation/create", "roots/list"}

// AskedByServer reports whether an event is one that a server asks of its client.
func AskedByServer(event string) bool { return slices.Contains(serverEvents, event) }

// takeQuestions runs the request phase of what a result asks of the client, and seals what was asked. A
// reply is returned when the operation must stop.
func (o *operation) takeQuestions(ctx context.Context, result json.RawMessage) (json.RawMessage, *Reply) {
	questions := questionsOf(result)
	if questions == nil {
		return result, nil
	}
	asked := map[string]string{}
	var stopped *PhaseResult
	twice := once(result)
	err := splice.Each(questions, func(key string, question []byte) {
		_, again := asked[key]
		if twice = cmp.Or(twice, once(question)); again {
			twice = errTwice
		}
		if stopped != nil || twice != nil {
			return
		}
		event := text(splice.Get(question, "method"))
		asked[key] = event
		phase := o.aside(ctx, event, interceptors.PhaseRequest, splice.Get(question, "params"))
		if stopped = refused(phase); stopped == nil && phase.Modified {
			result = replaced(result, phase.Payload, "inputRequests", key, "params")
		}
	})
	switch err = cmp.Or(err, twice); {
	case err != nil:
		return nil, o.unreadable(ctx, interceptors.PhaseResponse, "inputRequests", err)
	case stopped != nil:
		return nil, o.blocked(ctx, interceptors.PhaseResponse, stopped)
	}
	return o.sealed(ctx, result, asked), nil
}

func questionsOf(result json.RawMessage) json.RawMessage {
	if !isObject(result) || text(splice.Get(result, "resultType")) != "input_required" {
		return nil
	}
	return splice.Get(result, "inputRequests")
}

// takeAnswers runs the response phase of what the client has answered, and gives the operation's params
// the target's own state again. A reply is returned when the operation must stop.
func (o *operation) takeAnswers(ctx context.Context) *Reply {
	params := o.exchange.Params
	answers := splice.Get(params, "inputResponses")
	params, asked, err := o.unsealed(ctx, params, answers != nil)
	if err != nil {
		return o.unreadable(ctx, interceptors.PhaseRequest, "requestState", err)
	}
	o.exchange.Params = params
	if answers == nil || asked == nil {
		return nil
	}
	var stopped *PhaseResult
	unasked := cmp.Or(once(params), once(answers))
	err = splice.Each(answers, func(key string, answer []byte) {
		event, known := asked[key]
		if !known {
			unasked = fmt.Errorf("%q answers what was not asked", key)
		}
		if stopped != nil || unasked != nil {
			return
		}
		phase := o.aside(ctx, event, interceptors.PhaseResponse, answer)
		if stopped = refused(phase); stopped == nil && phase.Modified {
			o.exchange.Params = replaced(o.exchange.Params, phase.Payload, "inputResponses", key)
		}
	})
	switch err = cmp.Or(err, unasked); {
	case err != nil:
		return o.unreadable(ctx, interceptors.PhaseRequest, "inputResponses", err)
	case stopped != nil:
		return o.blocked(ctx, interceptors.PhaseRequest, stopped)
	}
	return nil
}

// aside runs a phase of an operation that the server asks of the client inside this one.
func (o *operation) aside(ctx context.Context, event string, phase interceptors.Phase, payload json.RawMessage) *PhaseResult {
	return o.chain.Execute(ctx, &PhaseParams{
		Event:    event,
		Phase:    phase,
		Payload:  payload,
		Request:  o.serverRequest(event, payload),
		Exchange: o.exchange.ID,
	})
}

func (o *operation) serverRequest(event string, params json.RawMessage) *Request {
	r := *o.exchange.Request
	r.Event, r.Params, r.FromServer = event, params, true
	return &r
}

// refused is the phase when it must stop the operation, else nil. Nobody can answer in the client's place
// here: its answer comes with another request.
func refused(phase *PhaseResult) *PhaseResult {
	if phase.Respond != nil {
		phase.Abort = &Abort{
			Interceptor: phase.responder, Type: interceptors.TypeMutation,
			Reason: "answered in the client's place, which cannot be done for a question inside an answer",
		}
	}
	if phase.Abort == nil {
		return nil
	}
	return phase
}

func (o *operation) unreadable(ctx context.Context, phase interceptors.Phase, member string, err error) *Reply {
	outcome := Outcome{Verdict: Failed, Phase: phase, Reason: fmt.Sprintf("read %s: %v", member, err)}
	reply := &Reply{Error: genericError(codeInvalidParams,
		"What this request answers is not known here. Send it again without inputResponses and requestState",
		`{"reason":"unknown_request_state"}`)}
	if phase == interceptors.PhaseResponse {
		reply.Error = genericError(codeInternal, "The answer cannot be read", `{"reason":"malformed"}`)
	}
	return o.finish(ctx, reply, outcome)
}

var errTwice = errors.New("a member is there twice")

// once fails for an object with a member twice: what we judge of it would not be what its reader takes.
func once(object json.RawMessage) (err error) {
	seen := map[string]bool{}
	each := splice.Each(object, func(name string, _ []byte) {
		if seen[name] {
			err = errTwice
		}
		seen[name] = true
	})
	return cmp.Or(err, each)
}

// replaced puts a value at a path that is known to be there.
func replaced(object, value json.RawMessage, path ...string) json.RawMessage {
	out, err := splice.Set(object, value, path...)
	if err != nil {
		return object
	}
	return out
}

func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
