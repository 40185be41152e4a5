package effect

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// minSecret is how many bytes a value must have to be looked for elsewhere: shorter ones are everywhere.
const minSecret = 4

// Secrets are values that are kept nowhere, in whatever text they turn up: as they are, escaped as in JSON,
// percent-encoded, in base64 of either alphabet wherever it begins, and in these within each other. nil has
// none. Secrets are immutable and safe for concurrent use.
type Secrets struct {
	values []string // sorted, each once

	once  sync.Once
	index *needles
}

// With returns the secrets and more values. Values shorter than four bytes are left out.
func (s *Secrets) With(values ...string) *Secrets {
	var all []string
	if s != nil {
		all = slices.Clone(s.values)
	}
	for _, v := range values {
		if len(v) >= minSecret {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 0 || s != nil && len(all) == len(s.values) {
		return s
	}
	return &Secrets{values: all}
}

// Values are the secrets themselves, to look for them together with those of other calls.
func (s *Secrets) Values() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.values)
}

// Text returns a text with Redacted in the place of every secret.
func (s *Secrets) Text(text string) string {
	if s == nil || len(text) < minSecret {
		return text
	}
	s.once.Do(func() { s.index = newNeedles(s.values) })
	found := s.index.find(text)
	if len(found) == 0 {
		return text
	}
	var out strings.Builder
	done := 0
	for _, r := range found {
		out.WriteString(text[done:r.start])
		out.WriteString(Redacted)
		done = r.end
	}
	out.WriteString(text[done:])
	return out.String()
}

// minSecretName is how many bytes a secret must have to be looked for in names of members: shorter ones can
// be words by which a result is read, such as "text".
const minSecretName = 8

// literal is a JSON string or number as it may be kept.
func (s *Secrets) literal(raw []byte, name bool) []byte {
	if s == nil {
		return raw
	}
	switch jsontext.Value(raw).Kind() {
	case '"':
		t, ok := text(raw)
		if !ok {
			t = string(raw[1 : len(raw)-1])
		}
		if name && len(t) < minSecretName {
			return raw
		}
		if now := s.Text(t); now != t {
			quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(now, "\uFFFD"))
			if err != nil {
				return redactedValue
			}
			return quoted
		}
	case '0':
		if now := s.Text(string(raw)); now != string(raw) {
			return redactedValue
		}
	}
	return raw
}

// needles is what is looked for, found by its first bytes, so that a text is read once whatever their number.
type needles struct {
	plain *starts
	coded *starts // base64 of the standard alphabet, without the edges that depend on what stands beside it
}

type starts struct {
	by    map[[minSecret]byte][]string
	pairs [64]uint64 // hashes of the first two bytes: most places are passed by at this
}

func newStarts() *starts { return &starts{by: map[[minSecret]byte][]string{}} }

func (s *starts) add(needle string) {
	if len(needle) < minSecret {
		return
	}
	key := startOf(needle)
	if !slices.Contains(s.by[key], needle) {
		s.by[key] = append(s.by[key], needle)
		pair := pairOf(needle)
		s.pairs[pair/64] |= 1 << (pair % 64)
	}
}

func startOf(text string) [minSecret]byte { return [minSecret]byte{text[0], text[1], text[2], text[3]} }

// pairOf hashes the first two bytes to a bit of starts.pairs.
func pairOf(text string) uint16 { return (uint16(text[0])<<6 ^ uint16(text[1])) % (64 * 64) }

func newNeedles(values []string) *needles {
	n := &needles{plain: newStarts(), coded: newStarts()}
	for _, v := range values {
		for _, form := range formsOf(v) {
			n.plain.add(form)
			n.plain.add(strings.ReplaceAll(form, " ", "+")) // as forms encode it
			n.addCoded(form)
			if escaped, err := jsontext.AppendQuote(nil, form); err == nil {
				n.addCoded(string(escaped[1 : len(escaped)-1]))
			}
		}
	}
	return n
}

