package effectinterceptor

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/undolog/undolog/internal/splice"
)

// explainer puts what a schema has against a value into words that a model can act on.
type explainer struct {
	schema *jsonschema.Schema
	root   string // JSON pointer of the value
	ours   string // top-level member that is not the caller's to give
}

// maxProblems bounds how many are told at once.
const maxProblems = 20

func (e *explainer) explain(invalid *jsonschema.ValidationError) []problem {
	found := e.problems(invalid)
	slices.SortFunc(found, func(a, b problem) int {
		if a.Path != b.Path {
			return strings.Compare(a.Path, b.Path)
		}
		return strings.Compare(a.Message, b.Message)
	})
	found = slices.Compact(found)
	return found[:min(len(found), maxProblems)]
}

func (e *explainer) problems(v *jsonschema.ValidationError) (found []problem) {
	at := e.pointer(v.InstanceLocation)
	say := func(format string, args ...any) []problem { return []problem{{at, fmt.Sprintf(format, args...)}} }
	switch k := v.ErrorKind.(type) {
	case *kind.AnyOf:
		return e.alternatives(at, v)
	case *kind.OneOf:
		if len(k.Subschemas) > 1 {
			return say("fits forms %d and %d of those allowed, and must fit one only", k.Subschemas[0]+1, k.Subschemas[1]+1)
		}
		return e.alternatives(at, v)
	case *kind.Required:
		return e.missing(at, v.InstanceLocation, k.Missing)
	case *kind.AdditionalProperties:
		return e.unknown(at, v.InstanceLocation, k.Properties)
	case *kind.DependentRequired:
		return say("missing %s, needed with %s", properties(k.Missing), k.Prop)
	case *kind.Dependency:
		return say("missing %s, needed with %s", properties(k.Missing), k.Prop)
	case *kind.PropertyNames:
		return say("property %s has a name that is not allowed", shorten(k.Property))
	case *kind.Not, *kind.Contains, *kind.MinContains, *kind.MaxContains, *kind.ContentSchema:
		return say("%s", message(v.ErrorKind))
	}
	if len(v.Causes) == 0 {
		return say("%s", message(v.ErrorKind))
	}
	for _, cause := range v.Causes {
		found = append(found, e.problems(cause)...)
	}
	return found
}

func (e *explainer) pointer(location []string) string {
	p := jsontext.Pointer(e.root)
	for _, token := range location {
		p = p.AppendToken(token)
	}
	return string(p)
}

