package gateway

import (
	"encoding/json"
	"strings"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/internal/splice"
)

// From 2026-07-28 on an agent's user is asked inside an answer: inputRequests, and a requestState with which
// the agent sends the same call again. Ours is the handle of a pause behind a prefix. It is taken out of the
// params before the chain sees them: the call is then the one that was paused.
const (
	statePrefix = "undolog-wait1."
	inputKey    = "approval"
)

// codeMissingCapability says that a client lacks a capability that its request needs.
const codeMissingCapability = -32021

// takeReply takes out of a call what goes on with a pause of ours.
func (g *governed) takeReply() {
	if !splice.MayHold(g.m.Params, "requestState", "inputResponses") {
		return
	}
	m, state := g.m, unquote(splice.Get(g.m.Params, "requestState"))
	handle, ours := strings.CutPrefix(state, statePrefix)
	if !ours {
		g.agent.foreign = state != "" || splice.Get(m.Params, "inputResponses") != nil
		return
	}
	answers := splice.Get(m.Params, "inputResponses")
	g.agent.handle, g.agent.reply = handle, readElicited(splice.Get(answers, inputKey))
	left, _, err := splice.Delete(answers, func(name string) bool { return name == inputKey })
	others := err == nil && len(strings.TrimSpace(string(left))) > len("{}")
	params, _, err := splice.Delete(m.Params, func(name string) bool {
		return name == "requestState" || name == "inputResponses" && !others
	})
	if err == nil && others {
		params, err = splice.Set(params, left, "inputResponses")
	}
	if err != nil { // they are no object, and nothing was found in them
		return
	}
	g.m = m.WithParams(params)
}

// resuming tells the request's interceptors by which pause it goes on.
func (g *governed) resuming(r *chain.Request) {
	if g.agent.handle == "" {
		return
	}
	attributes := make(map[string]json.RawMessage, len(r.Attributes)+1)
	for name, value := range r.Attributes {
		attributes[name] = value
	}
	attributes[chain.HandleKey] = splice.Quote(g.agent.handle)
	r.Attributes = attributes
}

// tellPaused makes of a reply that stops the request for a pause what its agent can do something with.
func (c *core) tellPaused(g *governed, reply *chain.Reply) {
	p := reply.Pause
	switch {
	case p == nil || reply.Error == nil:
	case g.wait.declined:
		reply.Error = declinedError
	case g.agent.asksInside(p):
		reply.Error, reply.Result = nil, inputRequired(p, g.agent.can().modeFor(p))
	case g.agent.modern && c.opts.RequireElicitation && g.agent.can().modeFor(p) == "":
		reply.Error = missingElicitation(reply.Error, p)
	}
}

// declinedError is what an agent gets whose user was asked and declined.
var declinedError = errorObject(codeInternal,
	"This call was not made: the user was asked to approve it, and declined to decide. "+
		"Do not try to reach the same in another way or with other arguments. It can still be decided elsewhere; until then it is not made.",
	json.RawMessage(`{"reason":"declined"}`))

func inputRequired(p *chain.Pause, mode string) json.RawMessage {
	b := append([]byte(`{"resultType":"input_required","inputRequests":{"`+inputKey+`":{"method":"`+methodElicit+`","params":`), elicitParams(p, mode, false)...)
	b = appendString(append(b, `}},"requestState":`...), statePrefix+p.Handle)
	return append(b, '}')
}

// missingElicitation is the error of an agent that cannot ask its user, with the reason that it would have got
// else.
func missingElicitation(reason json.RawMessage, p *chain.Pause) json.RawMessage {
	mode := askByURL
	if p.URL == "" && p.Host {
		mode = askByForm
	}
	needed := json.RawMessage(`{"elicitation":{"` + mode + `":{}}}`)
	data := splice.Get(reason, "data")
	if splice.Kind(data) != '{' {
		data = []byte("{}")
	}
	data, err := splice.Set(data, needed, "requiredCapabilities")
	if err != nil {
		return reason
	}
	return errorObject(codeMissingCapability, unquote(splice.Get(reason, "message")), data)
}
