package effectinterceptor

import (
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// respond answers with what was recorded of r: its bytes and our marker, or its bytes alone where they are no object
// that could have one. note, when not empty, is said to the model as well; redacted says that values were left out
// when it was recorded. It fails for a record that holds no answer.
func respond(id *effect.Identity, r *effect.Record, note string, redacted bool) (*interceptors.RespondError, error) {
	i := newInfo(outcomeReplay, id, r)
	i.Replayed, i.Redacted, i.State = true, redacted, string(r.State)
	switch r.Answer.Kind {
	case effect.AnswerResult:
		result, err := markResult(r, note, redacted)
		if err != nil {
			return nil, fmt.Errorf("mark recorded result of %s: %w", r.ID, err)
		}
		return &interceptors.RespondError{Result: result, Info: i.wrapped()}, nil
	case effect.AnswerError:
		body, err := markError(r, i, note)
		if err != nil {
			return nil, fmt.Errorf("mark recorded error of %s: %w", r.ID, err)
		}
		return &interceptors.RespondError{Err: body, Info: i.wrapped()}, nil
	}
	return nil, fmt.Errorf("replay effect %s: no answer was recorded", r.ID)
}

type mark struct {
	ID       string `json:"id"`
	Attempt  int    `json:"attempt"`
	Identity string `json:"identity,omitempty"`
	Redacted bool   `json:"redacted,omitempty"`
}

func markOf(r *effect.Record, redacted bool) []byte {
	raw, err := json.Marshal(mark{ID: r.ID, Attempt: r.Attempt, Identity: string(r.Rule), Redacted: redacted})
	if err != nil {
		panic(fmt.Sprintf("marshal mark: %v", err)) // strings and a number
	}
	return raw
}

// isMarkable reports whether an answer is an object, which can carry our marker. Servers answer other things, and
// agents get them as they came.
func isMarkable(a *effect.Answer) bool { return splice.Kind(a.Body) == '{' }

// markResult sets the two members of _meta that say what the result is. A _meta that is no object, which
// no client could read, gives way.
func markResult(r *effect.Record, note string, redacted bool) (json.RawMessage, error) {
	if !isMarkable(&r.Answer) {
		return r.Answer.Body, nil
	}
	meta := splice.Get(r.Answer.Body, "_meta")
	if splice.Kind(meta) != '{' {
		meta = []byte("{}")
	}
	meta, err := splice.Set(meta, []byte("true"), replayedMeta)
	if err != nil {
		return nil, err
	}
	if meta, err = splice.Set(meta, markOf(r, redacted), effectMeta); err != nil {
		return nil, err
	}
	result, err := splice.Set(r.Answer.Body, meta, "_meta")
	if err != nil || note == "" {
		return result, err
	}
	return addText(result, note)
}

// addText adds a text block to the content of a result. Content that is there and no array stays.
func addText(result json.RawMessage, text string) (json.RawMessage, error) {
	block, err := json.Marshal(struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{"text", text})
	if err != nil {
		return nil, err
	}
	content := splice.Get(result, "content")
	switch splice.Kind(content) {
	case 0, 'n':
		content = []byte("[]")
	case '[':
	default:
		return result, nil
	}
	if content, err = splice.Append(content, block); err != nil {
		return nil, err
	}
	return splice.Set(result, content, "content")
}

func markError(r *effect.Record, i *info, note string) (json.RawMessage, error) {
	body := r.Answer.Body
	if !isMarkable(&r.Answer) {
		return body, nil
	}
	data := splice.Get(body, "data")
	if kind := splice.Kind(data); kind == 0 || kind == '{' {
		var err error
		if body, err = splice.Set(body, i.appendTo(nil), "data", effectMeta); err != nil {
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
