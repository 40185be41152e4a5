package hostcheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/undolog/undolog/internal/splice"
)

// schemaFault says what is wrong with a configSchema; empty when it can be used, or when what it refers to
// is elsewhere and it cannot be judged here.
func schemaFault(raw json.RawMessage) string {
	if raw == nil || !isObject(raw) { // the shape is another's
		return ""
	}
	if typ := splice.Get(raw, "type"); string(typ) != `"object"` {
		return fmt.Sprintf("has the type %s, want object", orAbsent(typ))
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return fmt.Sprintf("cannot be read: %v", err)
	}
	elsewhere := false
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseRegexpEngine(anyPattern)
	c.UseLoader(loader(func(string) (any, error) {
		elsewhere = true
		return true, nil
	}))
	const url = "config.json"
	if err = c.AddResource(url, doc); err == nil {
		_, err = c.Compile(url)
	}
	if err != nil && !elsewhere {
		return fmt.Sprintf("is no JSON Schema: %v", err)
	}
	return ""
}

type loader func(url string) (any, error)

func (l loader) Load(url string) (any, error) { return l(url) }

// pattern is one that this language may not know: schemas are written in ECMAScript's.
type pattern string

func (p pattern) String() string { return string(p) }

func (p pattern) MatchString(s string) bool {
	re, err := regexp.Compile(string(p))
	return err != nil || re.MatchString(s)
}

func anyPattern(s string) (jsonschema.Regexp, error) { return pattern(s), nil }
