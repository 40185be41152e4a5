package interceptors

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// longestBrief is what is kept of a text, in bytes.
const longestBrief = 1000

// Brief is what logs and records have of a text that somebody else wrote: its first line that is not blank, of
// at most 1000 bytes, without control characters. What hosts say of their failures may be of any length, and
// hold stacks and payloads in the lines that follow.
func Brief(text string) string {
	text = strings.TrimSpace(text)
	line, _, cut := strings.Cut(text, "\n")
	if len(line) > longestBrief {
		line, cut = line[:longestBrief], true
		for r, size := utf8.DecodeLastRuneInString(line); r == utf8.RuneError && size == 1; r, size = utf8.DecodeLastRuneInString(line) {
			line = line[:len(line)-1] // half of a letter, or what was none
		}
	}
	line = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, line) // and what is no UTF-8 becomes U+FFFD
	if cut {
		return strings.TrimSpace(line) + "…"
	}
	return line
}
