package effectinterceptor

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/splice"
)

// toolCall is what the params of a tools/call hold that concerns identity, and where its _meta stands, so
// that stamping it reads nothing twice.
type toolCall struct {
	payload   json.RawMessage
	name      string
	arguments json.RawMessage // absent: nil

	key, run, occurrence string // handles of _meta
	keyAt                string // where in _meta the key stands
	continuation         string // by what the call goes on with a waiting attempt; empty: it does not

	closing int    // offset of the closing brace of params
	meta    span   // of the value of _meta; zero: absent
	kept    []span // members of _meta that are not under our prefix, the three handles included
	target  int    // index in kept of the target's own key, -1: none
	foreign bool   // _meta has members under our prefix that must not go on
}

type span struct{ start, end int }

// roundWithoutState continues an attempt whose target gave no requestState to go on with.
const roundWithoutState = "inputResponses"

// parseCall reads the params of a tools/call. A duplicate member anywhere is refused: two readers of it
// could take different values. Every error is an *effect.InvalidError that holds no value of the params.
func parseCall(payload json.RawMessage) (*toolCall, error) {
	r := readers.Get().(*reader)
	defer r.release()
	p := parser{dec: r.reset(payload), call: &toolCall{payload: payload, target: -1}}
	if err := p.params(); err != nil {
		return nil, invalidParams(err)
	}
	if p.call.name == "" {
		return nil, &effect.InvalidError{Pointer: "/name", Reason: "is missing; name the tool to call"}
	}
	return p.call, nil
}

// reader is a decoder that is used again: a new one costs more than reading a call.
type reader struct {
	dec jsontext.Decoder
	buf bytes.Buffer
}

var readers = sync.Pool{New: func() any { return new(reader) }}

func (r *reader) reset(src []byte) *jsontext.Decoder {
	r.buf = *bytes.NewBuffer(src)
	r.dec.Reset(&r.buf) // without options: no duplicate names, no invalid UTF-8
	return &r.dec
}

// release gives r back without what it read.
func (r *reader) release() {
	r.reset(nil)
	readers.Put(r)
}

type parser struct {
	dec            *jsontext.Decoder
	call           *toolCall
	state          *string // requestState
	inputResponses bool
	otherKeys      [2]string // idempotencyKey, idempotency-key
}

// invalidKind is what a member of the wrong kind is refused with.
func invalidKind(pointer, must string) error {
	return &effect.InvalidError{Pointer: pointer, Reason: "must be " + must}
}

func (p *parser) params() error {
	if p.dec.PeekKind() != '{' {
		if _, err := p.dec.ReadValue(); err != nil {
			return err
		}
		return &effect.InvalidError{Reason: "params must be an object"}
	}
	if _, err := p.object(p.member); err != nil {
		return err
	}
	p.call.closing = int(p.dec.InputOffset()) - 1
	if _, err := p.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &effect.InvalidError{Reason: "params must be one object"}
	}
	p.call.continuation = continuationOf(p.state, p.inputResponses)
	return p.oneKey()
}

// oneKey takes the key of whichever member of _meta has one. Two keys would be two calls: nobody says which is meant.
func (p *parser) oneKey() error {
	c := p.call
	if c.key != "" {
		c.keyAt = keyMeta
	}
	for n, name := range [...]string{targetKey, plainKey} {
		switch other := p.otherKeys[n]; {
		case other == "", other == c.key:
		case c.key != "":
			return &effect.InvalidError{Pointer: "/_meta/" + name, Reason: "is another idempotency key than _meta[\"" + c.keyAt + "\"]: send one"}
		default:
			c.key, c.keyAt = other, name
		}
	}
	return nil
}

// object reads an object and calls f with the name of each member, to read its value. It returns the
// offset of the opening brace.
func (p *parser) object(f func(name []byte, start int) error) (opening int, err error) {
	if _, err := p.dec.ReadToken(); err != nil {
		return 0, err
	}
	opening = int(p.dec.InputOffset()) - 1
	for p.dec.PeekKind() != '}' {
		literal, err := p.dec.ReadValue()
		if err != nil {
			return 0, err
		}
		start := int(p.dec.InputOffset()) - len(literal)
		name := literal[1 : len(literal)-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			if name, err = jsontext.AppendUnquote(nil, literal); err != nil {
				return 0, err
			}
		}
		if err := f(name, start); err != nil {
			return 0, err
		}
	}
	_, err = p.dec.ReadToken()
	return opening, err
}

// value reads one value; the result shares memory with the payload and with nothing else.
func (p *parser) value() (json.RawMessage, error) {
	v, err := p.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	end := int(p.dec.InputOffset())
	return p.call.payload[end-len(v) : end : end], nil
}

