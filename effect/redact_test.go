package effect_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
)

func TestRedaction_Keep(t *testing.T) {
	for name, c := range map[string]struct {
		places    []string
		src, want string
	}{
		"nothing is named":               {nil, `{"token":"sk-live-1"}`, `{"token":"sk-live-1"}`},
		"a pointer":                      {[]string{"/auth/token"}, `{"auth":{"token":"sk-live-1"},"n":1}`, `{"auth":{"token":"[redacted]"},"n":1}`},
		"a pointer with escapes":         {[]string{"/a~1b/c~0d"}, `{"a/b":{"c~d":"secret"}}`, `{"a/b":{"c~d":"[redacted]"}}`},
		"a name, however deep":           {[]string{"token"}, `{"a":[{"token":"t1"},{"b":{"token":2}}]}`, `{"a":[{"token":"[redacted]"},{"b":{"token":"[redacted]"}}]}`},
		"any element":                    {[]string{"/cards/*/number"}, `{"cards":[{"number":41},{"number":"x","cvc":1}]}`, `{"cards":[{"number":"[redacted]"},{"number":"[redacted]","cvc":1}]}`},
		"any member":                     {[]string{"/env/*"}, `{"env":{"A":"x","B":{"c":1}},"A":"y"}`, `{"env":{"A":"[redacted]","B":"[redacted]"},"A":"y"}`},
		"one element":                    {[]string{"/list/1"}, `{"list":[1,2,3]}`, `{"list":[1,"[redacted]",3]}`},
		"a whole subtree":                {[]string{"auth"}, `{"auth":{"user":"alice","pass":"hunter22"},"to":"alice"}`, `{"auth":"[redacted]","to":"[redacted]"}`},
		"the value elsewhere":            {[]string{"token"}, `{"note":"use sk-live-1 now","token":"sk-live-1"}`, `{"note":"use [redacted] now","token":"[redacted]"}`},
		"the value in a name":            {[]string{"token"}, `{"token":"sk-live-12","by":{"sk-live-12":true}}`, `{"token":"[redacted]","by":{"[redacted]":true}}`},
		"a number elsewhere":             {[]string{"card"}, `{"card":4111111111111111,"text":"4111111111111111","again":41111111111111110}`, `{"card":"[redacted]","text":"[redacted]","again":"[redacted]"}`},
		"a short number in a longer one": {[]string{"pin"}, `{"pin":1234,"id":912345,"said":"pin 1234."}`, `{"pin":"[redacted]","id":912345,"said":"pin [redacted]."}`},
		"white space stays":              {[]string{"a"}, "{ \"a\" : 1 ,\n \"b\":2.0 }", "{ \"a\" : \"[redacted]\" ,\n \"b\":2.0 }"},
		"an absent place":                {[]string{"/a/b", "c"}, `{"a":[1],"d":"c"}`, `{"a":[1],"d":"c"}`},
		"JSON within a string":           {[]string{"token"}, `{"text":"{\"token\": \"sk-live-1\"}"}`, `{"text":"{\"token\": \"[redacted]\"}"}`},
		"what is no JSON":                {[]string{"a"}, `{"a":`, `"[redacted]"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := effect.NewRedaction(c.places).Keep(json.RawMessage(c.src), nil)
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("Keep (-want +got)\n%s", diff)
			}
		})
	}
}

// secret has what encodings spell otherwise: quotes, a slash, a percent sign, a space, letters beyond ASCII.
const secret = `p%ss "w/ö+rd\ canary-7f3a`

func TestSecrets_Text(t *testing.T) {
	quoted, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := json.Marshal(string(quoted))
	if err != nil {
		t.Fatal(err)
	}
	every := func(s string) string {
		var out strings.Builder
		for _, b := range []byte(s) {
			out.WriteString("%" + string("0123456789abcdef"[b>>4]) + string("0123456789abcdef"[b&15]))
		}
		return out.String()
	}
	forms := map[string]string{
		"as it is":                        secret,
		"in JSON":                         string(quoted),
		"in JSON in JSON":                 string(twice),
		"in JSON of ASCII":                strings.ReplaceAll(string(quoted), "ö", `\u00F6`),
		"in a query":                      url.QueryEscape(secret),
		"in a path":                       url.PathEscape(secret),
		"every byte as a percentage":      every(secret),
		"in a query in JSON in a query":   url.QueryEscape(`"` + url.QueryEscape(secret) + `"`),
		"base64 in a query":               url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(secret))),
		"base64 of JSON":                  base64.StdEncoding.EncodeToString(quoted),
		"base64 in lines":                 wrap(base64.StdEncoding.EncodeToString([]byte("some words before it, " + secret + " and more after it"))),
		"base64, URL, not padded, JSON":   base64.RawURLEncoding.EncodeToString([]byte(`{"a":1,"b":` + string(quoted) + `}`)),
		"between letters without a space": "abc" + secret + "def",
	}
	for _, before := range []string{"", "a", "ab", "abc", "user:"} {
		for _, after := range []string{"", "z", "zy"} {
			whole := []byte(before + secret + after)
			forms["base64 of "+before+"…"+after] = base64.StdEncoding.EncodeToString(whole)
			forms["base64 not padded of "+before+"…"+after] = base64.RawStdEncoding.EncodeToString(whole)
			forms["base64url of "+before+"…"+after] = base64.URLEncoding.EncodeToString(whole)
		}
	}
	s := (*effect.Secrets)(nil).With(secret)
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			got := s.Text("it was <" + form + "> they said")
			if !strings.HasPrefix(got, "it was <") || !strings.HasSuffix(got, "> they said") || !strings.Contains(got, effect.Redacted) {
				t.Errorf("Text(%q) = %q", form, got)
			}
			if rest := leak(got); rest != "" {
				t.Errorf("Text(%q) = %q, which still tells %q", form, got, rest)
			}
		})
	}
}

