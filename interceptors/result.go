package interceptors

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/undolog/undolog/internal/splice"
)

// resultHead are the members that begin every result.
type resultHead struct {
	Interceptor string `json:"interceptor"`
	Type        Type   `json:"type"`
	Phase       Phase  `json:"phase"`
}

// resultTail are the members that end every result, and need not be there.
type resultTail struct {
	DurationMs int64           `json:"durationMs,omitempty"`
	Info       json.RawMessage `json:"info,omitempty"`
}

// verdictBody are the members of a validation result.
type verdictBody struct {
	Valid       bool         `json:"valid"`
	Severity    Severity     `json:"severity,omitempty"`
	Messages    []Message    `json:"messages,omitempty"`
	Suggestions []Suggestion `json:"suggestions,omitempty"`
}

// changeBody are the members of a mutation result.
type changeBody struct {
	Modified bool            `json:"modified"`
	Payload  json.RawMessage `json:"payload"`
}

func (r *Result) verdict() verdictBody {
	return verdictBody{r.Valid, r.Severity, r.Messages, r.Suggestions}
}

// MarshalJSON writes the flat result of r.Type: only the members of that type, no nulls but a null
// payload.
func (r Result) MarshalJSON() ([]byte, error) {
	head := resultHead{r.Interceptor, r.Type, r.Phase}
	tail := resultTail{r.DurationMs, r.Info}
	switch r.Type {
	case TypeValidation:
		return splice.Encode(struct {
			resultHead
			verdictBody
			resultTail
		}{head, r.verdict(), tail})
	case TypeMutation:
		return splice.Encode(struct {
			resultHead
			changeBody
			resultTail
		}{head, changeBody{r.Modified, r.Payload}, tail})
	}
	return nil, fmt.Errorf("encode result of %q: type %q is not known", r.Interceptor, r.Type)
}

// legacyMirror is the nested form of the result that older engines read, for LegacyEnvelope.
func (r *Result) legacyMirror() (member, error) {
	if r.Type == TypeMutation {
		raw, err := splice.Encode(changeBody{r.Modified, r.Payload})
		return member{"mutation", raw}, err
	}
	raw, err := splice.Encode(r.verdict())
	return member{"validation", raw}, err
}

// UnmarshalJSON reads a result in any shape in use: flat, nested under "validation" or "mutation", or
// bare. What a bare result does not say of itself stays empty, but the type, which follows from the shape.
func (r *Result) UnmarshalJSON(raw []byte) error {
	read, _, err := readResult(raw)
	if err != nil {
		return fmt.Errorf("decode result: %w", err)
	}
	*r = *read
	return nil
}

// shape says how a result stood on the wire.
type shape string

const (
	shapeFlat   shape = "flat"
	shapeNested shape = "nested"
	shapeBare   shape = "bare"
)

// resultReader collects the members of a result on the wire.
type resultReader struct {
	result         Result
	saysValid      bool // has a "valid" member
	saysModified   bool
	nested         *resultReader
	nestedType     Type
	completionType string
	unread         error // the first member beside the verdict that cannot be read
}

func readResult(raw json.RawMessage) (*Result, shape, error) {
	var rd resultReader
	if err := rd.read(raw); err != nil {
		return nil, "", err
	}
	if rd.completionType != "" && rd.completionType != "complete" {
		return nil, "", fmt.Errorf("resultType %q cannot answer interceptor/invoke", rd.completionType)
	}
	form := rd.shape()
	if rd.nested != nil {
		if err := rd.adopt(); err != nil {
			return nil, "", err
		}
	}
	if err := rd.settleType(); err != nil {
		return nil, "", err
	}
	if rd.unread != nil && !rd.result.denies() {
		return nil, "", rd.unread
	}
	return &rd.result, form, nil
}

// shape tells the form of what was read; nested members that only mirror flat ones leave it flat.
func (rd *resultReader) shape() shape {
	r := &rd.result
	switch {
	case rd.nested != nil && !rd.saysValid && !rd.saysModified:
		return shapeNested
	case r.Interceptor == "" || r.Type == "" || r.Phase == "":
		return shapeBare
	}
	return shapeFlat
}

func (rd *resultReader) read(raw json.RawMessage) error {
	ms, err := members(raw)
	if err != nil {
		return err
	}
	for _, m := range ms {
		if isNull(m.value) && m.name != "payload" {
			continue
		}
		err := rd.member(m)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", m.name, err)
		if !beside[m.name] {
			return err
		}
		rd.unread = cmp.Or(rd.unread, err)
	}
	return nil
}

