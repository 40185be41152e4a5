package httpapi

import (
	"crypto/sha256"
	"net/http"
	"strings"
)

// caller is who asks.
type caller struct {
	name   string // "user:NAME"
	tenant string
	via    string // api or page
}

var errUnknown = &problem{
	Status: http.StatusUnauthorized, Outcome: "unauthorized",
	Message: "who asks is not known: send Authorization: Bearer TOKEN with an approver's token, or log in on the page",
}

// caller is the holder of the request's bearer token, or of the session that its cookie names. A cookie is
// sent by the browser whoever made the page: it counts for a change only when the browser says that the page
// is ours.
func (h *Handler) caller(r *http.Request) (*caller, error) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		a := h.approvers[sha256.Sum256([]byte(strings.TrimSpace(token)))]
		if a == nil || !strings.EqualFold(scheme, "Bearer") {
			return nil, errUnknown
		}
		return &caller{name: a.Name, tenant: a.Tenant, via: "api"}, nil
	}
	a := h.visitor(r)
	if a == nil {
		return nil, errUnknown
	}
	if !isSafe(r.Method) && !saysOrigin(r) {
		return nil, &problem{Status: http.StatusForbidden, Outcome: "forbidden", Message: "a change with a cookie must come from our own page"}
	}
	return &caller{name: a.Name, tenant: a.Tenant, via: "page"}, nil
}

func isSafe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// saysOrigin reports whether a browser has said whose page sends the request; that it is ours guard has seen.
func saysOrigin(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") == "same-origin"
}