// leak is what can still be read of the secret in a text, whichever way it is decoded.
func leak(text string) string {
	texts := []string{text}
	if s, err := url.QueryUnescape(text); err == nil {
		texts = append(texts, s)
	}
	for _, t := range texts {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			for shift := range 4 {
				run := strings.Trim(t[min(len(t), len("it was <")+shift):], "=")
				if b, err := enc.DecodeString(run[:len(run)/4*4]); err == nil {
					texts = append(texts, string(b))
				}
			}
		}
	}
	for _, t := range texts {
		for i := 0; i+5 <= len(secret); i++ {
			if part := secret[i : i+5]; strings.Contains(t, part) {
				return part
			}
		}
	}
	return ""
}

func wrap(s string) string {
	var out strings.Builder
	for len(s) > 20 {
		out.WriteString(s[:20] + "\r\n")
		s = s[20:]
	}
	return out.String() + s
}

func TestSecrets_leaveOtherTextsAlone(t *testing.T) {
	s := (*effect.Secrets)(nil).With("hunter22", "abc", "ö", "")
	for _, text := range []string{"", "hunter2", "HUNTER22", "abc", "100% of \\ö", "aHVudGVyMg==", `{"abc":"ö"}`} {
		if got := s.Text(text); got != text {
			t.Errorf("Text(%q) = %q", text, got)
		}
		if got := (*effect.Secrets)(nil).Text(text); got != text {
			t.Errorf("without secrets: Text(%q) = %q", text, got)
		}
	}
}

func TestSecrets_ofAnEncodedValueAreWhatItSays(t *testing.T) {
	s := (*effect.Secrets)(nil).With(base64.StdEncoding.EncodeToString([]byte("canary-in-base64")), "Canary%20in%20percents", "first line of it\nsecond line of it\n")
	for _, text := range []string{"canary-in-base64", "Canary in percents", "Canary+in+percents", "second line of it"} {
		if got := s.Text(text); got != effect.Redacted {
			t.Errorf("Text(%q) = %q", text, got)
		}
	}
}

// withoutSecrets is what is kept of a text beside no places.
func withoutSecrets(s *effect.Secrets, src string) json.RawMessage {
	var nowhere *effect.Redaction
	kept, _ := nowhere.Keep(json.RawMessage(src), s)
	return kept
}

func TestRedaction_Keep_knownSecretsBesideNoPlaces(t *testing.T) {
	s := (*effect.Secrets)(nil).With("sk-live-1", "12345678")
	const src = `{"content":[{"type":"text","text":"{\"token\":\"sk-live-1\",\"n\": 1.50}"}], "n":9123456789, "big":9007199254740993}`
	const want = `{"content":[{"type":"text","text":"{\"token\":\"[redacted]\",\"n\": 1.50}"}], "n":"[redacted]", "big":9007199254740993}`
	if diff := cmp.Diff(want, string(withoutSecrets(s, src))); diff != "" {
		t.Errorf("Keep (-want +got)\n%s", diff)
	}
}

