package splice

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// Kind is the first byte of a JSON value after white space, which tells its kind: one of { [ " t f n, a
// minus or a digit; 0 when there is no value.
func Kind(value []byte) byte {
	value = bytes.TrimLeft(value, " \t\r\n")
	if len(value) == 0 {
		return 0
	}
	return value[0]
}

// Text is what a JSON string says; false when the value is none. Lone surrogates and broken UTF-8 in it
// become U+FFFD.
func Text(value []byte) (string, bool) {
	if Kind(value) != '"' {
		return "", false
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return "", false
	}
	return s, true
}

// Quote is s as a JSON string. Broken UTF-8 in it becomes U+FFFD.
func Quote(s string) json.RawMessage {
	quoted, _ := jsontext.AppendQuote(nil, s) // its only error is the broken UTF-8, which it has replaced
	return quoted
}

// Encode is json.Marshal without the escapes for HTML, which would rewrite the texts of payloads.
func Encode[T any](v T) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}
