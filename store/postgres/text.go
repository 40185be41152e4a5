package postgres

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// mark begins an escape: U+0001 and two hex digits stand for the byte that PostgreSQL would refuse in a
// text, or for U+0001 itself.
const mark = '\x01'

// text is a string as the database has it. Nearly all are as they are.
func text(s string) string {
	if utf8.ValidString(s) && !strings.ContainsAny(s, "\x00\x01") {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == 0 || r == mark || r == utf8.RuneError && size == 1 {
			b.WriteByte(mark)
			b.WriteString(hex.EncodeToString([]byte{s[0]}))
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

// untext is the string that text was given.
func untext(s string) string {
	if !strings.ContainsRune(s, mark) {
		return s
	}
	var b strings.Builder
	for {
		plain, rest, found := strings.Cut(s, string(mark))
		b.WriteString(plain)
		if !found || len(rest) < 2 {
			return b.String()
		}
		if c, err := hex.DecodeString(rest[:2]); err == nil {
			b.Write(c)
		}
		s = rest[2:]
	}
}