func TestRedaction_Fill(t *testing.T) {
	const original = `{"to":"alice","auth":{"token":"sk-live-1","scope":["a"]},"note":"with sk-live-1","cards":[{"n":1},{"n":2}],"at":1}`
	r := effect.NewRedaction([]string{"/auth/token", "/cards/*/n"})
	kept, _ := r.Keep(json.RawMessage(original), nil)
	for name, c := range map[string]struct{ edit, with, want string }{
		"nothing is edited":       {"", "", original},
		"another value beside":    {`"alice"`, `"bob"`, strings.Replace(original, "alice", "bob", 1)},
		"a place is taken away":   {`"token":"[redacted]",`, ``, strings.Replace(original, `"token":"sk-live-1",`, ``, 1)},
		"a place is given anew":   {`"token":"[redacted]"`, `"token":"sk-2"`, strings.Replace(original, `"token":"sk-live-1"`, `"token":"sk-2"`, 1)},
		"a text beside is edited": {`"with [redacted]"`, `"without"`, strings.Replace(original, "with sk-live-1", "without", 1)},
		"a volatile value":        {`"at":1`, `"at":0`, strings.Replace(original, `"at":1`, `"at":0`, 1)},
		"written otherwise":       {`{"to":"alice",`, "{ \"to\" : \"al\\u0069ce\" ,", original},
	} {
		t.Run(name, func(t *testing.T) {
			edited := strings.Replace(string(kept), c.edit, c.with, 1)
			if c.edit != "" && edited == string(kept) {
				t.Fatalf("%s has no %s", kept, c.edit)
			}
			got, err := r.Fill(json.RawMessage(edited), json.RawMessage(original))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(canonical(t, c.want), canonical(t, string(got))); diff != "" {
				t.Errorf("Fill (-want +got)\n%s", diff)
			}
		})
	}
}

func canonical(t *testing.T, src string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(src), &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestRedaction_Fill_refusesWhatItCannotFill(t *testing.T) {
	r := effect.NewRedaction([]string{"token"})
	for name, c := range map[string]struct{ kept, original, pointer string }{
		"no such value in the call":   {`{"token":"[redacted]"}`, `{}`, "/arguments/token"},
		"a marker that was put there": {`{"token":"[redacted]","to":"[redacted]"}`, `{"token":"x","to":"alice"}`, "/arguments/to"},
		"one element too many":        {`{"l":[{"token":"[redacted]"},{"token":"[redacted]"}]}`, `{"l":[{"token":"x"}]}`, "/arguments/l/0/token"},
		"one element too few":         {`{"l":[{"token":"[redacted]"}]}`, `{"l":[{"token":"x"},{"token":"y"}]}`, "/arguments/l/0/token"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Fill(json.RawMessage(c.kept), json.RawMessage(c.original))
			var bad *effect.InvalidError
			if !errors.As(err, &bad) || bad.Pointer != c.pointer {
				t.Errorf("Fill: %v, want an InvalidError at %s", err, c.pointer)
			}
		})
	}
}

func FuzzSecrets_Text(f *testing.F) {
	f.Add("sk-live-1", `a \u0073k-live-1 %73k-live-1`, "b")
	f.Fuzz(func(t *testing.T, secret, before, after string) {
		s := (*effect.Secrets)(nil).With(secret)
		got := s.Text(before + secret + after)
		long := len(secret) >= 8
		if long && !strings.Contains(effect.Redacted, secret) && !strings.Contains(before, secret) && !strings.Contains(after, secret) &&
			strings.Contains(strings.ReplaceAll(got, effect.Redacted, ""), secret) && !strings.Contains(before+after, secret) {
			t.Errorf("Text(%q) = %q still has %q", before+secret+after, got, secret)
		}
		withoutSecrets(s, before)
	})
}

func TestParsePolicy_placesThatAreNoPointersAreRefused(t *testing.T) {
	for _, place := range []string{"$.card.number", "$['card']", "/a/~2", ""} {
		text := "version: 1\ntools:\n  - {tool: pay, redact: [\"" + place + "\"]}\n"
		if _, err := effect.ParsePolicy("undolog.yaml", []byte(text)); err == nil {
			t.Errorf("%q was taken for a place, and would redact nothing", place)
		}
	}
	for _, place := range []string{"card", "/card/*/number", "$", "$ref", "a.b"} {
		text := "version: 1\ntools:\n  - {tool: pay, redact: [\"" + place + "\"]}\n"
		if _, err := effect.ParsePolicy("undolog.yaml", []byte(text)); err != nil {
			t.Errorf("%q: %v", place, err)
		}
	}
}
