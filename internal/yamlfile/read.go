package yamlfile

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
	maxSize  = 256 << 10
	maxDepth = 32
)

// Error is one thing that is wrong in a file, and what to do about it.
type Error struct {
	File         string
	Line, Column int // from 1; zero: the whole file
	Reason       string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Reason
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
}

// Place is where something stands, from 1; zero is the whole file.
type Place struct{ Line, Column int }

// File is a YAML file as JSON, with the place of every value: what checks the JSON can still point into
// the file.
type File struct {
	JSON []byte

	name   string
	kind   string                     // what the file is, for messages: a policy
	keys   map[jsontext.Pointer]Place // of members, where their name stands
	values map[jsontext.Pointer]Place
}

// Read converts a file with one document. It takes plain YAML only: no anchors, aliases, merge keys and
// tags, so that a file is no larger than it looks. kind says in errors what the file is.
func Read(name, kind string, data []byte) (*File, error) {
	f := &File{name: name, kind: kind, keys: map[jsontext.Pointer]Place{}, values: map[jsontext.Pointer]Place{}}
	switch {
	case len(data) > maxSize:
		return nil, f.Errorf(Place{}, "has %d bytes: a %s has at most %d", len(data), kind, maxSize)
	case !utf8.Valid(data):
		return nil, f.Errorf(Place{}, "is not valid UTF-8: save it as UTF-8 text")
	case bytes.IndexByte(data, 0) >= 0:
		return nil, f.Errorf(Place{}, "holds a NUL byte: it is not a text file")
	}
	if p, deep := tooDeep(data); deep {
		return nil, f.Errorf(p, "nested deeper than %d levels", maxDepth)
	}
	body, err := f.parse(data)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := f.convert(&out, body, "", 0); err != nil {
		return nil, err
	}
	f.JSON = out.Bytes()
	return f, nil
}

// Key is where the name of a member stands; zero when it is not there.
func (f *File) Key(location ...string) Place { return f.keys[pointerOf(location)] }

// Value is where a value begins; zero when it is not there.
func (f *File) Value(location ...string) Place { return f.values[pointerOf(location)] }

// Has reports whether a member is there.
func (f *File) Has(location ...string) bool {
	_, ok := f.keys[pointerOf(location)]
	return ok
}

// Errorf makes the error for what is wrong at a place.
func (f *File) Errorf(at Place, format string, args ...any) error {
	return &Error{File: f.name, Line: at.Line, Column: at.Column, Reason: fmt.Sprintf(format, args...)}
}

// tooDeep finds nesting by brackets and by indicators in a row. It is checked before parsing because the
// parser recurses; brackets in texts count too, which no honest policy notices.
func tooDeep(data []byte) (Place, bool) {
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
		if brackets > maxDepth || indicators > maxDepth {
			return Place{line, i - start + 1}, true
		}
	}
	return Place{}, false
}

// parse returns the only document. The parser's panics are its bugs, and become errors here because the
// file is not ours.
func (f *File) parse(data []byte) (body ast.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, f.Errorf(Place{}, "is not YAML that can be read (%v)", r)
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, f.syntax(err)
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			return nil, f.Errorf(placeOf(doc.Body), "a second document: a %s is one document", f.kind)
		default:
			body = doc.Body
		}
	}
	if body == nil {
		return nil, f.Errorf(Place{}, "is empty: a %s begins with \"version: 1\"", f.kind)
	}
	return body, nil
}

func (f *File) syntax(err error) error {
	var detailed yaml.Error
	if errors.As(err, &detailed) && detailed.GetToken() != nil {
		return f.Errorf(placeOfToken(detailed.GetToken()), "%s", detailed.GetMessage())
	}
	return f.Errorf(Place{}, "%v", err)
}

// convert writes a node as JSON and notes its place.
func (f *File) convert(out *bytes.Buffer, node ast.Node, at jsontext.Pointer, depth int) error {
	if depth > maxDepth {
		return f.Errorf(placeOf(node), "nested deeper than %d levels", maxDepth)
	}
	f.values[at] = placeOf(node)
	switch n := node.(type) {
	case *ast.MappingNode:
		return f.mapping(out, n.Values, at, depth)
	case *ast.MappingValueNode:
		return f.mapping(out, []*ast.MappingValueNode{n}, at, depth)
	case *ast.SequenceNode:
		return f.sequence(out, n.Values, at, depth)
	}
	return f.scalar(out, node)
}

func (f *File) mapping(out *bytes.Buffer, members []*ast.MappingValueNode, at jsontext.Pointer, depth int) error {
	out.WriteByte('{')
	for i, m := range members {
		name, ok := m.Key.(*ast.StringNode)
		if !ok {
			return f.Errorf(placeOf(m.Key), "a name must be plain text here, not %s", describe(m.Key))
		}
		if i > 0 {
			out.WriteByte(',')
		}
		below := at.AppendToken(name.Value)
		if _, twice := f.keys[below]; twice {
			return f.Errorf(placeOf(name), "%q is here twice: keep one", name.Value)
		}
		f.keys[below] = placeOf(name)
		writeString(out, name.Value)
		out.WriteByte(':')
		if err := f.convert(out, m.Value, below, depth+1); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

func (f *File) sequence(out *bytes.Buffer, elements []ast.Node, at jsontext.Pointer, depth int) error {
	out.WriteByte('[')
	for i, element := range elements {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := f.convert(out, element, at.AppendToken(strconv.Itoa(i)), depth+1); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return nil
}

func (f *File) scalar(out *bytes.Buffer, node ast.Node) error {
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
		return f.Errorf(placeOf(node), "%s cannot stand in a %s: write the value out", describe(node), f.kind)
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
func placeOf(node ast.Node) Place {
	switch n := node.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 {
			return placeOf(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return placeOf(n.Key)
	case nil:
		return Place{}
	}
	return placeOfToken(node.GetToken())
}

func placeOfToken(t *token.Token) Place {
	if t == nil || t.Position == nil {
		return Place{}
	}
	return Place{t.Position.Line, t.Position.Column}
}
