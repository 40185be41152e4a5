package gateway

import (
	"encoding/json"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/internal/splice"
)

// scrubbed is an error of the upstream as the agent gets it: with Options.ScrubErrors without the
// upstream's words.
func (c *core) scrubbed(m *Message) *Message {
	if !c.opts.ScrubErrors || m.Error == nil {
		return m
	}
	return NewErrorObject(m.ID, scrub(m.Error))
}

// scrubbedReply is the error that a reply carries. The chain's own words stay.
func (c *core) scrubbedReply(g *governed, reply *chain.Reply) json.RawMessage {
	own := g.refusal.Load()
	upstream := own != nil && string(*own) == string(reply.Error)
	if !c.opts.ScrubErrors || !upstream && reply.Outcome.Verdict != chain.Responded {
		return reply.Error
	}
	return scrub(reply.Error)
}

// standardTexts are the words of JSON-RPC for its own codes.
var standardTexts = map[int64]string{
	codeParse:          "Parse error",
	codeInvalidRequest: "Invalid Request",
	codeMethodNotFound: "Method not found",
	codeInvalidParams:  "Invalid params",
	codeInternal:       "Internal error",
}

// scrub keeps the code of an error and nothing of its text. The data of codes that the protocol itself
// defines (−32020 to −32099, with −32042 of 2025-11-25 that asks to open a URL) are kept: clients act on
// them.
func scrub(object json.RawMessage) json.RawMessage {
	var e struct {
		Code int64 `json:"code"`
	}
	_ = json.Unmarshal(object, &e) // what cannot be read is an internal error
	if e.Code == 0 {
		e.Code = codeInternal
	}
	text := standardTexts[e.Code]
	if text == "" {
		text = "The server answered with an error"
	}
	var data json.RawMessage
	if e.Code <= -32020 && e.Code >= -32099 {
		data = splice.Get(object, "data")
	}
	return errorObject(int(e.Code), text, data)
}
