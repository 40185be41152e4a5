package interceptors

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/internal/splice"
)

// member is one member of a JSON object, its value the bytes as they stood.
type member struct {
	name  string
	value json.RawMessage
}

// members splits a JSON object. Names are compared exactly and a name that occurs twice, at any depth,
// is an error: two readers of such an object can see two different things. Lone surrogates and broken
// UTF-8 pass, since they stand in the texts of real tools.
func members(object []byte) ([]member, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() != '{' {
		_, err := d.ReadValue()
		if err == nil {
			err = errNotObject
		}
		return nil, err
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	var ms []member
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		m := member{name: name.String()}
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		end := int(d.InputOffset())
		m.value = object[end-len(v) : end : end]
		ms = append(ms, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	return ms, atEnd(d)
}

// elements splits a JSON array.
func elements(array []byte) ([]json.RawMessage, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(array), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() != '[' {
		return nil, errNotArray
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	var es []json.RawMessage
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		end := int(d.InputOffset())
		es = append(es, array[end-len(v):end:end])
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	return es, atEnd(d)
}

var (
	errNotObject = errors.New("must be an object")
	errNotArray  = errors.New("must be an array")
	errTrailing  = errors.New("data after the value")
)

func atEnd(d *jsontext.Decoder) error {
	_, err := d.ReadToken()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errTrailing
}

func isValid(v json.RawMessage) bool {
	return jsontext.Value(v).IsValid(jsontext.AllowInvalidUTF8(true))
}

// isRecorded is isValid for what a target once answered: a member that is there twice is its to answer for.
func isRecorded(v json.RawMessage) bool {
	return jsontext.Value(v).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

func isObject(v json.RawMessage) bool { return splice.Kind(v) == '{' }

func isNull(v json.RawMessage) bool { return splice.Kind(v) == 'n' }

// appendMembers appends members to an object under construction, which begins with '{'.
func appendMembers(object []byte, ms ...member) []byte {
	for _, m := range ms {
		if object[len(object)-1] != '{' {
			object = append(object, ',')
		}
		object = append(object, splice.Quote(m.name)...)
		object = append(object, ':')
		object = append(object, m.value...)
	}
	return object
}
