package httpapi

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	jsonv2 "github.com/go-json-experiment/json"
)

// writeJSON answers with v. Text stays readable, and JSON that the log has keeps its digits.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // who asked has gone when it fails
}

// readBody reads a request's JSON object into what a field of that name each is wanted for. Other fields,
// doubled ones and anything but JSON are refused.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, into any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &problem{Status: http.StatusUnsupportedMediaType, Outcome: "invalid", Message: "send JSON, with Content-Type: application/json"}
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.opts.MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return &problem{Status: http.StatusRequestEntityTooLarge, Outcome: "invalid", Message: "the request is too large"}
	case err != nil:
		return &problem{Status: http.StatusBadRequest, Outcome: "invalid", Message: "the request was not read to its end"}
	}
	if err := jsonv2.Unmarshal(data, into, jsonv2.RejectUnknownMembers(true)); err != nil {
		return malformed(err)
	}
	return nil
}

// malformed says what is wrong with a body, without repeating any of it.
func malformed(err error) error {
	var semantic *jsonv2.SemanticError
	if !errors.As(err, &semantic) {
		return &problem{Status: http.StatusBadRequest, Outcome: "invalid", Message: "the body is no JSON: " + err.Error()}
	}
	pointer := string(semantic.JSONPointer)
	if errors.Is(err, jsonv2.ErrUnknownName) {
		return invalid(pointer, "there is no such field; /openapi.json says which there are")
	}
	return invalid(pointer, "the field has a value of the wrong kind; /openapi.json says which it takes")
}
