package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits bounds what ParseMessage accepts. Nil and zero fields mean the defaults.
type Limits struct {
	MaxBytes int64 // of one message. Defaults to 32 MiB
	MaxDepth int   // of nesting; 10,000 at most. Defaults to 1000
	MaxName  int   // bytes of one member name, as spelled. Defaults to 64 KiB
}

const (
	defaultMaxBytes = 32 << 20
	defaultMaxDepth = 1000
	defaultMaxName  = 64 << 10
	maxID           = 4096 // bytes of an id's literal
)

func (l *Limits) orDefaults() Limits {
	d := Limits{MaxBytes: defaultMaxBytes, MaxDepth: defaultMaxDepth, MaxName: defaultMaxName}
	if l == nil {
		return d
	}
	if l.MaxBytes > 0 {
		d.MaxBytes = l.MaxBytes
	}
	if l.MaxDepth > 0 {
		d.MaxDepth = l.MaxDepth
	}
	if l.MaxName > 0 {
		d.MaxName = l.MaxName
	}
	return d
}

// ParseMessage reads the envelope of one JSON-RPC message: member names are case-sensitive and may
// stand once. What is inside params and results is checked to be JSON within the limits, and else left
// as it is. The message keeps slices of raw, which MUST NOT be changed afterwards. Its error is always a
// *RefusedError, with the id and method where they can be found, so that a request is refused under its
// own id whatever is wrong with it.
func ParseMessage(raw []byte, limits *Limits) (*Message, error) {
	l := limits.orDefaults()
	var s scanner
	s.scan(raw)
	refuse := func(code int, format string, args ...any) (*Message, error) {
		return nil, s.refusal(code, fmt.Sprintf(format, args...))
	}
	switch {
	case int64(len(raw)) > l.MaxBytes:
		return refuse(codeInvalidRequest, "message of %d bytes is above the limit of %d", len(raw), l.MaxBytes)
	case s.deepest > l.MaxDepth:
		return refuse(codeInvalidRequest, "message nests %d levels deep, above the limit of %d", s.deepest, l.MaxDepth)
	case s.longestName > int64(l.MaxName):
		return refuse(codeInvalidRequest, "message has a member name of %d bytes, above the limit of %d", s.longestName, l.MaxName)
	}
	m := &Message{Raw: raw, Size: int64(len(raw))}
	if err := m.readEnvelope(); err != nil {
		var syntax *jsontext.SyntacticError
		if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) {
			return refuse(codeParse, "message is not valid JSON: %v", err)
		}
		return refuse(codeInvalidRequest, "%v", err)
	}
	if err := m.check(); err != nil {
		return refuse(codeInvalidRequest, "%v", err)
	}
	return m, nil
}

// SplitBatch returns the messages of a JSON-RPC batch (MCP 2025-03-26), or raw alone when it is none.
// They are answered one by one.
func SplitBatch(raw []byte) ([]json.RawMessage, error) {
	if trimmed := bytes.TrimLeft(raw, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '[' {
		return []json.RawMessage{raw}, nil
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), lenient...)
	if _, err := dec.ReadToken(); err != nil {
		return nil, notJSON(err)
	}
	var batch []json.RawMessage
	for dec.PeekKind() != ']' {
		v, err := dec.ReadValue()
		if err != nil {
			return nil, notJSON(err)
		}
		end := int(dec.InputOffset())
		batch = append(batch, raw[end-len(v):end:end])
	}
	if len(batch) == 0 {
		return nil, &RefusedError{Code: codeInvalidRequest, Message: "batch is empty"}
	}
	return batch, nil
}

func notJSON(err error) error {
	return &RefusedError{Code: codeParse, Message: fmt.Sprintf("message is not valid JSON: %v", err)}
}

