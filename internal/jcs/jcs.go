// Package jcs writes JSON in one canonical form, so that equal values have equal bytes.
//
// The form is RFC 8785 with one difference: an integer literal (no fraction, no exponent) keeps every
// digit, so that two 64-bit identifiers that differ in the last digit never become one. -0 is 0; every
// other number is written as ECMAScript writes the nearest double. What has no single meaning is refused
// with a JSON pointer to it: duplicate member names, lone surrogates, invalid UTF-8, numbers out of range.
//
//	canonical, err := jcs.Canonical([]byte(`{"b": 1.0, "a": 9007199254740993}`))
//	// {"a":9007199254740993,"b":1}
package jcs

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// MaxDepth is how deep objects and arrays may nest.
	MaxDepth = 1000
	// MaxName is how many bytes an object member name may take, as written between its quotes.
	MaxName = 64 << 10
)

// Error says which part of a JSON text was refused, and why.
type Error struct {
	Pointer string // RFC 6901; empty: the whole text
	Reason  string
}

func (e *Error) Error() string {
	if e.Pointer == "" {
		return "canonicalize JSON: " + e.Reason
	}
	return "canonicalize JSON at " + shorten(e.Pointer) + ": " + e.Reason
}

// Canonical returns the canonical form of one JSON text in a slice of its own; src is only read. Every
// error is an *Error. Canonical is safe for concurrent use.
func Canonical(src []byte) ([]byte, error) {
	p := plains.Get().(*plain)
	defer plains.Put(p)
	if p.read(src) {
		return bytes.Clone(p.dst), nil
	}
	return canonical(src)
}

// canonical is Canonical for any text.
func canonical(src []byte) ([]byte, error) {
	if f := scan(src); f != nil {
		return nil, &Error{Pointer: f.pointer(src), Reason: f.reason}
	}
	dst := make([]byte, 0, len(src))
	dst, err := jsontext.AppendFormat(dst, src,
		jsontext.CanonicalizeRawFloats(true), jsontext.ReorderRawObjects(true))
	if err != nil {
		return nil, refusal(err)
	}
	return dst, nil
}

// refusal restates what jsontext refused: duplicate names, lone surrogates, invalid UTF-8 and whatever is
// not JSON.
func refusal(err error) *Error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return &Error{Reason: "not a JSON text: " + err.Error()}
	}
	e := &Error{Pointer: string(syntax.JSONPointer), Reason: "not a JSON text"}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		e.Reason = "duplicate member name"
	case syntax.Err != nil && strings.Contains(syntax.Err.Error(), "surrogate"):
		e.Reason = "lone surrogate in a string"
	case syntax.Err != nil:
		e.Reason = strings.TrimPrefix(syntax.Err.Error(), "jsontext: ")
	}
	return e
}

const maxShown = 200

func shorten(pointer string) string {
	if len(pointer) <= maxShown {
		return pointer
	}
	return strings.ToValidUTF8(pointer[:maxShown], "") + "…"
}
