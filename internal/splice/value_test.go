package splice_test

import (
	"encoding/json"
	"testing"

	"github.com/undolog/undolog/internal/splice"
)

func TestKind(t *testing.T) {
	for value, want := range map[string]byte{"": 0, " \n": 0, "\t{}": '{', " [": '[', `"a"`: '"', "-1": '-', "null": 'n', "7": '7'} {
		if got := splice.Kind([]byte(value)); got != want {
			t.Errorf("Kind(%q) = %q, want %q", value, got, want)
		}
	}
}

func TestText(t *testing.T) {
	for value, want := range map[string]string{
		`"a"`: "a", ` "a\u00e9\n"`: "aé\n", `""`: "", `"\ud800x"`: "\uFFFDx", "\"\xff\"": "\uFFFD",
	} {
		if got, ok := splice.Text([]byte(value)); !ok || got != want {
			t.Errorf("Text(%s) = %q, %v, want %q", value, got, ok, want)
		}
	}
	for _, value := range []string{"", "null", "1", `"a`, `"a" 1`, `{"a":1}`, `"\x"`} {
		if got, ok := splice.Text([]byte(value)); ok {
			t.Errorf("Text(%s) = %q, want none", value, got)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, s := range []string{"", "a", `"\`, "<&>\u2028", "a\x00\n", "é😀"} {
		quoted := splice.Quote(s)
		if got, ok := splice.Text(quoted); !ok || got != s || !json.Valid(quoted) {
			t.Errorf("Quote(%q) = %s, which says %q", s, quoted, got)
		}
	}
	if got, _ := splice.Text(splice.Quote("\xff")); got != "\uFFFD" {
		t.Errorf("broken UTF-8 becomes %q", got)
	}
}

func TestEncode(t *testing.T) {
	got, err := splice.Encode(struct {
		A string          `json:"a"`
		B json.RawMessage `json:"b"`
	}{"<&>", json.RawMessage(`{"c":"<"}`)})
	if want := `{"a":"<&>","b":{"c":"<"}}`; err != nil || string(got) != want {
		t.Errorf("Encode = %s, %v, want %s", got, err, want)
	}
}