// beside are the members of a validation that say more of a verdict, but do not make it.
var beside = map[string]bool{"severity": true, "messages": true, "suggestions": true, "durationMs": true, "info": true}

// denies reports a verdict that stops the operation whatever is said beside it. To take it for a failure,
// because of what stands there, would turn a denial into a pass where the interceptor fails open.
func (r *Result) denies() bool {
	return r.Type == TypeValidation && !r.Valid && r.Severity != SeverityWarn && r.Severity != SeverityInfo
}

func (rd *resultReader) member(m member) error {
	r := &rd.result
	switch m.name {
	case "interceptor":
		return json.Unmarshal(m.value, &r.Interceptor)
	case "type":
		return json.Unmarshal(m.value, &r.Type)
	case "phase":
		return json.Unmarshal(m.value, &r.Phase)
	case "resultType":
		return json.Unmarshal(m.value, &rd.completionType)
	case "durationMs":
		var ms float64
		err := json.Unmarshal(m.value, &ms)
		if math.Abs(ms) < 1<<53 {
			r.DurationMs = int64(ms)
		}
		return err
	case "info":
		if !isObject(m.value) {
			return errNotObject
		}
		r.Info = m.value
	case "valid":
		rd.saysValid = true
		return json.Unmarshal(m.value, &r.Valid)
	case "severity":
		return json.Unmarshal(m.value, &r.Severity)
	case "messages":
		return readWhole(m.value, &r.Messages)
	case "suggestions":
		return readWhole(m.value, &r.Suggestions)
	case "modified":
		rd.saysModified = true
		return json.Unmarshal(m.value, &r.Modified)
	case "payload":
		r.Payload = m.value
	case "validation", "mutation":
		return rd.readNested(m)
	}
	return nil
}

// readWhole reads a list, or nothing of it.
func readWhole[T any](raw json.RawMessage, list *[]T) error {
	var whole []T
	if err := json.Unmarshal(raw, &whole); err != nil {
		return err
	}
	*list = whole
	return nil
}

func (rd *resultReader) readNested(m member) error {
	if rd.nested != nil {
		return errors.New("is there beside the other type's")
	}
	rd.nestedType = TypeValidation
	if m.name == "mutation" {
		rd.nestedType = TypeMutation
	}
	rd.nested = new(resultReader)
	return rd.nested.read(m.value)
}

// adopt takes over the nested members. Flat members beside them must not contradict them: an engine
// could read either.
func (rd *resultReader) adopt() error {
	r, n := &rd.result, &rd.nested.result
	if r.Type != "" && r.Type != rd.nestedType {
		return fmt.Errorf("type %q holds a %s", r.Type, rd.nestedType)
	}
	r.Type = rd.nestedType
	if rd.saysValid && rd.nested.saysValid && r.Valid != n.Valid ||
		rd.saysModified && rd.nested.saysModified && r.Modified != n.Modified {
		return errors.New("flat and nested members contradict each other")
	}
	if !rd.saysValid && rd.nested.saysValid {
		rd.saysValid = true
		r.Valid, r.Severity, r.Messages, r.Suggestions = n.Valid, n.Severity, n.Messages, n.Suggestions
	}
	rd.unread = cmp.Or(rd.unread, rd.nested.unread)
	if !rd.saysModified && rd.nested.saysModified {
		rd.saysModified = true
		r.Modified = n.Modified
	}
	if r.Payload == nil {
		r.Payload = n.Payload
	}
	if r.Info == nil {
		r.Info = n.Info
	}
	return nil
}

// settleType checks that the members make exactly one kind of result.
func (rd *resultReader) settleType() error {
	r := &rd.result
	if rd.saysValid && rd.saysModified {
		return errors.New("is a validation and a mutation at once")
	}
	if r.Type == "" {
		switch {
		case rd.saysValid:
			r.Type = TypeValidation
		case rd.saysModified:
			r.Type = TypeMutation
		}
	}
	switch {
	case r.Type == TypeValidation && rd.saysValid:
		r.Payload = nil
		return nil
	case r.Type == TypeMutation && rd.saysModified:
		if r.Modified && r.Payload == nil {
			return errors.New("modified without a payload")
		}
		r.Valid, r.Severity, r.Messages, r.Suggestions = false, "", nil, nil
		return nil
	}
	return fmt.Errorf("members do not make a result of type %q", r.Type)
}
