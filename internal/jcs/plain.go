package jcs

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Valid reports whether a JSON text has one meaning to every reader: it is well formed, and free of
// duplicate member names, lone surrogates and invalid UTF-8.
func Valid(src []byte) bool {
	p := plains.Get().(*plain)
	defer plains.Put(p)
	return p.read(src) || jsontext.Value(src).IsValid()
}

// plain writes the canonical form of texts as programs send them: names of ASCII without escapes, strings
// with no escape but the short ones, plain numbers, moderate nesting. It is several times as fast as
// jsontext, and decides nothing about any other text: read reports false, and jsontext judges.
type plain struct {
	src     []byte
	at      int
	dst     []byte
	members []plainMember // of the objects under way, the innermost last
	sorted  []byte
}

// plainMember is a member as offsets into dst. The name has no quotes, the end is that of its value.
type plainMember struct{ start, nameEnd, end int }

const (
	plainDepth = 64
	plainKept  = 64 << 10 // the largest buffer that is kept for the next text
)

var plains = sync.Pool{New: func() any { return new(plain) }}

// read leaves the canonical form in p.dst; false when the text is not plain.
func (p *plain) read(src []byte) bool {
	if cap(p.dst) > plainKept {
		*p = plain{}
	}
	p.src, p.at, p.dst, p.members = src, 0, slices.Grow(p.dst[:0], len(src)), p.members[:0]
	ok := p.value(0) && p.peek() == 0 && p.at == len(src)
	p.src = nil
	return ok
}

