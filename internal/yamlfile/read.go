package effect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	maxPolicySize  = 256 << 10
	maxPolicyDepth = 32
)

// PolicyError is one thing that is wrong in a policy file, and what to do about it.
type PolicyError struct {
	File         string
	Line, Column int // from 1; zero: the whole file
	Reason       string
}

func (e *PolicyError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Reason
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
}

// yamlFile is a YAML file as JSON, with the place of every value: what checks the JSON can still point
// into the file.
type yamlFile struct {
	name   string
	json   []byte
	keys   map[jsontext.Pointer]place // of members, where their name stands
	values map[jsontext.Pointer]place
}

type place struct{ line, column int }

// readYAML converts a file with one document. It takes plain YAML only: no anchors, aliases, merge keys
// and tags, so that a file is no larger than it looks.
func readYAML(name string, data []byte) (*yamlFile, error) {
	y := &yamlFile{name: name, keys: map[jsontext.Pointer]place{}, values: map[jsontext.Pointer]place{}}
	switch {
	case len(data) > maxPolicySize:
		return nil, y.errorf(place{}, "has %d bytes: a policy has at most %d", len(data), maxPolicySize)
	case !utf8.Valid(data):
		return nil, y.errorf(place{}, "is not valid UTF-8: save it as UTF-8 text")
	case bytes.IndexByte(data, 0) >= 0:
		return nil, y.errorf(place{}, "holds a NUL byte: it is not a text file")
	}
	if p, deep := tooDeep(data); deep {
		return nil, y.errorf(p, "nested deeper than %d levels", maxPolicyDepth)
	}
	body, err := y.parse(data)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := y.convert(&out, body, "", 0); err != nil {
		return nil, err
	}
	y.json = out.Bytes()
	return y, nil
}

// tooDeep finds nesting by brackets and by indicators in a row. It is checked before parsing because the
// parser recurses; brackets in texts count too, which no honest policy notices.
func tooDeep(data []byte) (place, bool) {
	line, start, brackets, indicators := 1, 0, 0, 0
	for i, c := range data {
		switch c {
		case '\n':
			line, start, indicators = line+1, i+1, 0
		case '[', '{':
			brackets++
		case ']', '}':
			brackets = max(0, brackets-1)
		case '-', '?', '!', '&', ':':
			if i+1 < len(data) && (data[i+1] == ' ' || data[i+1] == '\t') || c == '!' || c == '&' {
				indicators++
			}
		}
		if brackets > maxPolicyDepth || indicators > maxPolicyDepth {
			return place{line, i - start + 1}, true
		}
	}
	return place{}, false
}

// parse returns the only document. The parser's panics are its bugs, and become errors here because the
// file is not ours.
func (y *yamlFile) parse(data []byte) (body ast.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, y.errorf(place{}, "is not YAML that can be read (%v)", r)
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, y.syntax(err)
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			return nil, y.errorf(placeOf(doc.Body), "a second document: a policy is one document")
		default:
			body = doc.Body
		}
	}
	if body == nil {
		return nil, y.errorf(place{}, "is empty: a policy begins with \"version: 1\"")
	}
	return body, nil
}

func (y *yamlFile) syntax(err error) error {
	var detailed yaml.Error
	if errors.As(err, &detailed) && detailed.GetToken() != nil {
		return y.errorf(placeOfToken(detailed.GetToken()), "%s", detailed.GetMessage())
	}
	return y.errorf(place{}, "%v", err)
}

func (y *yamlFile) errorf(p place, format string, args ...any) error {
	return &PolicyError{File: y.name, Line: p.line, Column: p.column, Reason: fmt.Sprintf(format, args...)}
}

// convert writes a node as JSON and notes its place.
func (y *yamlFile) convert(out *bytes.Buffer, node ast.Node, at jsontext.Pointer, depth int) error {
	if depth > maxPolicyDepth {
		return y.errorf(placeOf(node), "nested deeper than %d levels", maxPolicyDepth)
	}
	y.values[at] = placeOf(node)
	switch n := node.(type) {
	case *ast.MappingNode:
		return y.mapping(out, n.Values, at, depth)
	case *ast.MappingValueNode:
		return y.mapping(out, []*ast.MappingValueNode{n}, at, depth)
	case *ast.SequenceNode:
		return y.sequence(out, n.Values, at, depth)
	}
	return y.scalar(out, node)
}

func (y *yamlFile) mapping(out *bytes.Buffer, members []*ast.MappingValueNode, at jsontext.Pointer, depth int) error {
	out.WriteByte('{')
	for i, m := range members {
		name, ok := m.Key.(*ast.StringNode)
		if !ok {
			return y.errorf(placeOf(m.Key), "a name must be plain text here, not %s", describe(m.Key))
		}
		if i > 0 {
			out.WriteByte(',')
		}
		below := at.AppendToken(name.Value)
		if _, twice := y.keys[below]; twice {
			return y.errorf(placeOf(name), "%q is here twice: keep one", name.Value)
		}
		y.keys[below] = placeOf(name)
		writeString(out, name.Value)
		out.WriteByte(':')
		if err := y.convert(out, m.Value, below, depth+1); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

func (y *yamlFile) sequence(out *bytes.Buffer, elements []ast.Node, at jsontext.Pointer, depth int) error {
	out.WriteByte('[')
	for i, element := range elements {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := y.convert(out, element, at.AppendToken(strconv.Itoa(i)), depth+1); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return nil
}

func (y *yamlFile) scalar(out *bytes.Buffer, node ast.Node) error {
	switch n := node.(type) {
	case *ast.StringNode:
		writeString(out, n.Value)
	case *ast.LiteralNode:
		writeString(out, n.Value.Value)
	case *ast.IntegerNode:
		fmt.Fprint(out, n.Value)
	case *ast.FloatNode:
		out.WriteString(strconv.FormatFloat(n.Value, 'g', -1, 64))
	case *ast.BoolNode:
		out.WriteString(strconv.FormatBool(n.Value))
	case *ast.NullNode:
		out.WriteString("null")
	default:
		return y.errorf(placeOf(node), "%s cannot stand in a policy: write the value out", describe(node))
	}
	return nil
}

func writeString(out *bytes.Buffer, s string) {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string is always encodable
	}
	out.Write(quoted)
}

func describe(node ast.Node) string {
	switch node.Type() {
	case ast.AnchorType:
		return "an anchor (&)"
	case ast.AliasType:
		return "an alias (*)"
	case ast.MergeKeyType:
		return "a merge key (<<)"
	case ast.TagType:
		return "a tag (!)"
	case ast.MappingKeyType:
		return "a complex key (?)"
	}
	return "a " + node.Type().YAMLName()
}

// placeOf returns where a node begins: a mapping begins at its first name.
func placeOf(node ast.Node) place {
	switch n := node.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 {
			return placeOf(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return placeOf(n.Key)
	case nil:
		return place{}
	}
	return placeOfToken(node.GetToken())
}

func placeOfToken(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, t.Position.Column}
}
