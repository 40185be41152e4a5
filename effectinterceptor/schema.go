package effectinterceptor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/splice"
)

// toolSchemas are the schemas of a tool's definition. nil ones check nothing.
type toolSchemas struct {
	once      sync.Once
	arguments *jsonschema.Schema // of inputSchema
	result    *jsonschema.Schema // of outputSchema
}

// maxSchemas bounds how many definitions are kept compiled.
const maxSchemas = 1024

// schemaCache holds what was compiled, by the digest of the definition.
type schemaCache struct {
	logger *slog.Logger

	mu sync.Mutex
	by map[effect.Digest]*toolSchemas
}

// of returns the schemas of a definition. One that cannot be compiled is told of once and checks nothing.
func (c *schemaCache) of(digest effect.Digest, definition json.RawMessage) *toolSchemas {
	c.mu.Lock()
	s := c.by[digest]
	if s == nil {
		if c.by == nil || len(c.by) >= maxSchemas {
			c.by = map[effect.Digest]*toolSchemas{}
		}
		s = &toolSchemas{}
		c.by[digest] = s
	}
	c.mu.Unlock()
	s.once.Do(func() {
		s.arguments = c.compile(definition, "inputSchema")
		s.result = c.compile(definition, "outputSchema")
	})
	return s
}

func (c *schemaCache) compile(definition json.RawMessage, member string) *jsonschema.Schema {
	source := splice.Get(definition, member)
	if kind := splice.Kind(source); kind == 0 || kind == 'n' {
		return nil
	}
	s, err := compileSchema(source)
	if err != nil {
		name, _ := splice.Text(splice.Get(definition, "name"))
		c.logger.Warn("schema cannot be used, and nothing is checked by it",
			slog.String("tool", shorten(name)), slog.String("member", member), slog.Any("error", err))
		return nil
	}
	return s
}

// schemaURL names the one document that a schema may refer to: itself.
const schemaURL = "undolog:///tool"

func compileSchema(source json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonValue(source)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020) // what MCP says of a schema that names none
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaURL, checkable(doc)); err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	s, err := compiler.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return s, nil
}

// noLoader reads no files and asks no servers: a tool's definition must not make us do either.
type noLoader struct{}

var errNotLoaded = errors.New("other documents are not loaded")

func (noLoader) Load(string) (any, error) { return nil, errNotLoaded }

// checkable is a schema without the words that are no ground to refuse a call: formats, which JSON Schema leaves
// to who reads them, and patterns beyond what Go can match, such as those that look ahead.
func checkable(schema any) any {
	switch s := schema.(type) {
	case []any:
		for i, v := range s {
			s[i] = checkable(v)
		}
	case map[string]any:
		for name, v := range s {
			text, isText := v.(string)
			switch {
			case name == "const", name == "enum", name == "default", name == "examples":
			case name == "format" && isText, name == "pattern" && isText && !isRegexp(text):
				delete(s, name)
			default:
				s[name] = checkable(v)
			}
		}
	}
	return schema
}

func isRegexp(text string) bool {
	_, err := regexp.Compile(text)
	return err == nil
}

// problem is one thing that is wrong with a value. Its message holds nothing of the value but names of members.
type problem struct {
	Path    string `json:"path"` // JSON pointer
	Message string `json:"message"`
}

// schemaError says what is wrong with the arguments of a call.
type schemaError struct{ problems []problem }

func (e *schemaError) Error() string { return "arguments are not as the tool's schema says" }

// checkArguments checks a call's arguments. The argument that gets our key is nobody's business but ours.
func (s *toolSchemas) checkArguments(arguments json.RawMessage, inject effect.Inject) error {
	if s == nil || s.arguments == nil {
		return nil
	}
	ours := ""
	if inject.Into == effect.InjectArgument {
		ours = inject.Name
	}
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	found := problemsOf(s.arguments, arguments, "/arguments", ours)
	if len(found) == 0 {
		found = misspelled(s.arguments, arguments)
	}
	if len(found) == 0 {
		return nil
	}
	return &schemaError{found}
}

// misspelled finds arguments that differ in case alone from one that the schema has: a tool whose reader folds case,
// as Go's encoding/json does, would take them for that one, and the policy has looked at another, or at none.
func misspelled(schema *jsonschema.Schema, arguments json.RawMessage) (found []problem) {
	_ = splice.Scan(arguments, func(name, _ []byte) { // an object: calls with anything else were refused before
		if schema.Properties[string(name)] != nil || len(found) >= maxProblems {
			return
		}
		for known := range schema.Properties {
			if strings.EqualFold(string(name), known) {
				at := jsontext.Pointer("/arguments").AppendToken(shorten(string(name)))
				found = append(found, problem{string(at), "is not spelled " + known})
				return
			}
		}
	})
	return found
}

// maxCheckedResult is how long structured content may be to be checked while its requester waits.
const maxCheckedResult = 4 << 20

// checkResult returns what is wrong with a result.
func (s *toolSchemas) checkResult(result json.RawMessage) []problem {
	if s == nil || s.result == nil {
		return nil
	}
	content := splice.Get(result, "structuredContent")
	switch {
	case splice.Kind(content) == 0:
		return []problem{{"/structuredContent", "is missing"}}
	case len(content) > maxCheckedResult:
		return nil
	}
	return problemsOf(s.result, content, "/structuredContent", "")
}

func problemsOf(schema *jsonschema.Schema, src json.RawMessage, root, ours string) []problem {
	value, err := jsonValue(src)
	if err != nil {
		return []problem{{root, err.Error()}}
	}
	if object, ok := value.(map[string]any); ok && ours != "" {
		delete(object, ours)
	}
	err = schema.Validate(value)
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		e := explainer{schema: schema, root: root, ours: ours}
		return e.explain(invalid)
	}
	if err != nil {
		return []problem{{root, "cannot be checked"}}
	}
	return nil
}

// jsonValue reads JSON for the schema library, which computes with numbers of any size.
func jsonValue(src []byte) (any, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(src), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	v, err := readValue(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("is more than one value")
	}
	return v, nil
}

func readValue(dec *jsontext.Decoder) (any, error) {
	token, err := dec.ReadToken()
	if err != nil {
		return nil, errors.New("is not JSON")
	}
	switch token.Kind() {
	case '"':
		return token.String(), nil
	case '0':
		return readNumber(token.String())
	case 't', 'f':
		return token.Bool(), nil
	case '[':
		return readArray(dec)
	case '{':
		return readObject(dec)
	}
	return nil, nil
}

func readArray(dec *jsontext.Decoder) (any, error) {
	list := []any{}
	for dec.PeekKind() != ']' {
		v, err := readValue(dec)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := dec.ReadToken()
	return list, err
}

func readObject(dec *jsontext.Decoder) (any, error) {
	object := map[string]any{}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, errors.New("is not JSON")
		}
		key := name.String()
		if object[key], err = readValue(dec); err != nil {
			return nil, err
		}
	}
	_, err := dec.ReadToken()
	return object, err
}

// maxDigits and maxExponent bound what a number may cost that is computed with exactly.
const (
	maxDigits   = 1024
	maxExponent = 1024
)

func readNumber(literal string) (any, error) {
	if len(literal) > maxDigits {
		return nil, fmt.Errorf("has a number of more than %d characters", maxDigits)
	}
	if at := strings.IndexAny(literal, "eE"); at >= 0 {
		exponent, err := strconv.Atoi(literal[at+1:])
		if err != nil || exponent > maxExponent || exponent < -maxExponent {
			return nil, errors.New("has a number with an exponent that is out of range")
		}
	}
	return json.Number(literal), nil
}