// lenient leaves duplicate names and odd Unicode below the envelope to those who read them: the relay
// forwards what the two ends may agree on.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// readEnvelope notes where the members of the envelope stand.
func (m *Message) readEnvelope() error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(m.Raw), lenient...)
	if dec.PeekKind() != '{' {
		if _, err := dec.ReadValue(); err != nil {
			return unexpectedEnd(err)
		}
		return errors.New("message is not a JSON object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return unexpectedEnd(err)
	}
	var seen members
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return unexpectedEnd(err)
		}
		key := name.String()
		if !seen.add(key) {
			return fmt.Errorf("member %q stands twice in the message", shorten(key))
		}
		v, err := dec.ReadValue()
		if err != nil {
			return unexpectedEnd(err)
		}
		end := int(dec.InputOffset())
		if err := m.setMember(key, span{end - len(v), end}); err != nil {
			return err
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return unexpectedEnd(err)
	}
	if seen.known&1 == 0 {
		return errors.New(`message has no "jsonrpc" member`)
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return errors.New("message is followed by more data")
	}
	return nil
}

func (m *Message) setMember(name string, at span) error {
	value := m.Raw[at.from:at.to:at.to]
	isNull := value[0] == 'n'
	switch name {
	case "jsonrpc":
		if unquote(value) != "2.0" {
			return errors.New(`member "jsonrpc" is not "2.0"`)
		}
	case "id":
		m.ID, m.id = value, at
	case "method":
		if m.Method = unquote(value); m.Method == "" {
			return errors.New(`member "method" is not a name`)
		}
	case "params":
		m.params = at
		switch {
		case value[0] == '{':
			m.Params = value
		case !isNull:
			return errors.New(`member "params" is not an object`)
		}
	case "result":
		m.Result, m.result = value, at
	case "error":
		if !isNull {
			m.Error = value
		}
	default:
		return unlikeEnvelope(name)
	}
	return nil
}

// unlikeEnvelope refuses a name that differs from one of the envelope's in case alone. Readers that fold
// case (encoding/json is one) take it for that: what is one message here would be another to them.
func unlikeEnvelope(name string) error {
	for _, known := range envelope {
		if strings.EqualFold(name, known) {
			return fmt.Errorf("member %q is not spelled %q", shorten(name), known)
		}
	}
	return nil
}

// check says whether the members make a request, a notification or a response.
func (m *Message) check() error {
	if m.ID != nil && !validID(m.ID) {
		// JSON-RPC answers with a null id what it could not read.
		if !(m.ID[0] == 'n' && m.Method == "" && m.Error != nil) {
			return errors.New(`member "id" is not a string or a number`)
		}
	}
	switch {
	case m.Method != "" && (m.Result != nil || m.Error != nil):
		return errors.New("message is both a request and a response")
	case m.Method != "":
		return nil
	case m.Result != nil && m.Error != nil:
		return errors.New("response has both a result and an error")
	case m.Result == nil && m.Error == nil:
		return errors.New("message is neither a request nor a response")
	case m.ID == nil:
		return errors.New("response has no id")
	}
	return nil
}

// validID reports whether raw is the literal of an id: a string or a number, of bounded length.
func validID(raw []byte) bool {
	if len(raw) == 0 || len(raw) > maxID {
		return false
	}
	v := jsontext.Value(raw)
	return (v.Kind() == '"' || v.Kind() == '0') && v.IsValid(lenient...)
}

// idKey is equal for ids that JSON-RPC takes for the same: a peer may spell 1e2 as 100 and "\u0061" as
// "a" when it answers. Integers keep every digit.
func idKey(id json.RawMessage) string {
	if len(id) == 0 {
		return ""
	}
	if id[0] == '"' {
		return `"` + unquote(id)
	}
	text := string(id)
	if !strings.ContainsAny(text, ".eE") {
		if text == "-0" {
			return "0"
		}
		return text
	}
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return text
}

// unquote returns the string that raw spells; empty when it is none.
func unquote(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	if err != nil && len(b) == 0 {
		return ""
	}
	return string(b)
}

func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // its only error is invalid UTF-8, which it replaces
	return b
}

func shorten(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// members is the set of names that an envelope has.
type members struct {
	known uint // bit i: envelope[i]
	other map[string]bool
}

var envelope = [...]string{"jsonrpc", "id", "method", "params", "result", "error"}

// add reports false for a name that is there already.
func (s *members) add(name string) bool {
	for i, known := range envelope {
		if name == known {
			again := s.known&(1<<i) != 0
			s.known |= 1 << i
			return !again
		}
	}
	if s.other[name] {
		return false
	}
	if s.other == nil {
		s.other = make(map[string]bool)
	}
	s.other[name] = true
	return true
}

// unexpectedEnd names the end of the input for what it is inside a message.
func unexpectedEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
