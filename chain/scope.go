package chain

import (
	"bytes"
	"encoding/json"

	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// cacheable are the operations whose results say who may share them (SEP-2549).
var cacheable = map[string]bool{
	"tools/list": true, "prompts/list": true, "resources/list": true,
	"resources/templates/list": true, "resources/read": true,
}

// scoped is the result that the response phase left, marked as the requester's own where mutators looked at
// it: one that changes it for somebody else may have left it as it is here.
func (o *operation) scoped(response *PhaseResult) json.RawMessage {
	result, req := response.Payload, o.exchange.Request
	if !cacheable[req.Event] || !isObject(result) || !mutated(response.Records) {
		return result
	}
	scope := splice.Get(result, "cacheScope")
	if scope == nil && req.Protocol < stateless || bytes.Equal(scope, []byte(`"private"`)) {
		return result
	}
	private, err := splice.Set(result, []byte(`"private"`), "cacheScope")
	if err != nil { // it is an object
		return result
	}
	return private
}

// mutated reports whether an active mutator has had its say.
func mutated(records []Record) bool {
	for _, r := range records {
		if r.Type == interceptors.TypeMutation && r.Mode == interceptors.ModeActive && r.Failure == nil {
			return true
		}
	}
	return false
}
