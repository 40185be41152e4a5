// Package splice reads and changes single members of a JSON object while every other byte of it stays
// as it came: numbers keep their spelling, members their order, unknown members their place. It is how
// a payload is stamped without being re-typed.
package splice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// member is one name/value pair of an object, as offsets into it.
type member struct {
	name       string
	start      int // of the name
	valueStart int
	valueEnd   int
}

// Get returns the value at path, nil when it or an object on the way to it is absent or obj is not an
// object. The result shares memory with obj.
func Get(obj []byte, path ...string) json.RawMessage {
	for _, name := range path {
		m, ok := find(obj, name)
		if !ok {
			return nil
		}
		obj = obj[m.valueStart:m.valueEnd]
	}
	return obj
}

// Set returns a copy of obj in which the member at path has the given value. Objects missing on the
// way are made; a member that is there keeps its place. It fails when obj, or a value on the way, is
// not an object.
func Set(obj, value []byte, path ...string) (json.RawMessage, error) {
	if len(path) == 0 {
		return bytes.Clone(value), nil
	}
	ms, closing, err := members(obj)
	if err != nil {
		return nil, fmt.Errorf("set member %q: %w", path[0], err)
	}
	for _, m := range ms {
		if m.name != path[0] {
			continue
		}
		inner, err := Set(obj[m.valueStart:m.valueEnd], value, path[1:]...)
		if err != nil {
			return nil, err
		}
		return join(obj[:m.valueStart], inner, obj[m.valueEnd:]), nil
	}
	inner := value
	for i := len(path) - 1; i > 0; i-- {
		inner = join([]byte("{"), quote(path[i]), []byte(":"), inner, []byte("}"))
	}
	comma := []byte(",")
	if len(ms) == 0 {
		comma = nil
	}
	return join(bytes.TrimRight(obj[:closing], " \t\r\n"), comma, quote(path[0]), []byte(":"), inner, obj[closing:]), nil
}

// Delete returns obj without the members for which drop reports true, and whether any was dropped.
// Without one the result is obj itself.
func Delete(obj []byte, drop func(name string) bool) (json.RawMessage, bool, error) {
	ms, closing, err := members(obj)
	if err != nil {
		return nil, false, fmt.Errorf("delete members: %w", err)
	}
	var kept []member
	for _, m := range ms {
		if !drop(m.name) {
			kept = append(kept, m)
		}
	}
	if len(kept) == len(ms) {
		return obj, false, nil
	}
	out := make([]byte, 0, len(obj))
	out = append(out, '{')
	for i, m := range kept {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, obj[m.start:m.valueEnd]...)
	}
	return append(out, obj[closing:]...), true, nil
}

// Append returns a copy of the array arr with value as its last element.
func Append(arr, value []byte) (json.RawMessage, error) {
	trimmed := bytes.TrimRight(arr, " \t\r\n")
	if len(trimmed) < 2 || trimmed[len(trimmed)-1] != ']' {
		return nil, fmt.Errorf("append to array: not an array")
	}
	body := bytes.TrimRight(trimmed[:len(trimmed)-1], " \t\r\n")
	comma := []byte(",")
	if body[len(body)-1] == '[' {
		comma = nil
	}
	return join(body, comma, value, []byte("]")), nil
}

// find returns the first member of a name. What follows it is not read.
func find(obj []byte, name string) (found member, ok bool) {
	_, err := walk(obj, func(n []byte, m member) bool {
		if string(n) == name {
			found, ok = m, true
		}
		return !ok
	})
	return found, ok && err == nil
}

// members lists the members of obj and the offset of its closing brace.
func members(obj []byte) (ms []member, closing int, err error) {
	ms = make([]member, 0, 8)
	closing, err = walk(obj, func(name []byte, m member) bool {
		m.name = string(name)
		ms = append(ms, m)
		return true
	})
	return ms, closing, err
}

// walk visits the members of obj in order until visit reports false, and returns the offset of the
// closing brace, or 0 when it did not get there. The name is beside the member, which has none, and is
// valid during the visit only.
func walk(obj []byte, visit func(name []byte, m member) bool) (closing int, err error) {
	r := readers.Get().(*reader)
	defer r.release()
	dec := r.reset(obj)
	tok, err := dec.ReadToken()
	if err != nil {
		return 0, err
	}
	if tok.Kind() != '{' {
		return 0, fmt.Errorf("not an object")
	}
	for dec.PeekKind() != '}' {
		literal, err := dec.ReadValue()
		if err != nil {
			return 0, err
		}
		m := member{start: int(dec.InputOffset()) - len(literal)}
		name, err := unquote(obj[m.start : m.start+len(literal)])
		if err != nil {
			return 0, err
		}
		value, err := dec.ReadValue()
		if err != nil {
			return 0, err
		}
		m.valueEnd = int(dec.InputOffset())
		m.valueStart = m.valueEnd - len(value)
		if !visit(name, m) {
			return 0, nil
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return 0, err
	}
	return int(dec.InputOffset()) - 1, nil
}

// unquote returns the meaning of a string literal, which may share memory with it.
func unquote(literal []byte) ([]byte, error) {
	if bytes.IndexByte(literal, '\\') < 0 && utf8.Valid(literal) {
		return literal[1 : len(literal)-1], nil
	}
	return jsontext.AppendUnquote(nil, literal)
}

// reader is a decoder that is used again: one costs more than reading a small object.
type reader struct {
	dec jsontext.Decoder
	buf bytes.Buffer
}

var (
	readers = sync.Pool{New: func() any { return new(reader) }}
	lenient = jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
)

func (r *reader) reset(obj []byte) *jsontext.Decoder {
	r.buf = *bytes.NewBuffer(obj)
	r.dec.Reset(&r.buf, lenient)
	return &r.dec
}

// release gives r back without what it read.
func (r *reader) release() {
	r.reset(nil)
	readers.Put(r)
}

func quote(name string) []byte {
	q, _ := jsontext.AppendQuote(nil, name) // invalid UTF-8 becomes U+FFFD; names here are constants
	return q
}

func join(parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	out := make([]byte, 0, n)
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
