package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// resolveBody is what a person has found out about a lost outcome.
type resolveBody struct {
	Outcome string         `json:"outcome"` // committed or not_applied
	Result  jsontext.Value `json:"result"`  // committed: the tools/call result that later equal calls get
	Reason  string         `json:"reason"`
}

func (h *Handler) resolve(w http.ResponseWriter, r *http.Request, who *caller) error {
	var body resolveBody
	if err := h.readBody(w, r, &body); err != nil {
		return err
	}
	p := store.ResolveParams{Tenant: who.tenant, ID: r.PathValue("id"), By: who.name, Reason: body.Reason}
	switch {
	case body.Outcome == "committed":
		p.To = effect.StateCommitted
	case body.Outcome == "not_applied":
		p.To = effect.StateFailed
	default:
		return invalid("/outcome", "say committed or not_applied, after looking at the target")
	}
	switch {
	case strings.TrimSpace(body.Reason) == "":
		return invalid("/reason", "say how you know")
	case body.Result != nil && p.To != effect.StateCommitted:
		return invalid("/result", "only what was applied has a result")
	case body.Result != nil && body.Result.Kind() != '{':
		return invalid("/result", "want a tools/call result, an object")
	case body.Result != nil:
		p.Result = json.RawMessage(body.Result)
	}
	record, err := h.log.Resolve(r.Context(), p)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, effectToJSON(record, h.log.Now()))
	return nil
}

// again allows one more run of a settled effect.
func (h *Handler) again(w http.ResponseWriter, r *http.Request, who *caller) error {
	var body reasonBody
	if err := h.readBody(w, r, &body); err != nil {
		return err
	}
	id := r.PathValue("id")
	if err := h.log.Again(r.Context(), store.AgainParams{Tenant: who.tenant, ID: id, By: who.name, Reason: body.Reason}); err != nil {
		return err
	}
	shown, err := h.log.Show(r.Context(), who.tenant, id)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, effectToJSON(shown.Record, h.log.Now()))
	return nil
}
