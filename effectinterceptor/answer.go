package effectinterceptor

import (
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// respond answers with what was recorded of r: its bytes and our marker. note, when not empty, is said
// to the model as well.
func respond(id *effect.Identity, r *effect.Record, note string) error {
	i := newInfo(outcomeReplay, id, r)
	i.Replayed, i.State = true, string(r.State)
	switch r.Answer.Kind {
	case effect.AnswerResult:
		result, err := markResult(r, note)
		if err != nil {
			return fmt.Errorf("mark recorded result of %s: %w", r.ID, err)
		}
		return &interceptors.RespondError{Result: result, Info: i.wrapped()}
	case effect.AnswerError:
		body, err := markError(r, i, note)
		if err != nil {
			return fmt.Errorf("mark recorded error of %s: %w", r.ID, err)
		}
		return &interceptors.RespondError{Err: body, Info: i.wrapped()}
	}
	return fmt.Errorf("replay effect %s: no answer was recorded", r.ID)
}

type mark struct {
	ID       string `json:"id"`
	Attempt  int    `json:"attempt"`
	Identity string `json:"identity,omitempty"`
}

func markOf(r *effect.Record) []byte {
	raw, err := json.Marshal(mark{ID: r.ID, Attempt: r.Attempt, Identity: string(r.Rule)})
	if err != nil {
		panic(fmt.Sprintf("marshal mark: %v", err)) // strings and a number
	}
	return raw
}

func markResult(r *effect.Record, note string) (json.RawMessage, error) {
	result, err := splice.Set(r.Answer.Body, []byte("true"), "_meta", replayedMeta)
	if err != nil {
		return nil, err
	}
	if result, err = splice.Set(result, markOf(r), "_meta", effectMeta); err != nil || note == "" {
		return result, err
	}
	return addText(result, note)
}

// addText adds a text block to the content of a result.
func addText(result json.RawMessage, text string) (json.RawMessage, error) {
	block, err := json.Marshal(struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{"text", text})
	if err != nil {
		return nil, err
	}
	content := splice.Get(result, "content")
	if content == nil {
		content = []byte("[]")
	}
	if content, err = splice.Append(content, block); err != nil {
		return nil, err
	}
	return splice.Set(result, content, "content")
}

func markError(r *effect.Record, i *info, note string) (json.RawMessage, error) {
	body := r.Answer.Body
	data := splice.Get(body, "data")
	if data == nil || data[0] == '{' {
		raw, err := json.Marshal(i)
		if err != nil {
			return nil, err
		}
		if body, err = splice.Set(body, raw, "data", effectMeta); err != nil {
			return nil, err
		}
	}
	if note == "" {
		return body, nil
	}
	var message string
	if raw := splice.Get(body, "message"); raw == nil || jsonv2.Unmarshal(raw, &message) != nil {
		return body, nil
	}
	raw, err := json.Marshal(message + "\n" + note)
	if err != nil {
		return nil, err
	}
	return splice.Set(body, raw, "message")
}

// stampRequest marks the params that go to the target: the effect and attempt, and the key under which
// the target may recognise another attempt. What the client put under our prefix is taken off.
func stampRequest(payload json.RawMessage, c *toolCall, id *effect.Identity, claim *effect.Claim) (json.RawMessage, error) {
	meta := []byte(c.Meta)
	if len(meta) == 0 || string(meta) == "null" {
		meta = []byte("{}")
	}
	meta, _, err := splice.Delete(meta, ours)
	if err != nil {
		return nil, err
	}
	stamp, err := json.Marshal(mark{ID: claim.Effect, Attempt: claim.Attempt})
	if err != nil {
		return nil, err
	}
	if meta, err = splice.Set(meta, stamp, effectMeta); err != nil {
		return nil, err
	}
	ownKey := claim.Effect
	if id.Rule == effect.RuleKey {
		ownKey = id.Scope
	}
	key, err := json.Marshal(ownKey)
	if err != nil {
		return nil, err
	}
	if meta, err = splice.Set(meta, key, targetKey); err != nil {
		return nil, err
	}
	return splice.Set(payload, meta, "_meta")
}

// stripRequest takes what the client put under our prefix off a call that is not claimed.
func stripRequest(payload json.RawMessage, c *toolCall) (json.RawMessage, error) {
	if len(c.Meta) == 0 || c.Meta.Kind() != '{' {
		return payload, nil
	}
	meta, changed, err := splice.Delete(c.Meta, ours)
	if err != nil || !changed {
		return payload, err
	}
	return splice.Set(payload, meta, "_meta")
}

// stripResult takes an echo of our stamp off a fresh result.
func stripResult(result json.RawMessage) (json.RawMessage, error) {
	meta := splice.Get(result, "_meta")
	if meta == nil || jsontext.Value(meta).Kind() != '{' {
		return result, nil
	}
	meta, changed, err := splice.Delete(meta, func(name string) bool { return name == effectMeta })
	if err != nil || !changed {
		return result, err
	}
	return splice.Set(result, meta, "_meta")
}

// ours reports whether a member of the request's _meta is not for the target: everything under our
// prefix but the handles that a client may send.
func ours(name string) bool {
	switch name {
	case keyMeta, runMeta, occurrence:
		return false
	}
	return len(name) >= len(prefix) && name[:len(prefix)] == prefix
}
