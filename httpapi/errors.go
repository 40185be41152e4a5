package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// problem is an answer that is none of those that were asked for: what is not so, and what to do about it.
type problem struct {
	Status  int    `json:"-"`
	Outcome string `json:"outcome"`           // already, conflict, forbidden, not_found, invalid, unauthorized, unavailable, failed
	Message string `json:"message,omitempty"` // for a person

	Decision effect.DecisionKind `json:"decision,omitempty"` // already: what was decided; absent where a clock was first
	By       string              `json:"by,omitempty"`
	At       time.Time           `json:"at,omitzero"`
	Reason   string              `json:"reason,omitempty"`
	Same     bool                `json:"same,omitempty"`    // already: it was decided as this request wanted
	State    effect.State        `json:"state,omitempty"`   // where the effect stands
	Pointer  string              `json:"pointer,omitempty"` // invalid: into the body
}

func (p *problem) Error() string { return p.Message }

func invalid(pointer, format string, args ...any) *problem {
	return &problem{Status: http.StatusUnprocessableEntity, Outcome: "invalid", Pointer: pointer, Message: fmt.Sprintf(format, args...)}
}

// problemOf says an error of the log, or one of our own, as the API does.
func problemOf(err error, now time.Time) *problem {
	var (
		own       *problem
		decided   *effect.DecidedError
		forbidden *effect.ForbiddenError
		wrong     *effect.InvalidError
		conflict  *store.ConflictError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &decided):
		return &problem{
			Status: http.StatusConflict, Outcome: "already", Message: decided.Error(), Decision: decided.Kind,
			By: decided.By, At: decided.At, Reason: decided.Reason, Same: decided.Same, State: decided.State,
		}
	case errors.As(err, &forbidden) && forbidden.State != "":
		return &problem{Status: http.StatusConflict, Outcome: "conflict", Message: forbidden.Reason, State: forbidden.State}
	case errors.As(err, &forbidden):
		return &problem{Status: http.StatusForbidden, Outcome: "forbidden", Message: forbidden.Reason}
	case errors.As(err, &wrong):
		return invalid(wrong.Pointer, "%s", wrong.Reason)
	case errors.As(err, &conflict) && conflict.Record != nil:
		return conflictProblem(conflict, now)
	case errors.Is(err, store.ErrNotFound):
		return &problem{Status: http.StatusNotFound, Outcome: "not_found", Message: "the log has nothing of that id"}
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrUnreachable), errors.Is(err, store.ErrClosed):
		return &problem{Status: http.StatusServiceUnavailable, Outcome: "unavailable", Message: "the effect log does not answer: try again"}
	}
	return &problem{Status: http.StatusInternalServerError, Outcome: "failed", Message: "it failed on our side; the program's log says why"}
}

func conflictProblem(c *store.ConflictError, now time.Time) *problem {
	r, state := c.Record, c.Record.StateAt(now)
	p := &problem{Status: http.StatusConflict, Outcome: "conflict", State: state, By: r.By, At: r.ChangedAt, Reason: r.Reason}
	p.Message = fmt.Sprintf("the effect is %s since %s: nothing was changed", state, r.ChangedAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	if r.By != "" {
		p.Outcome = "already"
		p.Message = fmt.Sprintf("already %s by %s at %s: nothing was changed", state, r.By, r.ChangedAt.UTC().Format("2006-01-02 15:04:05 UTC"))
		p.Same = state == c.Want
	}
	return p
}

// fail answers a request with what went wrong.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if isGone(r, err) {
		return
	}
	p := problemOf(err, h.log.Now())
	switch p.Status {
	case http.StatusInternalServerError, http.StatusServiceUnavailable:
		h.opts.Logger.ErrorContext(r.Context(), "request not answered", slog.String("path", r.URL.Path), slog.Any("error", err))
		w.Header().Set("Retry-After", "2")
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="undolog"`)
	}
	writeJSON(w, p.Status, p)
}
