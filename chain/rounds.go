package chain

import (
	"bytes"
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
	if err := once(result); err != nil {
		return nil, o.unreadable(ctx, interceptors.PhaseResponse, "inputRequests", err)
	}
	changed, asked, stopped := o.questions(ctx, questions)
	if stopped != nil {
		return nil, stopped
	}
	return o.sealed(ctx, replaced(result, changed, "inputRequests"), asked), nil
}

func questionsOf(result json.RawMessage) json.RawMessage {
	if !splice.MayHold(result, "inputRequests") || text(splice.Get(result, "resultType")) != "input_required" {
		return nil
	}
	return splice.Get(result, "inputRequests")
}

// Ask runs the request phase of what a server asks of the client beside the answer of the operation x: the
// inputRequests of a task. It returns them as they are to go on, and the event of each key for Tell. A
// reply is returned when what was to carry them must stop.
func (c *Chain) Ask(ctx context.Context, x *Exchange, inputRequests json.RawMessage) (changed json.RawMessage, asked map[string]string, stopped *Reply) {
	return (&operation{chain: c, exchange: x}).questions(ctx, inputRequests)
}

// Tell runs the response phase of what a client answers to the questions of Ask, and returns the
// inputResponses as they are to go on. asked is nil when it is not known any more: then nothing passes
// that somebody would judge.
func (c *Chain) Tell(ctx context.Context, x *Exchange, asked map[string]string, inputResponses json.RawMessage) (changed json.RawMessage, stopped *Reply) {
	o := &operation{chain: c, exchange: x}
	if asked == nil {
		if o.judged(ctx, serverEvents...) {
			return nil, o.unreadable(ctx, interceptors.PhaseRequest, "inputResponses", errSealMissing)
		}
		return inputResponses, nil
	}
	return o.answers(ctx, inputResponses, asked)
}

// questions runs the request phase of each question, in order.
func (o *operation) questions(ctx context.Context, questions json.RawMessage) (json.RawMessage, map[string]string, *Reply) {
	asked := map[string]string{}
	changed := questions
	var stopped *PhaseResult
	twice := once(questions)
	err := splice.Each(questions, func(key string, question []byte) {
		if twice = cmp.Or(twice, once(question)); stopped != nil || twice != nil {
			return
		}
		event := text(splice.Get(question, "method"))
		asked[key] = event
		phase := o.aside(ctx, event, interceptors.PhaseRequest, splice.Get(question, "params"))
		if stopped = refused(phase); stopped == nil && phase.Modified {
			changed = replaced(changed, phase.Payload, key, "params")
		}
	})
	switch err = cmp.Or(err, twice); {
	case err != nil:
		return nil, nil, o.unreadable(ctx, interceptors.PhaseResponse, "inputRequests", err)
	case stopped != nil:
		return nil, nil, o.blocked(ctx, interceptors.PhaseResponse, stopped)
	}
	return changed, asked, nil
}

// takeAnswers runs the response phase of what the client has answered, and gives the operation's params
// the target's own state again. A reply is returned when the operation must stop.
func (o *operation) takeAnswers(ctx context.Context) *Reply {
	params := o.exchange.Params
	if !splice.MayHold(params, "inputResponses", "requestState") {
		return nil
	}
	answers := splice.Get(params, "inputResponses")
	params, asked, err := o.unsealed(ctx, params, answers != nil)
	if err == nil && asked != nil {
		err = once(params)
	}
	if err != nil {
		return o.unreadable(ctx, interceptors.PhaseRequest, "requestState", err)
	}
	o.exchange.Params = params
	if answers == nil || asked == nil {
		return nil
	}
	changed, stopped := o.answers(ctx, answers, asked)
	if stopped == nil && !bytes.Equal(changed, answers) {
		o.exchange.Params = replaced(params, changed, "inputResponses")
	}
	return stopped
}

// answers runs the response phase of each answer, in order.
func (o *operation) answers(ctx context.Context, answers json.RawMessage, asked map[string]string) (json.RawMessage, *Reply) {
	changed := answers
	var stopped *PhaseResult
	unasked := once(answers)
	err := splice.Each(answers, func(key string, answer []byte) {
		event, known := asked[key]
		if !known {
			unasked = fmt.Errorf("%q answers what was not asked", key)
		}
		if stopped != nil || unasked != nil {
			return
		}
		phase := o.aside(ctx, event, interceptors.PhaseResponse, answer)
		if stopped = refused(phase); stopped == nil && phase.Modified {
			changed = replaced(changed, phase.Payload, key)
		}
	})
	switch err = cmp.Or(err, unasked); {
	case err != nil:
		return nil, o.unreadable(ctx, interceptors.PhaseRequest, "inputResponses", err)
	case stopped != nil:
		return nil, o.blocked(ctx, interceptors.PhaseRequest, stopped)
	}
	return changed, nil
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
	outcome := Outcome{Verdict: Failed, Phase: phase, Reason: interceptors.Brief(fmt.Sprintf("read %s: %v", member, err))}
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
