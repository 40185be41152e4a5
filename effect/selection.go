package effect

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// selection is a set of places in JSON arguments, as a tree of reference tokens.
type selection struct {
	whole bool // this value is one of the places
	below map[string]*selection
}

// newSelection reads places written as JSON pointers or, without a leading slash, as the names of
// top-level members.
func newSelection(places []string) *selection {
	root := &selection{}
	for _, place := range places {
		at := root
		for _, token := range tokens(place) {
			at = at.child(token)
		}
		at.whole = true
	}
	return root
}

func tokens(place string) []string {
	if !strings.HasPrefix(place, "/") {
		return []string{place}
	}
	var ts []string
	for t := range jsontext.Pointer(place).Tokens() {
		ts = append(ts, t)
	}
	return ts
}

func (s *selection) child(token string) *selection {
	if s.below == nil {
		s.below = map[string]*selection{}
	}
	if s.below[token] == nil {
		s.below[token] = &selection{}
	}
	return s.below[token]
}

// only returns what is selected of a canonical object, in canonical form. A place that is not there
// contributes nothing; an array keeps its selected elements in order.
func (s *selection) only(object []byte) []byte {
	f := filter{dec: jsontext.NewDecoder(bytes.NewBuffer(object)), keep: true}
	return f.object(make([]byte, 0, len(object)), s)
}

// without returns what is not selected of a canonical object, in canonical form.
func (s *selection) without(object []byte) []byte {
	f := filter{dec: jsontext.NewDecoder(bytes.NewBuffer(object))}
	return f.object(make([]byte, 0, len(object)), s)
}

// filter copies parts of one canonical text. Reading canonical bytes does not fail, so errors end a loop
// and nothing else.
type filter struct {
	dec  *jsontext.Decoder
	keep bool // selected values are kept, else dropped
}

func (f *filter) object(dst []byte, s *selection) []byte {
	f.next()
	start := len(dst)
	dst = append(dst, '{')
	for f.dec.PeekKind() == '"' {
		name, _ := f.dec.ReadToken()
		below := s.below[name.String()]
		mark := len(dst)
		dst = f.separate(dst, start)
		dst, _ = jsontext.AppendQuote(dst, name.String())
		dst = append(dst, ':')
		dst = f.value(dst, mark, below)
	}
	f.next()
	return append(dst, '}')
}

func (f *filter) array(dst []byte, s *selection) []byte {
	f.next()
	start := len(dst)
	dst = append(dst, '[')
	for i := 0; f.dec.PeekKind() != ']' && f.dec.PeekKind() != 0; i++ {
		below := s.below[strconv.Itoa(i)]
		mark := len(dst)
		dst = f.value(f.separate(dst, start), mark, below)
	}
	f.next()
	return append(dst, ']')
}

func (f *filter) separate(dst []byte, start int) []byte {
	if len(dst) > start+1 {
		return append(dst, ',')
	}
	return dst
}

// value appends the next value, or cuts dst back to the mark when nothing of it is wanted.
func (f *filter) value(dst []byte, mark int, s *selection) []byte {
	kind := f.dec.PeekKind()
	switch {
	case s == nil && f.keep, s != nil && s.whole && !f.keep, s != nil && !s.whole && f.keep && kind != '{' && kind != '[':
		_ = f.dec.SkipValue()
		return dst[:mark]
	case s == nil, s.whole, kind != '{' && kind != '[':
		v, _ := f.dec.ReadValue()
		return append(dst, v...)
	case kind == '{':
		return f.object(dst, s)
	default:
		return f.array(dst, s)
	}
}

func (f *filter) next() { _, _ = f.dec.ReadToken() }

// member returns the value of a top-level member of a canonical object, nil when there is none.
func member(object []byte, name string) jsontext.Value {
	quoted, _ := jsontext.AppendQuote(nil, name)
	if !hasString(object, string(quoted[1:])) {
		return nil
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(object))
	_, _ = dec.ReadToken()
	for dec.PeekKind() == '"' {
		token, _ := dec.ReadToken()
		if token.String() != name {
			_ = dec.SkipValue()
			continue
		}
		value, _ := dec.ReadValue()
		return value
	}
	return nil
}

// hasString reports whether a string of a canonical text may begin with what is given, as it is written
// after its quote.
func hasString(canonical []byte, beginning string) bool {
	for rest := canonical; ; {
		i := bytes.IndexByte(rest, '"')
		if i < 0 {
			return false
		}
		if rest = rest[i+1:]; len(rest) >= len(beginning) && string(rest[:len(beginning)]) == beginning {
			return true
		}
	}
}

// text returns the text of a JSON string.
func text(value jsontext.Value) (string, bool) {
	if value.Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, value)
	return string(b), err == nil
}
