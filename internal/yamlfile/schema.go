package yamlfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Schema is the JSON Schema of a kind of file, with the words for what it refuses. Its text is trusted:
// New panics on one that cannot be compiled.
type Schema struct {
	compiled *jsonschema.Schema
	root     schemaNode
	defs     map[string]schemaNode
	words    Words
}

// Words are what a Schema says beyond what every file is told. nil funcs say nothing.
type Words struct {
	// Pattern says what a text that a pattern refuses must be. name is the field's.
	Pattern func(name string) string
	// Unknown says what to do about a field that the schema does not have; empty: the usual.
	Unknown func(location []string, name string) string
	// Secret says that what stands at a location is shown to nobody.
	Secret func(location []string) bool
}

// schemaNode is as much of a schema as tells which fields may stand where.
type schemaNode struct {
	Ref        string                `json:"$ref"`
	Properties map[string]schemaNode `json:"properties"`
	Items      *schemaNode           `json:"items"`
	Others     json.RawMessage       `json:"additionalProperties"`
}

// NewSchema compiles a schema, whose $id must be id.
func NewSchema(id, text string, words Words) *Schema {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		panic(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(id, doc); err != nil {
		panic(err)
	}
	s := &Schema{compiled: compiler.MustCompile(id), words: words}
	var defs struct {
		Defs map[string]schemaNode `json:"$defs"`
	}
	if err := errors.Join(json.Unmarshal([]byte(text), &s.root), json.Unmarshal([]byte(text), &defs)); err != nil {
		panic(err)
	}
	s.defs = defs.Defs
	return s
}

// fields are the names that may stand in the object at a location.
func (s *Schema) fields(location []string) []string {
	at := s.root
	for _, token := range location {
		at = s.follow(at)
		next, known := at.Properties[token]
		switch {
		case known:
			at = next
		case at.Items != nil:
			at = *at.Items
		default: // a mapping with names of the user's choice
			var other schemaNode
			_ = json.Unmarshal(at.Others, &other) // false and absent: no fields are known
			at = other
		}
	}
	return slices.Sorted(maps.Keys(s.follow(at).Properties))
}

func (s *Schema) follow(n schemaNode) schemaNode {
	if name, ok := strings.CutPrefix(n.Ref, "#/$defs/"); ok {
		return s.follow(s.defs[name])
	}
	return n
}

// Check returns what the schema has against the file, in the order of the file.
func (s *Schema) Check(f *File) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(f.JSON))
	if err != nil {
		return f.Errorf(Place{}, "%v", err)
	}
	err = s.compiled.Validate(value)
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return f.Errorf(Place{}, "%v", err)
	}
	c := check{s, f}
	return InOrder(c.refusals(invalid))
}

// check is one file under one schema.
type check struct {
	schema *Schema
	file   *File
}

const maxShownErrors = 20

// InOrder joins the first errors by their place in the file.
func InOrder(found []error) error {
	slices.SortStableFunc(found, func(a, b error) int {
		var p, q *Error
		if !errors.As(a, &p) || !errors.As(b, &q) {
			return 0
		}
		if p.Line != q.Line {
			return p.Line - q.Line
		}
		return p.Column - q.Column
	})
	if len(found) > maxShownErrors {
		found = found[:maxShownErrors]
	}
	return errors.Join(found...)
}

func (c check) refusals(invalid *jsonschema.ValidationError) []error {
	if len(invalid.Causes) == 0 {
		return c.refusal(invalid)
	}
	var found []error
	for _, cause := range invalid.Causes {
		found = append(found, c.refusals(cause)...)
	}
	return found
}