// message says what a value must be, never what it is.
func message(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be " + articles(k.Want) + ", got " + k.Got
	case *kind.Enum:
		return "must be " + choices(k.Want)
	case *kind.Const:
		return "must be " + choices([]any{k.Want})
	case *kind.Pattern:
		return "must match the pattern " + shorten(k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %s, got %d", count(k.Want, "character", "characters"), k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %s, got %d", count(k.Want, "character", "characters"), k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %s, got %d", count(k.Want, "element", "elements"), k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %s, got %d", count(k.Want, "element", "elements"), k.Got)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %s, got %d", count(k.Want, "property", "properties"), k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %s, got %d", count(k.Want, "property", "properties"), k.Got)
	case *kind.AdditionalItems:
		return fmt.Sprintf("has %s too many", count(k.Count, "element", "elements"))
	case *kind.UniqueItems:
		return fmt.Sprintf("must not hold a value twice: elements %d and %d are equal", k.Duplicates[0], k.Duplicates[1])
	case *kind.Minimum:
		return "must be at least " + number(k.Want)
	case *kind.Maximum:
		return "must be at most " + number(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + number(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + number(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + number(k.Want)
	case *kind.FalseSchema:
		return "is not allowed here"
	case *kind.Not:
		return "has a form that the schema excludes"
	case *kind.Contains:
		return "has no element of the form that one must have"
	case *kind.MinContains:
		return fmt.Sprintf("must have at least %s of the form that the schema asks for", count(k.Want, "element", "elements"))
	case *kind.MaxContains:
		return fmt.Sprintf("must have at most %s of the form that the schema asks for", count(k.Want, "element", "elements"))
	}
	return "is not as the schema says"
}

func (e *explainer) missing(at string, location, names []string) (found []problem) {
	for _, name := range names {
		if len(location) > 0 || name != e.ours {
			found = append(found, problem{at, "missing property " + shorten(name)})
		}
	}
	return found
}

// maxKnown is how many names are told that might have been meant.
const maxKnown = 12

func (e *explainer) unknown(at string, location, names []string) (found []problem) {
	known := ""
	if s := e.at(location); s != nil && len(s.Properties) > 0 && len(s.Properties) <= maxKnown {
		var all []string
		for name := range s.Properties {
			if len(location) > 0 || name != e.ours {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		known = " (known: " + strings.Join(all, ", ") + ")"
	}
	for _, name := range names {
		found = append(found, problem{at, "unknown property " + shorten(name) + known})
	}
	return found
}

// at is the schema of the value at a location, as far as it is told by names and elements alone.
func (e *explainer) at(location []string) *jsonschema.Schema {
	s := followed(e.schema)
	for _, token := range location {
		switch items, _ := s.Items.(*jsonschema.Schema); {
		case s.Properties[token] != nil:
			s = followed(s.Properties[token])
		case s.Items2020 != nil:
			s = followed(s.Items2020)
		case items != nil:
			s = followed(items)
		default:
			return nil
		}
	}
	return s
}

// followed is what a schema refers to. A schema that refers to itself is not followed for ever.
func followed(s *jsonschema.Schema) *jsonschema.Schema {
	for range 16 {
		if s.Ref == nil {
			break
		}
		s = s.Ref
	}
	return s
}

// maxForms is how many forms are told of a value that fits none.
const maxForms = 4

// alternatives says why a value fits none of several forms: the kinds that it may have, where it has another,
// else what each form has against it.
func (e *explainer) alternatives(at string, v *jsonschema.ValidationError) []problem {
	if types, ok := onlyTypes(v); ok {
		return []problem{{at, message(types)}}
	}
	var forms []string
	for _, cause := range v.Causes {
		var texts []string
		for _, p := range e.problems(cause) {
			where := strings.TrimPrefix(strings.TrimPrefix(p.Path, at), "/")
			if where != "" {
				where += " "
			}
			texts = append(texts, where+p.Message)
		}
		if len(texts) == 0 { // what is ours alone is missing
			return nil
		}
		slices.Sort(texts)
		if form := strings.Join(texts[:min(len(texts), maxForms)], " and "); !slices.Contains(forms, form) {
			forms = append(forms, form)
		}
	}
	if len(forms) == 0 {
		return []problem{{at, "fits none of the allowed forms"}}
	}
	more := ""
	if len(forms) > maxForms {
		forms, more = forms[:maxForms], ", or another form"
	}
	return []problem{{at, "fits none of the allowed forms: " + strings.Join(forms, ", or ") + more}}
}

// onlyTypes joins the types of forms that differ in nothing else.
func onlyTypes(v *jsonschema.ValidationError) (*kind.Type, bool) {
	all := &kind.Type{}
	for _, cause := range v.Causes {
		for len(cause.Causes) == 1 {
			cause = cause.Causes[0]
		}
		k, ok := cause.ErrorKind.(*kind.Type)
		if !ok || len(cause.InstanceLocation) != len(v.InstanceLocation) {
			return nil, false
		}
		all.Got, all.Want = k.Got, append(all.Want, k.Want...)
	}
	slices.Sort(all.Want)
	all.Want = slices.Compact(all.Want)
	return all, len(all.Want) > 0
}

func articles(kinds []string) string {
	texts := make([]string, len(kinds))
	for i, k := range kinds {
		switch k {
		case "null":
			texts[i] = k
		case "integer", "array", "object":
			texts[i] = "an " + k
		default:
			texts[i] = "a " + k
		}
	}
	return strings.Join(texts, " or ")
}

// choices are the values that a schema names.
func choices(values []any) string {
	var texts []string
	for _, v := range values[:min(len(values), maxKnown)] {
		text, err := splice.Encode(v)
		if err != nil {
			continue
		}
		texts = append(texts, shorten(string(text)))
	}
	if len(values) > maxKnown {
		texts = append(texts, fmt.Sprintf("one of %d more", len(values)-maxKnown))
	}
	return strings.Join(texts, " or ")
}

func properties(names []string) string {
	if len(names) == 1 {
		return "property " + shorten(names[0])
	}
	return "properties " + shorten(strings.Join(names, ", "))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// number is a bound of a schema, an integer with every digit.
func number(r *big.Rat) string {
	if r.IsInt() {
		return shorten(r.Num().String())
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}
