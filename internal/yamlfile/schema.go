package effect

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

//go:embed policy.schema.json
var policySchema string

// PolicySchema returns the JSON Schema of policy files.
func PolicySchema() string { return policySchema }

const policySchemaID = "https://undolog.dev/policy.schema.json"

var compiledSchema = sync.OnceValue(func() *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(policySchema))
	if err != nil {
		panic(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(policySchemaID, doc); err != nil {
		panic(err)
	}
	return compiler.MustCompile(policySchemaID)
})

// schemaFields are the names that the schema knows: of the file, of a server entry, of a rule.
var schemaFields = sync.OnceValue(func() map[string][]string {
	type fields struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var schema struct {
		fields
		Defs map[string]fields `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(policySchema), &schema); err != nil {
		panic(err)
	}
	names := func(f fields) []string { return slices.Sorted(maps.Keys(f.Properties)) }
	return map[string][]string{
		"": names(schema.fields), "servers": names(schema.Defs["server"]), "tools": names(schema.Defs["rule"]),
	}
})

// checkSchema returns what the schema has against the file, in the order of the file.
func (y *yamlFile) checkSchema() error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(y.json))
	if err != nil {
		return y.errorf(place{}, "%v", err)
	}
	err = compiledSchema().Validate(value)
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return y.errorf(place{}, "%v", err)
	}
	return inOrder(y.refusals(invalid))
}

const maxShownErrors = 20

// inOrder joins the first errors by their place in the file.
func inOrder(found []error) error {
	slices.SortStableFunc(found, func(a, b error) int {
		var p, q *PolicyError
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

func (y *yamlFile) refusals(invalid *jsonschema.ValidationError) []error {
	if len(invalid.Causes) == 0 {
		return y.refusal(invalid)
	}
	var found []error
	for _, cause := range invalid.Causes {
		found = append(found, y.refusals(cause)...)
	}
	return found
}

// refusal says what is wrong with one value and what to write instead.
func (y *yamlFile) refusal(invalid *jsonschema.ValidationError) []error {
	at := pointerOf(invalid.InstanceLocation)
	where, name := y.values[at], nameOf(invalid.InstanceLocation)
	switch k := invalid.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		return y.unknown(invalid.InstanceLocation, k.Properties)
	case *kind.Required:
		return []error{y.errorf(where, "%s", missing(k.Missing))}
	case *kind.Const:
		if got := shown(k.Got); got == strconv.Quote(fmt.Sprint(k.Want)) {
			return []error{y.errorf(where, "%s is text: write it without quotes", name)}
		}
		return []error{y.errorf(where, "%s is %s: this program reads version %v", name, shown(k.Got), k.Want)}
	case *kind.Enum:
		return []error{y.errorf(where, "%s is %s: write %s", name, shown(k.Got), choices(k.Want))}
	case *kind.Type:
		return []error{y.errorf(where, "%s is %s: it must be %s", name, article(k.Got), articles(k.Want))}
	case *kind.MinItems, *kind.MinLength:
		return []error{y.errorf(where, "%s is empty: give it a value or take it away", name)}
	case *kind.Pattern:
		return []error{y.errorf(where, "%s is %s: %s", name, shown(k.Got), patternHint(name))}
	}
	return []error{y.errorf(where, "%s: %s", name, invalid.ErrorKind.LocalizedString(message.NewPrinter(language.English)))}
}

// unknown refuses names that the schema does not have, with the one that was probably meant.
func (y *yamlFile) unknown(location, names []string) []error {
	group := ""
	if len(location) > 0 {
		group = location[0]
	}
	var found []error
	for _, name := range names {
		where := y.keys[pointerOf(location).AppendToken(name)]
		known := schemaFields()[group]
		switch meant := nearest(name, known); {
		case name == "compensate" && group == "tools":
			found = append(found, y.errorf(where, "compensate is reserved: this version cannot compensate, take it away"))
		case meant != "":
			found = append(found, y.errorf(where, "unknown field %q: did you mean %q?", name, meant))
		default:
			found = append(found, y.errorf(where, "unknown field %q: known here are %s", name, strings.Join(known, ", ")))
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
func nameOf(location []string) string {
	for _, token := range slices.Backward(location) {
		if _, err := strconv.Atoi(token); err != nil {
			return token
		}
	}
	return "the policy"
}

func missing(fields []string) string {
	if slices.Contains(fields, "version") {
		return "version is missing: begin the file with \"version: 1\""
	}
	return strings.Join(fields, " and ") + " is missing in this entry: add it"
}

func shown(value any) string {
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

func patternHint(name string) string {
	switch name {
	case "window", "timeout", "lease":
		return "it must be a duration such as 90s, 10m, 1h30m or 2d"
	}
	return "it must be an argument's name, or a JSON pointer such as /meta/ts (with ~1 for / and ~0 for ~)"
}
