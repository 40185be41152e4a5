package yamlfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/internal/yamlfile"
)

const text = `version: 1
entries:
  - name: a
    secret: s3cret
    by:
      any: {colour: red}
`

var schema = yamlfile.NewSchema("https://example.com/x.json", `{
  "$id": "https://example.com/x.json", "type": "object", "required": ["version"], "additionalProperties": false,
  "properties": {"version": {"const": 1}, "entries": {"type": "array", "items": {"$ref": "#/$defs/entry"}}},
  "$defs": {
    "entry": {"type": "object", "additionalProperties": false, "properties": {
      "name": {"type": "string"}, "secret": {"type": "string", "pattern": "^env:"},
      "by": {"type": "object", "additionalProperties": {"$ref": "#/$defs/thing"}}}},
    "thing": {"type": "object", "additionalProperties": false, "properties": {"colour": {"enum": ["red", "blue"]}}}
  }
}`, yamlfile.Words{
	Pattern: func(string) string { return "write env:NAME" },
	Unknown: func(location []string, name string) string {
		if name == "later" {
			return "later is reserved in " + strings.Join(location, "/")
		}
		return ""
	},
	Secret: func(location []string) bool { return location[len(location)-1] == "secret" },
})

func TestRead_Places(t *testing.T) {
	f, err := yamlfile.Read("x.yaml", "thing", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"version":1,"entries":[{"name":"a","secret":"s3cret","by":{"any":{"colour":"red"}}}]}`, string(f.JSON)); diff != "" {
		t.Errorf("JSON (-want +got)\n%s", diff)
	}
	got := []yamlfile.Place{f.Key("entries", "0", "by"), f.Value("entries", "0"), f.Value("entries", "0", "by", "any", "colour"), f.Key("nowhere")}
	if diff := cmp.Diff([]yamlfile.Place{{5, 5}, {3, 5}, {6, 21}, {}}, got); diff != "" {
		t.Errorf("places (-want +got)\n%s", diff)
	}
	if !f.Has("entries", "0", "name") || f.Has("entries", "1") {
		t.Error("what is there and what is not is mistaken")
	}
}

func TestSchema_Check(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"nearest name", strings.Replace(text, "colour", "color", 1), `x.yaml:6:13: unknown field "color": did you mean "colour"?`},
		{"no near name", strings.Replace(text, "name:", "zzz:", 1), `x.yaml:3:5: unknown field "zzz": known here are by, name, secret`},
		{"a reserved one", strings.Replace(text, "name:", "later:", 1), `x.yaml:3:5: later is reserved in entries/0`},
		{"a choice", strings.Replace(text, "red", "green", 1), `x.yaml:6:21: colour is "green": write red or blue`},
		{"a secret is not shown", text, `x.yaml:4:13: secret is something else: write env:NAME`},
		{"the kind of file", "- 1\n", "x.yaml:1:1: the thing is a list: it must be a mapping"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := tt.text
			if tt.name != "a secret is not shown" {
				file = strings.Replace(file, "s3cret", "env:X", 1)
			}
			f, err := yamlfile.Read("x.yaml", "thing", []byte(file))
			if err != nil {
				t.Fatal(err)
			}
			err = schema.Check(f)
			var one *yamlfile.Error
			if !errors.As(err, &one) || err.Error() != tt.want {
				t.Errorf("error %q, want %q", err, tt.want)
			}
		})
	}
}

func TestRead_RefusesWhatIsNoPlainFile(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "an alias": "a: &x 1\nb: *x\n", "two documents": "a: 1\n---\nb: 2\n", "a name twice": "a: 1\na: 2\n",
		"a NUL byte": "a: \x00\n", "deep nesting": strings.Repeat("[", 40) + strings.Repeat("]", 40),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := yamlfile.Read("x.yaml", "thing", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), "x.yaml") {
				t.Errorf("error %v", err)
			}
		})
	}
}
