package interceptors

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// DecodeInvoke reads the params of interceptor/invoke strictly: names are matched exactly, every known
// member must have its type, unknown members are ignored, and an object that names a member twice is
// refused wherever it stands, so that no two readers can see two payloads. The error is a *ParamsError
// that lists every problem. The result shares raw's bytes; Caller is left empty.
func DecodeInvoke(raw json.RawMessage) (*InvokeParams, error) {
	ms, err := members(raw)
	if err != nil {
		return nil, &ParamsError{Problems: []Problem{problemOf("", err)}}
	}
	p := new(InvokeParams)
	var problems []Problem
	for _, m := range ms {
		p.decodeMember(m, &problems)
	}
	if problems = append(problems, p.problems(problems)...); len(problems) > 0 {
		return nil, &ParamsError{Name: p.Name, Problems: problems}
	}
	return p, nil
}

func (p *InvokeParams) decodeMember(m member, problems *[]Problem) {
	path := "/" + m.name
	switch m.name {
	case "name":
		p.Name = optionalString(path, m.value, problems)
	case "event":
		p.Event = optionalString(path, m.value, problems)
	case "phase":
		p.Phase = Phase(optionalString(path, m.value, problems))
	case "payload":
		p.Payload = m.value
	case "config":
		p.Config = optionalObject(path, m.value, problems)
	case "_meta":
		p.Meta = optionalObject(path, m.value, problems)
	case "context":
		if !isNull(m.value) {
			p.Context = decodeContext(m.value, problems)
		}
	case "timeoutMs":
		p.TimeoutMs = optionalTimeout(path, m.value, problems)
	}
}

// problems checks what must be there; a member that already has a problem is not reported again.
func (p *InvokeParams) problems(already []Problem) []Problem {
	var found []Problem
	check := func(path string, ok bool, message string) {
		for _, q := range already {
			if q.Path == path {
				return
			}
		}
		if !ok {
			found = append(found, Problem{path, message})
		}
	}
	check("/name", p.Name != "", "must be a non-empty string")
	check("/event", p.Event != "", "must be a non-empty string")
	check("/event", isConcrete(p.Event), "must be one event, not a pattern")
	check("/phase", p.Phase == PhaseRequest || p.Phase == PhaseResponse, "must be request or response")
	check("/timeoutMs", p.TimeoutMs >= 0, "must not be negative")
	return found
}

func optionalObject(path string, v json.RawMessage, problems *[]Problem) json.RawMessage {
	if isNull(v) {
		return nil
	}
	if !isObject(v) {
		*problems = append(*problems, Problem{path, errNotObject.Error()})
	}
	return v
}

func optionalTimeout(path string, v json.RawMessage, problems *[]Problem) int64 {
	if isNull(v) {
		return 0
	}
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		*problems = append(*problems, Problem{path, "must be an integer"})
		return 0
	}
	return int64(n)
}

// problemOf turns an error of the JSON reader into a problem at the place it names.
func problemOf(path string, err error) Problem {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return Problem{path, err.Error()}
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return Problem{path + string(syntax.JSONPointer), "names a member twice"}
	}
	return Problem{path, "is not well-formed JSON"}
}
