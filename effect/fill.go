package effect

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Fill returns kept arguments with the values of the call's own arguments where they were redacted: what is
// sent when a person has approved, and perhaps edited, what was kept. Edited values stay. The error is an
// *InvalidError: something is redacted for which the call has no value.
func (r *Redaction) Fill(kept, original json.RawMessage) (json.RawMessage, error) {
	if r == nil {
		return kept, nil
	}
	redacted, _ := r.Keep(original, nil)
	if bytes.Equal(kept, redacted) {
		return original, nil
	}
	var trees [3]*tree
	for i, src := range [...]json.RawMessage{kept, redacted, original} {
		t, err := readTree(src)
		if err != nil {
			return nil, &InvalidError{"/arguments", err.Error()}
		}
		trees[i] = t
	}
	return fill(make([]byte, 0, len(original)), "/arguments", trees[0], trees[1], trees[2])
}

// tree is a JSON value with its parts.
type tree struct {
	raw   jsontext.Value
	names []string // of an object
	parts []*tree
}

func readTree(src []byte) (*tree, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(src))
	return readPart(dec)
}

func readPart(dec *jsontext.Decoder) (*tree, error) {
	kind := dec.PeekKind()
	if kind != '{' && kind != '[' {
		raw, err := dec.ReadValue()
		return &tree{raw: raw.Clone()}, err
	}
	open, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	t := &tree{raw: jsontext.Value(open.String())}
	for dec.PeekKind() != '}' && dec.PeekKind() != ']' {
		if kind == '{' {
			name, err := dec.ReadToken()
			if err != nil {
				return nil, err
			}
			t.names = append(t.names, name.String())
		}
		part, err := readPart(dec)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, part)
	}
	_, err = dec.ReadToken()
	return t, err
}

// fill appends what was kept, walked beside the call's arguments, redacted and as they are: these two have the
// same shape but for what stands at redacted places.
func fill(dst []byte, at jsontext.Pointer, kept, redacted, original *tree) ([]byte, error) {
	kind := kept.raw.Kind()
	switch {
	case redacted != nil && redacted.raw.Kind() == '"' && sameText(kept.raw, redacted.raw):
		return original.append(dst), nil
	case kind == '{', kind == '[':
		return fillParts(dst, at, kept, redacted, original)
	}
	if s, ok := text(kept.raw); ok && strings.Contains(s, Redacted) {
		return nil, &InvalidError{string(at), "is redacted in what was approved, and the call has no value for it"}
	}
	return append(dst, kept.raw...), nil
}

func fillParts(dst []byte, at jsontext.Pointer, kept, redacted, original *tree) (_ []byte, err error) {
	dst = append(dst, kept.raw...)
	if kept.names == nil && redacted != nil && len(kept.parts) != len(redacted.parts) {
		redacted = nil // elements were taken out or put in: nothing says which is which
	}
	for i, part := range kept.parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		token := strconv.Itoa(i)
		j := i
		if kept.names != nil {
			token = kept.names[i]
			j = redacted.indexOf(token)
			name := token
			if j >= 0 {
				name = original.names[j]
			}
			dst = append(appendJSONString(dst, name), ':')
		}
		var r, o *tree
		if redacted != nil && redacted.raw.Kind() == kept.raw.Kind() && j >= 0 && j < len(redacted.parts) {
			r, o = redacted.parts[j], original.parts[j]
		}
		if dst, err = fill(dst, at.AppendToken(token), part, r, o); err != nil {
			return nil, err
		}
	}
	return append(dst, kept.raw[0]+2), nil // } and ] are two after { and [
}

// indexOf is the place of a member; negative when there is none.
func (t *tree) indexOf(name string) int {
	if t == nil {
		return -1
	}
	for i, n := range t.names {
		if n == name {
			return i
		}
	}
	return -1
}

func (t *tree) append(dst []byte) []byte {
	if kind := t.raw.Kind(); kind != '{' && kind != '[' {
		return append(dst, t.raw...)
	}
	dst = append(dst, t.raw...)
	for i, part := range t.parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		if t.names != nil {
			dst = append(appendJSONString(dst, t.names[i]), ':')
		}
		dst = part.append(dst)
	}
	return append(dst, t.raw[0]+2)
}

func sameText(a, b jsontext.Value) bool {
	s, ok := text(a)
	t, ok2 := text(b)
	return ok && ok2 && s == t
}

func appendJSONString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // names that were read are valid UTF-8
	return dst
}