// formsOf is a value with what it says where it is encoded itself, and its long lines.
func formsOf(v string) []string {
	forms := []string{v}
	if decoded, err := url.PathUnescape(v); err == nil && decoded != v {
		forms = append(forms, decoded)
	}
	if decoded, ok := decode64(v); ok {
		forms = append(forms, decoded)
	}
	if trimmed := strings.TrimSpace(v); trimmed != v {
		forms = append(forms, trimmed)
	}
	if strings.ContainsRune(v, '\n') {
		for line := range strings.Lines(v) {
			if line = strings.TrimSpace(line); len(line) >= 2*minSecret {
				forms = append(forms, line)
			}
		}
	}
	return slices.DeleteFunc(forms, func(f string) bool { return len(f) < minSecret })
}

func decode64(v string) (string, bool) {
	if len(v) < 2*minSecret {
		return "", false
	}
	plain := strings.TrimRight(toStandard.Replace(v), "=")
	b, err := base64.RawStdEncoding.DecodeString(plain)
	return string(b), err == nil && utf8.Valid(b) && len(b) >= minSecret && !slices.ContainsFunc(b, func(c byte) bool { return c < ' ' && c != '\n' && c != '\t' && c != '\r' })
}

var toStandard = strings.NewReplacer("-", "+", "_", "/")

// minCoded is how long a part of base64 must be to be taken for a secret.
const minCoded = 6

// addCoded adds a value's base64 at each of the three alignments that it can have within a longer text.
func (n *needles) addCoded(v string) {
	for shift := range 3 {
		coded := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), v...))
		start := (8*shift + 5) / 6
		end := (8 * (shift + len(v))) / 6
		if end-start >= minCoded {
			n.coded.add(coded[start:end])
		}
	}
	if len(v) < minCoded { // as a whole only
		n.coded.add(base64.RawStdEncoding.EncodeToString([]byte(v)))
	}
}

// span is a part of a text.
type span struct{ start, end int }

// find returns where secrets are in a text, in order, apart from each other.
func (n *needles) find(text string) []span {
	var found []span
	for _, l := range layersOf(text) {
		for _, r := range n.plain.find(l.text, isWhole) {
			found = append(found, l.source(r))
		}
		c := l.unwrapped()
		for _, r := range n.coded.find(c.text, nil) {
			found = append(found, c.source(codedRun(c.text, r)))
		}
	}
	return merged(found)
}

// find returns where the needles are in a text and are accepted, in order.
func (s *starts) find(text string, accept func(text string, r span) bool) (found []span) {
	for i := 0; i+minSecret <= len(text); i++ {
		if pair := pairOf(text[i:]); s.pairs[pair/64]&(1<<(pair%64)) == 0 {
			continue
		}
		for _, needle := range s.by[startOf(text[i:])] {
			r := span{i, i + len(needle)}
			if strings.HasPrefix(text[i:], needle) && (accept == nil || accept(text, r)) {
				found = append(found, r)
			}
		}
	}
	return found
}

// isWhole reports whether what was found is not a short number within a longer one.
func isWhole(text string, r span) bool {
	if r.end-r.start >= 2*minSecret || strings.Trim(text[r.start:r.end], "0123456789") != "" {
		return true
	}
	before := r.start > 0 && isDigit(text[r.start-1])
	after := r.end < len(text) && isDigit(text[r.end])
	return !before && !after
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// codedRun is a part of base64 with the letters beside it, which may hold bits of the secret, and the padding.
func codedRun(text string, r span) span {
	if r.start > 0 && isCoded(text[r.start-1]) {
		r.start--
	}
	if r.end < len(text) && isCoded(text[r.end]) {
		r.end++
	}
	for r.end < len(text) && text[r.end] == '=' {
		r.end++
	}
	return r
}

func isCoded(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '+' || c == '/'
}

// merged joins what overlaps or touches.
func merged(found []span) []span {
	slices.SortFunc(found, func(a, b span) int { return a.start - b.start })
	var out []span
	for _, r := range found {
		if last := len(out) - 1; last >= 0 && r.start <= out[last].end {
			out[last].end = max(out[last].end, r.end)
			continue
		}
		out = append(out, r)
	}
	return out
}
