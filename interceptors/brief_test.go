package interceptors_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/undolog/undolog/interceptors"
)

func TestBrief(t *testing.T) {
	long := strings.Repeat("ä", 800)
	for in, want := range map[string]string{
		"":                                     "",
		"as it is":                             "as it is",
		"\n\n  the first line  \nstack\nof it": "the first line…",
		"no line follows\n":                    "no line follows",
		"carriage\r\nreturns":                  "carriage…",
		"a\tb\x00c":                            "a b c",
		"\xff":                                 "\uFFFD",
		long:                                   strings.Repeat("ä", 500) + "…",
		"x" + long:                             "x" + strings.Repeat("ä", 499) + "…",
		strings.Repeat("\xff", 2000):           "…",
	} {
		if got := interceptors.Brief(in); got != want {
			t.Errorf("Brief(%.20q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzBrief(f *testing.F) {
	f.Add("a\nb")
	f.Add(strings.Repeat("€", 200))
	f.Fuzz(func(t *testing.T, in string) {
		got := interceptors.Brief(in)
		if !utf8.ValidString(got) || len(got) > 3*1000+len("…") || strings.ContainsAny(got, "\n\r\x00\x1b") {
			t.Errorf("Brief(%q) = %q", in, got)
		}
	})
}
