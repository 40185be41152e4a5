package effect

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// layer is a text as it reads when an encoding is taken off, and where each byte of it comes from.
type layer struct {
	text string
	from []int32 // of each byte, and of the end; nil: the source itself
}

// maxLayers bounds how deep encodings are taken off each other: JSON in JSON in a URL.
const maxLayers = 3

// layersOf is a text as it is, and as it reads without its encodings.
func layersOf(text string) []*layer {
	layers := []*layer{{text: text}}
	for n, depth := 0, 0; depth < maxLayers; depth++ {
		for end := len(layers); n < end; n++ {
			for _, next := range [...]*layer{layers[n].unescaped(), layers[n].unpercented()} {
				if next != nil {
					layers = append(layers, next)
				}
			}
		}
	}
	return layers
}

// source is the part of the source that a part of the layer was read from.
func (l *layer) source(r span) span {
	if l.from == nil {
		return r
	}
	return span{int(l.from[r.start]), int(l.from[r.end])}
}

// decoded returns the layer in which step replaces what stands at an offset, of that length, by some bytes;
// nil when it replaces nothing. A length of zero keeps the byte.
func (l *layer) decoded(step func(rest string) (out string, length int)) *layer {
	out := make([]byte, 0, len(l.text))
	from := make([]int32, 0, len(l.text)+1)
	changed := false
	for i := 0; i < len(l.text); {
		now, length := step(l.text[i:])
		if length == 0 {
			now, length = l.text[i:i+1], 1
		} else {
			changed = true
		}
		for range len(now) {
			from = append(from, l.origin(i))
		}
		out = append(out, now...)
		i += length
	}
	if !changed {
		return nil
	}
	return &layer{string(out), append(from, l.origin(len(l.text)))}
}

func (l *layer) origin(i int) int32 {
	if l.from == nil {
		return int32(i)
	}
	return l.from[i]
}

// unescaped takes off the escapes of a JSON string; what other languages escape reads the same.
func (l *layer) unescaped() *layer {
	if strings.IndexByte(l.text, '\\') < 0 {
		return nil
	}
	return l.decoded(func(rest string) (string, int) {
		if len(rest) < 2 || rest[0] != '\\' {
			return "", 0
		}
		switch rest[1] {
		case 'b':
			return "\b", 2
		case 'f':
			return "\f", 2
		case 'n':
			return "\n", 2
		case 'r':
			return "\r", 2
		case 't':
			return "\t", 2
		case 'u':
			return unicodeEscape(rest)
		}
		return rest[1:2], 2
	})
}

func unicodeEscape(rest string) (string, int) {
	r, ok := hexUnit(rest)
	if !ok {
		return "", 0
	}
	if utf16.IsSurrogate(r) {
		if low, ok := hexUnit(rest[6:]); ok {
			if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
				return string(both), 12
			}
		}
	}
	return string(r), 6
}

// hexUnit reads \uXXXX.
func hexUnit(s string) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(s[2:6], 16, 16)
	return rune(n), err == nil
}

// unpercented takes off percent-encoding, whoever thought which bytes must be encoded.
func (l *layer) unpercented() *layer {
	if strings.IndexByte(l.text, '%') < 0 {
		return nil
	}
	return l.decoded(func(rest string) (string, int) {
		if len(rest) < 3 || rest[0] != '%' {
			return "", 0
		}
		n, err := strconv.ParseUint(rest[1:3], 16, 8)
		if err != nil {
			return "", 0
		}
		return string([]byte{byte(n)}), 3
	})
}

// unwrapped is the layer in which base64 is of the standard alphabet and on one line.
func (l *layer) unwrapped() *layer {
	if !strings.ContainsAny(l.text, "-_\r\n") {
		return l
	}
	next := l.decoded(func(rest string) (string, int) {
		switch rest[0] {
		case '-':
			return "+", 1
		case '_':
			return "/", 1
		case '\r', '\n':
			return "", 1
		}
		return "", 0
	})
	if next == nil {
		return l
	}
	return next
}