func (p *parser) member(name []byte, _ int) (err error) {
	switch string(name) {
	case "name":
		p.call.name, err = p.text("/name")
		return err
	case "arguments":
		if p.call.arguments, err = p.value(); err == nil && splice.Kind(p.call.arguments) != '{' {
			return invalidKind("/arguments", "an object")
		}
		return err
	case "_meta":
		return p.meta()
	case "requestState":
		return p.requestState()
	case "inputResponses":
		v, err := p.value()
		p.inputResponses = splice.Kind(v) != 'n'
		return err
	}
	if err := unlike(name); err != nil {
		return err
	}
	return p.dec.SkipValue()
}

// unlike refuses a name that differs from one of ours in case alone: a target that folds case (Go's
// encoding/json does) would be called by another name, or with other arguments, than were recorded.
func unlike(name []byte) error {
	for _, known := range [...]string{"name", "arguments", "_meta", "requestState", "inputResponses"} {
		if len(name) < 2*len(known) && strings.EqualFold(string(name), known) {
			return &effect.InvalidError{Pointer: "/" + string(name), Reason: "is not spelled " + known}
		}
	}
	return nil
}

// text reads a string that is not empty.
func (p *parser) text(pointer string) (string, error) {
	v, err := p.value()
	if err != nil {
		return "", err
	}
	s, ok := text(v)
	if !ok || s == "" {
		return "", invalidKind(pointer, "a string that is not empty")
	}
	return s, nil
}

func (p *parser) requestState() error {
	v, err := p.value()
	if err != nil || splice.Kind(v) == 'n' {
		return err
	}
	s, ok := text(v)
	if !ok {
		return invalidKind("/requestState", "a string")
	}
	p.state = &s
	return nil
}

func (p *parser) meta() error {
	if p.dec.PeekKind() != '{' {
		v, err := p.value()
		if err != nil {
			return err
		}
		if splice.Kind(v) != 'n' {
			return invalidKind("/_meta", "an object")
		}
		end := int(p.dec.InputOffset())
		p.call.meta = span{end - len(v), end}
		return nil
	}
	p.call.kept = make([]span, 0, 4)
	opening, err := p.object(p.metaMember)
	if err != nil {
		return err
	}
	p.call.meta = span{opening, int(p.dec.InputOffset())}
	return nil
}

func (p *parser) metaMember(name []byte, start int) (err error) {
	c := p.call
	switch string(name) {
	case keyMeta:
		c.key, err = p.text("/_meta/dev.undolog~1idempotency-key")
	case runMeta:
		c.run, err = p.text("/_meta/dev.undolog~1run")
	case occurrenceMeta:
		c.occurrence, err = p.text("/_meta/dev.undolog~1occurrence")
	case targetKey:
		c.target = len(c.kept)
		p.otherKeys[0], err = p.text("/_meta/idempotencyKey")
	case plainKey:
		p.otherKeys[1], err = p.text("/_meta/idempotency-key")
	default:
		if bytes.HasPrefix(name, []byte(prefix)) {
			c.foreign = true
			return p.dec.SkipValue()
		}
		err = p.dec.SkipValue()
	}
	if err != nil {
		return err
	}
	c.kept = append(c.kept, span{start, int(p.dec.InputOffset())})
	return nil
}

// continuationOf is by what a request goes on with, or an answer asks for, another round.
func continuationOf(state *string, inputs bool) string {
	switch {
	case state != nil && *state != "":
		return *state
	case state != nil, inputs:
		return roundWithoutState
	}
	return ""
}

func invalidParams(err error) error {
	var known *effect.InvalidError
	if errors.As(err, &known) {
		return known
	}
	bad := &effect.InvalidError{Reason: "is not JSON"}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		bad.Pointer = string(syntactic.JSONPointer)
		switch what := syntactic.Err.Error(); {
		case errors.Is(err, jsontext.ErrDuplicateName):
			bad.Reason = "is there twice"
		case strings.Contains(what, "surrogate"), strings.Contains(what, "UTF-8"):
			bad.Reason = "is not valid Unicode text"
		}
	}
	if bad.Pointer == "" {
		bad.Reason = "params " + bad.Reason
	}
	return bad
}

// text reads a JSON string; false when the value is none.
func text(v []byte) (string, bool) {
	if splice.Kind(v) != '"' {
		return "", false
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return strings.ToValidUTF8(string(v[1:len(v)-1]), "\uFFFD"), true
	}
	s, err := jsontext.AppendUnquote(nil, v)
	return string(s), err == nil
}