// peek skips white space and returns the byte after it; 0 at the end.
func (p *plain) peek() byte {
	for ; p.at < len(p.src); p.at++ {
		switch c := p.src[p.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (p *plain) value(depth int) bool {
	switch c := p.peek(); c {
	case '"':
		return p.text(false)
	case '{':
		return depth < plainDepth && p.object(depth+1)
	case '[':
		return depth < plainDepth && p.array(depth+1)
	case 't':
		return p.literal("true")
	case 'f':
		return p.literal("false")
	case 'n':
		return p.literal("null")
	default:
		return p.number()
	}
}

func (p *plain) literal(s string) bool {
	if !bytes.HasPrefix(p.src[p.at:], []byte(s)) {
		return false
	}
	p.dst = append(p.dst, s...)
	p.at += len(s)
	return true
}

// text copies a string. A name is ASCII without escapes, so that bytes and UTF-16 sort alike.
func (p *plain) text(name bool) bool {
	end, escaped := p.textEnd()
	if end < 0 || name && (escaped || end-p.at-2 > MaxName) {
		return false
	}
	content := p.src[p.at+1 : end-1]
	control, ascii := survey(content)
	if control || !ascii && (name || !utf8.Valid(content)) {
		return false
	}
	p.dst = append(p.dst, p.src[p.at:end]...)
	p.at = end
	return true
}

// textEnd is the offset past the string that starts here; negative when it has an escape that the
// canonical form spells otherwise. However many escapes there are, every byte is looked at twice at most.
func (p *plain) textEnd() (end int, escaped bool) {
	quote := 0
	for at := p.at + 1; ; escaped = true {
		if quote < at {
			n := bytes.IndexByte(p.src[at:], '"')
			if n < 0 {
				return -1, escaped
			}
			quote = at + n
		}
		slash := bytes.IndexByte(p.src[at:quote], '\\')
		if slash < 0 {
			return quote + 1, escaped
		}
		switch p.src[at+slash+1] {
		case '"', '\\', 'b', 'f', 'n', 'r', 't':
		default:
			return -1, escaped
		}
		at += slash + 2
	}
}

// survey looks at eight bytes at a time for control characters and for bytes that are not ASCII.
func survey(b []byte) (control, ascii bool) {
	const high, space = 0x8080808080808080, 0x2020202020202020
	var below, above uint64
	for ; len(b) >= 8; b = b[8:] {
		w := binary.LittleEndian.Uint64(b)
		below |= (w - space) &^ w // a borrow from a lower byte can only follow a byte that is below itself
		above |= w
	}
	for _, c := range b {
		w := uint64(c) | space&^0xff
		below |= (w - space) &^ w
		above |= uint64(c)
	}
	return below&high != 0, above&high == 0
}

// number copies an integer and writes a plain fraction as ECMAScript does.
func (p *plain) number() bool {
	start := p.at
	i := start
	if i < len(p.src) && p.src[i] == '-' {
		i++
	}
	first := i
	i = p.digits(i)
	if i == first || p.src[first] == '0' && i > first+1 {
		return false
	}
	if i == len(p.src) || p.src[i] != '.' {
		p.at = i
		p.dst = append(p.dst, p.src[start:i]...)
		return p.src[first] != '0' || first == start // -0 is for others
	}
	end := p.digits(i + 1)
	if end == i+1 {
		return false
	}
	p.at = end
	return p.fraction(p.src[start:end])
}

func (p *plain) digits(i int) int {
	for i < len(p.src) && '0' <= p.src[i] && p.src[i] <= '9' {
		i++
	}
	return i
}

// fraction writes a number whose digits ECMAScript gives without an exponent.
func (p *plain) fraction(literal []byte) bool {
	const longest = 64
	if len(literal) > longest {
		return false
	}
	f, err := strconv.ParseFloat(string(literal), 64)
	if size := math.Abs(f); err != nil || size < 1e-6 || size >= 1e21 {
		return false
	}
	p.dst = strconv.AppendFloat(p.dst, f, 'f', -1, 64)
	return true
}

func (p *plain) array(depth int) bool {
	p.mark('[')
	if p.peek() == ']' {
		return p.close(']')
	}
	for {
		if !p.value(depth) {
			return false
		}
		switch p.peek() {
		case ',':
			p.mark(',')
		case ']':
			return p.close(']')
		default:
			return false
		}
	}
}

func (p *plain) object(depth int) bool {
	p.mark('{')
	if p.peek() == '}' {
		return p.close('}')
	}
	first := len(p.members)
	for {
		if !p.member(depth) {
			return false
		}
		switch p.peek() {
		case ',':
			p.mark(',')
		case '}':
			return p.sort(p.members[first:]) && p.close('}')
		default:
			return false
		}
	}
}

func (p *plain) member(depth int) bool {
	if p.peek() != '"' {
		return false
	}
	m := plainMember{start: len(p.dst) + 1}
	if !p.text(true) || p.peek() != ':' {
		return false
	}
	m.nameEnd = len(p.dst) - 1
	p.mark(':')
	if !p.value(depth) {
		return false
	}
	m.end = len(p.dst)
	p.members = append(p.members, m)
	return true
}

// sort brings the members of the object that ends here into order and forgets them; false when two have
// one name.
func (p *plain) sort(members []plainMember) bool {
	start, ordered := members[0].start-1, true
	for i := 1; i < len(members) && ordered; i++ {
		ordered = bytes.Compare(p.name(members[i-1]), p.name(members[i])) < 0
	}
	p.members = p.members[:len(p.members)-len(members)]
	if ordered {
		return true
	}
	slices.SortFunc(members, func(a, b plainMember) int {
		return cmp.Or(bytes.Compare(p.name(a), p.name(b)), cmp.Compare(a.start, b.start))
	})
	p.sorted = p.sorted[:0]
	for i, m := range members {
		if i > 0 {
			if bytes.Equal(p.name(members[i-1]), p.name(m)) {
				return false
			}
			p.sorted = append(p.sorted, ',')
		}
		p.sorted = append(p.sorted, p.dst[m.start-1:m.end]...)
	}
	copy(p.dst[start:], p.sorted)
	return true
}

func (p *plain) name(m plainMember) []byte { return p.dst[m.start:m.nameEnd] }

// mark and close copy the punctuation that stands here.
func (p *plain) mark(c byte) {
	p.dst = append(p.dst, c)
	p.at++
}

func (p *plain) close(c byte) bool {
	p.mark(c)
	return true
}
