package effect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"github.com/go-json-experiment/json/jsontext"
)

var errNoObject = errors.New("not a JSON object")

// celObject reads a JSON object for CEL. Absent means empty.
func celObject(src json.RawMessage) (map[string]any, error) {
	if len(src) == 0 {
		return map[string]any{}, nil
	}
	v, err := celJSON(src)
	if err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errNoObject
	}
	return object, nil
}

// celJSON reads a JSON text for CEL.
func celJSON(src json.RawMessage) (any, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(src))
	v, err := celValue(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

func celValue(dec *jsontext.Decoder) (any, error) {
	token, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return token.Bool(), nil
	case '"':
		return token.String(), nil
	case '0':
		return celNumber(token.String())
	case '[':
		return celElements(dec)
	}
	return celMembers(dec)
}

func celElements(dec *jsontext.Decoder) (any, error) {
	list := []any{}
	for dec.PeekKind() != ']' {
		v, err := celValue(dec)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := dec.ReadToken()
	return list, err
}

func celMembers(dec *jsontext.Decoder) (any, error) {
	object := map[string]any{}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		if object[key], err = celValue(dec); err != nil {
			return nil, err
		}
	}
	_, err := dec.ReadToken()
	return object, err
}

// celNumber reads a number. An integer that no type of CEL holds would be taken for its neighbours: whatever
// looks at it has no value.
func celNumber(literal string) (any, error) {
	if n, err := strconv.ParseInt(literal, 10, 64); err == nil {
		return n, nil
	}
	if n, err := strconv.ParseUint(literal, 10, 64); err == nil {
		return n, nil
	}
	n, err := strconv.ParseFloat(literal, 64)
	if err != nil || isInteger(literal) {
		return types.NewErr("the number %.40s is too large to compare", literal), nil
	}
	return n, nil
}

func isInteger(literal string) bool { return !bytes.ContainsAny([]byte(literal), ".eE") }

// appendCEL appends a value of CEL as JSON. Members are in the order of their names.
func appendCEL(dst []byte, v ref.Val) ([]byte, error) {
	switch v := v.(type) {
	case types.Null:
		return append(dst, "null"...), nil
	case types.Bool:
		return strconv.AppendBool(dst, bool(v)), nil
	case types.Int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case types.Uint:
		return strconv.AppendUint(dst, uint64(v), 10), nil
	case types.Double:
		return appendDouble(dst, float64(v))
	case types.String:
		return jsontext.AppendQuote(dst, string(v))
	case traits.Mapper:
		return appendMap(dst, v)
	case traits.Lister:
		return appendList(dst, v)
	}
	return nil, fmt.Errorf("a %s cannot be written as JSON", v.Type().TypeName())
}

func appendDouble(dst []byte, v float64) ([]byte, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, fmt.Errorf("%g cannot be written as JSON", v)
	}
	number, err := json.Marshal(v)
	return append(dst, number...), err
}

func appendList(dst []byte, list traits.Lister) ([]byte, error) {
	var err error
	dst = append(dst, '[')
	for i, it := 0, list.Iterator(); it.HasNext() == types.True; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendCEL(dst, it.Next()); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendMap(dst []byte, m traits.Mapper) ([]byte, error) {
	members := map[string]json.RawMessage{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("a member's name is a %s, not text", key.Type().TypeName())
		}
		value, err := appendCEL(nil, m.Get(key))
		if err != nil {
			return nil, err
		}
		members[string(name)] = value
	}
	return appendMembers(dst, members)
}

func appendMembers(dst []byte, members map[string]json.RawMessage) ([]byte, error) {
	object, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	return append(dst, object...), nil
}
