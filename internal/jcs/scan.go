package jcs

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// finding is something that is refused although it is well-formed JSON.
type finding struct {
	offset int
	reason string
}

// scan looks for what jsontext would let pass: numbers no double can hold (it writes the largest double
// instead), nesting and names past our limits. It is one pass without allocations and tolerates any input;
// jsontext judges the syntax afterwards.
func scan(src []byte) *finding {
	depth := 0
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == '"':
			end := stringEnd(src, i)
			if end-i-2 > MaxName && isName(src, end) {
				return &finding{i, "member name longer than 65536 bytes"}
			}
			i = end
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return &finding{i, "nested deeper than 1000 levels"}
			}
			i++
		case c == '}' || c == ']':
			depth--
			i++
		case c == '-' || '0' <= c && c <= '9':
			end, inRange := numberEnd(src, i)
			if !inRange {
				return &finding{i, "number out of the range of a double"}
			}
			i = end
		default:
			i++
		}
	}
	return nil
}

// stringEnd returns the offset past the string that starts at i.
func stringEnd(src []byte, i int) int {
	if n := bytes.IndexByte(src[i+1:], '"'); n >= 0 && bytes.IndexByte(src[i+1:i+1+n], '\\') < 0 {
		return i + n + 2
	}
	for i++; i < len(src); i++ {
		switch src[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(src)
}

func isName(src []byte, end int) bool {
	rest := bytes.TrimLeft(src[end:], " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// Literals with a fraction and no exponent are in range when they are this short.
const surelyInRange = 300

// numberEnd returns the offset past the number that starts at i. An integer literal is always in range
// because it keeps its digits.
func numberEnd(src []byte, i int) (end int, inRange bool) {
	fraction, exponent := false, false
	end = i + 1
loop:
	for ; end < len(src); end++ {
		switch c := src[end]; {
		case '0' <= c && c <= '9', c == '+', c == '-':
		case c == '.':
			fraction = true
		case c == 'e' || c == 'E':
			exponent = true
		default:
			break loop
		}
	}
	if !exponent && !(fraction && end-i > surelyInRange) {
		return end, true
	}
	_, err := strconv.ParseFloat(string(src[i:end]), 64)
	return end, !errors.Is(err, strconv.ErrRange)
}

// pointer finds the JSON pointer of the finding by reading the tokens before it once more. When the text
// is malformed before that point, it is the pointer of the last token that could be read.
func (f *finding) pointer(src []byte) string {
	dec := jsontext.NewDecoder(bytes.NewBuffer(src[:f.offset]))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return string(pending(dec))
		}
	}
}

// pending is the pointer of the value that would come next.
func pending(dec *jsontext.Decoder) jsontext.Pointer {
	at := dec.StackPointer()
	kind, n := dec.StackIndex(dec.StackDepth())
	switch {
	case kind == '[' && n > 0:
		at = at.Parent()
		fallthrough
	case kind == '[':
		return at.AppendToken(strconv.FormatInt(n, 10))
	case kind == '{' && n > 0 && n%2 == 0: // a name comes next: its object
		return at.Parent()
	default:
		return at
	}
}