// refusal says what is wrong with one value and what to write instead.
func (c check) refusal(invalid *jsonschema.ValidationError) []error {
	at := pointerOf(invalid.InstanceLocation)
	where, name := c.file.values[at], c.nameOf(invalid.InstanceLocation)
	switch k := invalid.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		return c.unknown(invalid.InstanceLocation, k.Properties)
	case *kind.Required:
		return []error{c.file.Errorf(where, "%s", missing(k.Missing))}
	case *kind.Const:
		if got := c.shown(invalid.InstanceLocation, k.Got); got == strconv.Quote(fmt.Sprint(k.Want)) {
			return []error{c.file.Errorf(where, "%s is text: write it without quotes", name)}
		}
		return []error{c.file.Errorf(where, "%s is %s: this program reads version %v", name, c.shown(invalid.InstanceLocation, k.Got), k.Want)}
	case *kind.Enum:
		return []error{c.file.Errorf(where, "%s is %s: write %s", name, c.shown(invalid.InstanceLocation, k.Got), choices(k.Want))}
	case *kind.Type:
		return []error{c.file.Errorf(where, "%s is %s: it must be %s", name, article(k.Got), articles(k.Want))}
	case *kind.MinItems, *kind.MinLength:
		return []error{c.file.Errorf(where, "%s is empty: give it a value or take it away", name)}
	case *kind.MinProperties:
		return []error{c.file.Errorf(where, "%s is empty: give it a member or take it away", name)}
	case *kind.MaxProperties:
		return []error{c.file.Errorf(where, "%s has %d members: keep %d", name, k.Got, k.Want)}
	case *kind.Minimum:
		return []error{c.file.Errorf(where, "%s is %s: it must be at least %s", name, k.Got.RatString(), k.Want.RatString())}
	case *kind.Maximum:
		return []error{c.file.Errorf(where, "%s is %s: it must be at most %s", name, k.Got.RatString(), k.Want.RatString())}
	case *kind.Pattern:
		return []error{c.file.Errorf(where, "%s is %s: %s", name, c.shown(invalid.InstanceLocation, k.Got), c.patternHint(name))}
	}
	return []error{c.file.Errorf(where, "%s: %s", name, invalid.ErrorKind.LocalizedString(message.NewPrinter(language.English)))}
}

// unknown refuses names that the schema does not have, with the one that was probably meant.
func (c check) unknown(location, names []string) []error {
	var found []error
	known := c.schema.fields(location)
	for _, name := range names {
		where := c.file.Key(append(slices.Clone(location), name)...)
		special := ""
		if c.schema.words.Unknown != nil {
			special = c.schema.words.Unknown(location, name)
		}
		switch meant := nearest(name, known); {
		case special != "":
			found = append(found, c.file.Errorf(where, "%s", special))
		case meant != "":
			found = append(found, c.file.Errorf(where, "unknown field %q: did you mean %q?", name, meant))
		default:
			found = append(found, c.file.Errorf(where, "unknown field %q: known here are %s", name, strings.Join(known, ", ")))
		}
	}
	return found
}

func pointerOf(location []string) jsontext.Pointer {
	var p jsontext.Pointer
	for _, token := range location {
		p = p.AppendToken(token)
	}
	return p
}

// nameOf is the field that a value belongs to: an element of a list goes by the list's name.
func (c check) nameOf(location []string) string {
	for _, token := range slices.Backward(location) {
		if _, err := strconv.Atoi(token); err != nil {
			return token
		}
	}
	return "the " + c.file.kind
}

func missing(fields []string) string {
	if slices.Contains(fields, "version") {
		return "version is missing: begin the file with \"version: 1\""
	}
	return strings.Join(fields, " and ") + " is missing in this entry: add it"
}

func (c check) shown(location []string, value any) string {
	if c.schema.words.Secret != nil && c.schema.words.Secret(location) {
		return "something else"
	}
	text := []rune(fmt.Sprint(value))
	if s, ok := value.(string); ok {
		text = []rune(strconv.Quote(s))
	}
	if len(text) > 60 {
		return string(text[:60]) + "…"
	}
	return string(text)
}

func choices(values []any) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, fmt.Sprint(v))
	}
	if len(texts) == 1 {
		return texts[0]
	}
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " or " + texts[last]
}

func article(kind string) string {
	switch kind {
	case "null":
		return "empty"
	case "array":
		return "a list"
	case "object":
		return "a mapping"
	case "boolean":
		return "true or false"
	case "string":
		return "text"
	case "integer":
		return "a number"
	}
	return "a " + kind
}

func articles(kinds []string) string {
	var texts []string
	for _, k := range kinds {
		texts = append(texts, article(k))
	}
	return strings.Join(texts, " or ")
}

func (c check) patternHint(name string) string {
	if c.schema.words.Pattern == nil {
		return "it does not have the form that is wanted here"
	}
	return c.schema.words.Pattern(name)
}
