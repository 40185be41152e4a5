package interceptors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// configSchema is a compiled configSchema.
type configSchema struct {
	schema *jsonschema.Schema
	fitted atomic.Pointer[json.RawMessage] // what fitted last; an engine sends the same one every time
}

// maxFitted bounds the config that is kept.
const maxFitted = 4 << 10

// noLoader refuses every reference that leaves the schema.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("load %s: a config schema must be self-contained", url)
}

func compileSchema(raw json.RawMessage) (*configSchema, error) {
	if raw == nil {
		return nil, nil
	}
	if !isObject(raw) {
		return nil, fmt.Errorf("compile config schema: %w", errNotObject)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("compile config schema: %w", err)
	}
	const url = "config.json"
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	if err := c.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("compile config schema: %w", err)
	}
	s, err := c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("compile config schema: %w", err)
	}
	return &configSchema{schema: s}, nil
}

// check returns what is wrong with a config; nil when it fits.
func (s *configSchema) check(config json.RawMessage) []Problem {
	if fitted := s.fitted.Load(); fitted != nil && bytes.Equal(*fitted, config) {
		return nil
	}
	problems := s.validate(config)
	if len(problems) == 0 && len(config) <= maxFitted {
		own := bytes.Clone(config)
		s.fitted.Store((*json.RawMessage)(&own))
	}
	return problems
}

func (s *configSchema) validate(config json.RawMessage) []Problem {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(config))
	if err != nil {
		return []Problem{{"", "is not well-formed JSON"}}
	}
	var invalid *jsonschema.ValidationError
	switch err := s.schema.Validate(doc); {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return []Problem{{"", "does not fit the schema"}}
	}
	return leaves(invalid.BasicOutput(), nil)
}

// leaves flattens the units that say something of their own.
func leaves(unit *jsonschema.OutputUnit, problems []Problem) []Problem {
	if unit.Error != nil && len(unit.Errors) == 0 {
		problems = append(problems, Problem{unit.InstanceLocation, unit.Error.String()})
	}
	for i := range unit.Errors {
		problems = leaves(&unit.Errors[i], problems)
	}
	return problems
}
