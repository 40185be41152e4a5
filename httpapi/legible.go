package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
)

// legible is JSON laid out for people, with every digit as it is. What the eye does not see, or sees in another
// order than it stands, is written as an escape; so it is JSON still, of the same value.
func legible(raw json.RawMessage) string {
	v := jsontext.Value(strings.Clone(string(raw)))
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		return visible(string(raw))
	}
	return visible(string(v))
}

// previewLength is how many characters of a call's arguments stand in a list.
const previewLength = 200

// preview is the beginning of JSON as one line, or that it is no longer kept.
func preview(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "(pruned)"
	}
	line := []rune(visible(string(raw[:min(len(raw), 4*previewLength)])))
	if len(line) > previewLength {
		return string(line[:previewLength]) + "…"
	}
	return string(line)
}

func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n', r == ' ', unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.In(r, unicode.Variation_Selector, hidden):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// hidden are letters and marks that show nothing: fillers, which Unicode counts among the graphic characters.
var hidden = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x034f, Hi: 0x034f, Stride: 1}, {Lo: 0x115f, Hi: 0x1160, Stride: 1}, {Lo: 0x17b4, Hi: 0x17b5, Stride: 1},
	{Lo: 0x2800, Hi: 0x2800, Stride: 1}, {Lo: 0x3164, Hi: 0x3164, Stride: 1}, {Lo: 0xffa0, Hi: 0xffa0, Stride: 1},
}}
