package effect

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Redacted stands in what is kept for what was there.
const Redacted = "[redacted]"

var redactedValue = []byte(`"` + Redacted + `"`)

// Redaction is the places in a JSON text whose values are sent and answered, and kept nowhere. nil has none.
// It is safe for concurrent use.
type Redaction struct {
	root  *place
	names map[string]bool
}

// place is a node of the tree of pointers.
type place struct {
	whole bool
	below map[string]*place
}

// anyToken is the reference token that stands for every member or element.
const anyToken = "*"

// NewRedaction reads places: JSON pointers, in which * stands for every member or element, and names, which
// are every member of that name, however deep. A name also counts within a string that holds JSON, because
// tools give their results as such texts.
func NewRedaction(places []string) *Redaction {
	if len(places) == 0 {
		return nil
	}
	r := &Redaction{root: &place{}, names: map[string]bool{}}
	for _, p := range places {
		if !strings.HasPrefix(p, "/") {
			r.names[p] = true
			continue
		}
		at := r.root
		for token := range jsontext.Pointer(p).Tokens() {
			at = at.child(token)
		}
		at.whole = true
	}
	return r
}

func (p *place) child(token string) *place {
	if p.below == nil {
		p.below = map[string]*place{}
	}
	if p.below[token] == nil {
		p.below[token] = &place{}
	}
	return p.below[token]
}

// Keep returns src as it may be kept, and the secrets: those that are known and the values at the places.
// At a place stands Redacted; wherever else a secret is found in src, also encoded, it gives way too, and a number
// that holds one as a whole. All other bytes are those of src. What cannot be read as JSON is not kept at all.
func (r *Redaction) Keep(src json.RawMessage, known *Secrets) (json.RawMessage, *Secrets) {
	if r == nil && known == nil || len(src) == 0 {
		return src, known
	}
	w := newWalk(src)
	if err := w.text(r); err != nil {
		return redactedValue, known
	}
	secrets := known.With(w.values...)
	return w.kept(secrets), secrets
}

// walk reads one JSON text and gathers what is at the places and what is beside them.
type walk struct {
	src    []byte
	dec    *jsontext.Decoder
	names  map[string]bool
	pieces []piece  // strings, numbers and names beside the places, and the places themselves, in order
	values []string // of the places
}

// piece is a part of the text that may not be kept as it is.
type piece struct {
	start, end int
	place      bool
	name       bool // of a member
}

func newWalk(src []byte) *walk {
	return &walk{
		src: src,
		dec: jsontext.NewDecoder(bytes.NewBuffer(src), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
	}
}

func (w *walk) text(r *Redaction) error {
	var at []*place
	if r != nil {
		w.names = r.names
		at = []*place{r.root}
	}
	if err := w.value(at); err != nil {
		return err
	}
	if _, err := w.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

func (w *walk) value(at []*place) error {
	for _, p := range at {
		if p.whole {
			return w.selected()
		}
	}
	switch w.dec.PeekKind() {
	case '{':
		return w.object(at)
	case '[':
		return w.array(at)
	}
	raw, err := w.piece(piece{})
	if err == nil && len(w.names) > 0 {
		w.within(raw)
	}
	return err
}

// selected reads the value at a place.
func (w *walk) selected() error {
	raw, err := w.piece(piece{place: true})
	if err == nil {
		w.values = appendLeaves(w.values, raw)
	}
	return err
}

// piece reads a value or a name. White space before it is not part of it.
func (w *walk) piece(p piece) ([]byte, error) {
	raw, err := w.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	p.end = int(w.dec.InputOffset())
	p.start = p.end - len(raw)
	if kind := jsontext.Value(raw).Kind(); p.place || kind == '"' || kind == '0' {
		w.pieces = append(w.pieces, p)
	}
	return w.src[p.start:p.end], nil
}

func (w *walk) object(at []*place) error {
	if _, err := w.dec.ReadToken(); err != nil {
		return err
	}
	for w.dec.PeekKind() != '}' {
		literal, err := w.piece(piece{name: true})
		if err != nil {
			return err
		}
		name, _ := text(literal)
		below := follow(at, name)
		if w.names[name] {
			below = []*place{{whole: true}}
		}
		if err := w.value(below); err != nil {
			return err
		}
	}
	_, err := w.dec.ReadToken()
	return err
}

func (w *walk) array(at []*place) error {
	if _, err := w.dec.ReadToken(); err != nil {
		return err
	}
	for i := 0; w.dec.PeekKind() != ']'; i++ {
		if err := w.value(follow(at, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	_, err := w.dec.ReadToken()
	return err
}

func follow(at []*place, token string) (below []*place) {
	for _, p := range at {
		for _, t := range [...]string{token, anyToken} {
			if next := p.below[t]; next != nil {
				below = append(below, next)
			}
		}
	}
	return below
}

// within looks for the names in a string that holds JSON.
func (w *walk) within(literal []byte) {
	s, ok := text(literal)
	if s = strings.TrimSpace(s); !ok || s == "" || s[0] != '{' && s[0] != '[' {
		return
	}
	inner := newWalk([]byte(s))
	if inner.text(&Redaction{root: &place{}, names: w.names}) == nil {
		w.values = append(w.values, inner.values...)
	}
}

// kept is the text without what stands at the places, and without the secrets.
func (w *walk) kept(secrets *Secrets) json.RawMessage {
	var out []byte
	done := 0
	for _, p := range w.pieces {
		raw := w.src[p.start:p.end]
		now := redactedValue
		if !p.place {
			now = secrets.literal(raw, p.name)
		}
		if bytes.Equal(now, raw) {
			continue
		}
		out = append(append(out, w.src[done:p.start]...), now...)
		done = p.end
	}
	if done == 0 {
		return w.src
	}
	return append(out, w.src[done:]...)
}

// appendLeaves appends the strings and numbers of a JSON value.
func appendLeaves(values []string, raw []byte) []string {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		name := false
		if kind, n := dec.StackIndex(dec.StackDepth()); kind == '{' {
			name = n%2 == 0
		}
		token, err := dec.ReadToken()
		switch {
		case err != nil:
			return values
		case name: // or the end of the object
		case token.Kind() == '"':
			values = append(values, token.String())
		case token.Kind() == '0':
			values = append(values, numberForms(token.String())...)
		}
	}
}

// numberForms are the spellings of a number under which programs hand it on.
func numberForms(literal string) []string {
	forms := []string{literal}
	if f, err := strconv.ParseFloat(literal, 64); err == nil {
		for _, format := range []byte{'f', 'e', 'g'} {
			forms = append(forms, strconv.FormatFloat(f, format, -1, 64))
		}
	}
	return forms
}
