package gateway

import (
	"bytes"
	"encoding/json"
)

// scanner reads a message byte by byte without keeping it: how deep it nests, how long its longest
// member name is, and the id and method of its envelope. It works on pieces, on broken JSON and on any
// size, which is what an answer under the right id needs when the message itself is refused. It judges
// nothing; ParseMessage does.
type scanner struct {
	size        int64
	depth       int
	deepest     int
	longestName int64

	inString  bool
	escaped   bool
	stringLen int64

	object  bool   // the message is an object
	wants   bool   // the next string at the envelope's level is a member name
	name    []byte // of the envelope's member under way, raw and bounded
	value   []byte // of the member under way, raw and bounded
	keep    bool   // the member's value is to be kept
	rawID   []byte
	rawName []byte // of the method
}

const maxKept = maxID + 1

// scan takes the next piece of the message.
func (s *scanner) scan(p []byte) {
	s.size += int64(len(p))
	for i := 0; i < len(p); i++ {
		c := p[i]
		if s.inString {
			i = s.scanString(p, i)
			continue
		}
		switch c {
		case '"':
			s.inString, s.stringLen = true, 1
			if s.depth == 1 && s.wants {
				s.name = append(s.name[:0], c)
			}
			s.keepByte(c)
		case '{', '[':
			s.open(c)
		case '}', ']':
			s.close(c)
		case ':':
			s.colon(c)
		case ',':
			s.comma(c)
		case ' ', '\t', '\r', '\n':
		default:
			s.keepByte(c)
		}
	}
}

// scanString takes the bytes of a string from p[i] on and returns the index of the last one taken.
func (s *scanner) scanString(p []byte, i int) int {
	start, quote := i, -1
	for i < len(p) {
		if s.escaped {
			s.escaped = false
			i++
			continue
		}
		if quote < i {
			quote = indexFrom(p, i, '"')
		}
		if b := indexFrom(p[:quote], i, '\\'); b < quote {
			s.escaped = true
			i = b + 1
			continue
		}
		if i = quote; i < len(p) {
			s.inString = false
			i++
		}
		break
	}
	part := p[start:i]
	s.stringLen += int64(len(part))
	if s.depth == 1 && s.wants {
		s.name = appendBounded(s.name, part)
	} else if s.keep {
		s.value = appendBounded(s.value, part)
	}
	return i - 1
}

// indexFrom returns the index of the first c in p from i on, len(p) when there is none.
func indexFrom(p []byte, i int, c byte) int {
	if at := bytes.IndexByte(p[i:], c); at >= 0 {
		return i + at
	}
	return len(p)
}

func (s *scanner) open(c byte) {
	s.keepByte(c)
	s.depth++
	s.deepest = max(s.deepest, s.depth)
	if s.depth == 1 {
		s.object, s.wants = c == '{', c == '{'
	}
}

func (s *scanner) close(c byte) {
	s.depth--
	if s.depth == 0 {
		s.endMember()
		return
	}
	s.keepByte(c)
}

func (s *scanner) colon(c byte) {
	s.longestName = max(s.longestName, s.stringLen)
	if s.depth != 1 || !s.wants {
		return
	}
	s.wants = false
	switch unquote(s.name) {
	case "id":
		s.keep = s.rawID == nil
	case "method":
		s.keep = s.rawName == nil
	}
	s.value = s.value[:0]
}

func (s *scanner) comma(c byte) {
	if s.depth == 1 && s.object {
		s.endMember()
		s.wants = true
		return
	}
	s.keepByte(c)
}

func (s *scanner) endMember() {
	if !s.keep {
		return
	}
	s.keep = false
	kept := append([]byte(nil), s.value...)
	if unquote(s.name) == "id" {
		s.rawID = kept
	} else {
		s.rawName = kept
	}
}

func (s *scanner) keepByte(c byte) {
	if s.keep && len(s.value) < maxKept {
		s.value = append(s.value, c)
	}
}

func appendBounded(b, part []byte) []byte {
	return append(b, part[:min(len(part), maxKept-min(len(b), maxKept))]...)
}

// id returns the envelope's id when it is one, else nil.
func (s *scanner) id() json.RawMessage {
	if !validID(s.rawID) {
		return nil
	}
	return s.rawID
}

func (s *scanner) method() string {
	if len(s.rawName) >= maxKept {
		return ""
	}
	return unquote(s.rawName)
}

func (s *scanner) refusal(code int, message string) *RefusedError {
	return &RefusedError{ID: s.id(), Method: s.method(), Code: code, Message: message}
}

// truncated is what a Conn returns for a message above its limit.
func (s *scanner) truncated() *Message {
	return &Message{ID: s.id(), Method: s.method(), Truncated: true, Size: s.size}
}
