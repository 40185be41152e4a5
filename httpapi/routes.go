package httpapi

import (
	"errors"
	"net/http"
	"strings"
)

// endpoint answers a request of somebody who is known. What it returns is answered by fail.
type endpoint func(w http.ResponseWriter, r *http.Request, who *caller) error

// endpoints are the API, as openapi.json describes it.
func (h *Handler) endpoints() map[string]endpoint {
	return map[string]endpoint{
		"GET /v1/session":    h.whoAmI,
		"DELETE /v1/session": h.leave,

		"GET /v1/approvals":                h.listApprovals,
		"GET /v1/approvals/{id}":           h.showApproval,
		"POST /v1/approvals/decide":        h.decideMany,
		"POST /v1/approvals/{id}/approve":  h.approve,
		"POST /v1/approvals/{id}/deny":     h.deny,
		"POST /v1/approvals/{id}/edit":     h.edit,
		"POST /v1/approvals/{id}/extend":   h.extend,
		"POST /v1/approvals/{id}/reopen":   h.reopen,
		"POST /v1/approvals/{id}/withdraw": h.withdraw,

		"GET /v1/grants":              h.listGrants,
		"POST /v1/grants":             h.giveGrant,
		"POST /v1/grants/{id}/revoke": h.revokeGrant,

		"GET /v1/pending":               h.listPending,
		"GET /v1/effects":               h.listEffects,
		"GET /v1/effects/{id}":          h.showEffect,
		"POST /v1/effects/{id}/resolve": h.resolve,
		"POST /v1/effects/{id}/again":   h.again,

		"GET /v1/events": h.streamEvents,
	}
}

func (h *Handler) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, answer := range h.endpoints() {
		mux.HandleFunc(pattern, h.known(answer))
	}
	mux.HandleFunc("POST /v1/session", h.enter)
	mux.HandleFunc("/v1/", h.nothingThere)
	mux.HandleFunc("GET /openapi.json", serveOpenAPI)
	h.routePage(mux)
	return mux
}

// known lets an endpoint answer those who have shown who they are.
func (h *Handler) known(answer endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := h.caller(r)
		if err == nil {
			err = answer(w, r, who)
		}
		if err != nil {
			h.fail(w, r, err)
		}
	}
}

// nothingThere answers for paths that the API does not have, and for methods that a path does not take.
func (h *Handler) nothingThere(w http.ResponseWriter, r *http.Request) {
	var takes []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := h.mux.Handler(other); pattern != "/v1/" {
			takes = append(takes, method)
		}
	}
	if len(takes) == 0 {
		h.fail(w, r, &problem{Status: http.StatusNotFound, Outcome: "not_found", Message: "there is nothing at " + r.URL.Path + "; /openapi.json says what there is"})
		return
	}
	w.Header().Set("Allow", strings.Join(takes, ", "))
	h.fail(w, r, &problem{Status: http.StatusMethodNotAllowed, Outcome: "invalid", Message: r.URL.Path + " takes " + strings.Join(takes, ", ")})
}

// isGone reports whether an error says no more than that the client has left.
func isGone(r *http.Request, err error) bool {
	return r.Context().Err() != nil && errors.Is(err, r.Context().Err())
}
