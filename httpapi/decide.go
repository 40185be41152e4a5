package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/timespan"
	"github.com/undolog/undolog/store"
)

// decideBody is what a decision may say.
type decideBody struct {
	Digest    string          `json:"digest"`    // of the arguments that the person saw; required to approve
	Request   string          `json:"request"`   // the request that the person saw; absent: not checked
	Reason    string          `json:"reason"`    // required to deny, to edit and to withdraw
	Arguments json.RawMessage `json:"arguments"` // to edit: those that are to be approved instead
	For       string          `json:"for"`       // to extend: from now, such as 2h
}

func (h *Handler) approve(w http.ResponseWriter, r *http.Request, who *caller) error {
	return h.decideOne(w, r, who, effect.DecideApprove)
}

func (h *Handler) deny(w http.ResponseWriter, r *http.Request, who *caller) error {
	return h.decideOne(w, r, who, effect.DecideDeny)
}

func (h *Handler) edit(w http.ResponseWriter, r *http.Request, who *caller) error {
	return h.decideOne(w, r, who, effect.DecideEdit)
}

func (h *Handler) extend(w http.ResponseWriter, r *http.Request, who *caller) error {
	return h.decideOne(w, r, who, effect.DecideExtend)
}

func (h *Handler) reopen(w http.ResponseWriter, r *http.Request, who *caller) error {
	return h.decideOne(w, r, who, effect.DecideReopen)
}

func (h *Handler) withdraw(w http.ResponseWriter, r *http.Request, who *caller) error {
	return h.decideOne(w, r, who, effect.DecideWithdraw)
}

func (h *Handler) decideOne(w http.ResponseWriter, r *http.Request, who *caller, kind effect.DecisionKind) error {
	var body decideBody
	if err := h.readBody(w, r, &body); err != nil {
		return err
	}
	record, err := h.decide(r.Context(), r.PathValue("id"), kind, &body, who)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, effectToJSON(record, h.log.Now()))
	return nil
}

// decide records what a person decides. A decision is not given up when who made it leaves meanwhile.
func (h *Handler) decide(ctx context.Context, id string, kind effect.DecisionKind, body *decideBody, who *caller) (*effect.Record, error) {
	d, err := body.decision(kind, who)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	return h.log.Decide(ctx, &store.DecideParams{Tenant: who.tenant, ID: id, Decision: *d})
}

func (b *decideBody) decision(kind effect.DecisionKind, who *caller) (*effect.Decision, error) {
	d := &effect.Decision{Kind: kind, By: who.name, Via: who.via, Reason: b.Reason, Request: b.Request}
	switch {
	case kind == effect.DecideApprove && b.Digest == "":
		return nil, invalid("/digest", "send the digest of the arguments that are approved: GET the approval, it is in approval.digest")
	case kind == effect.DecideEdit && b.Arguments == nil:
		return nil, invalid("/arguments", "send the arguments that are to be approved instead, an object")
	case kind == effect.DecideEdit:
		d.Arguments = b.Arguments
	case kind == effect.DecideExtend:
		var err error
		if d.Extend, err = timespan.Parse(b.For); err != nil {
			return nil, invalid("/for", "say how long from now, such as 30m, 2h or 1d")
		}
	}
	if b.Digest != "" {
		var err error
		if d.Complete, err = effect.ParseDigest(b.Digest); err != nil {
			return nil, invalid("/digest", "that is no digest: want b3: and 64 hex digits, as in approval.digest")
		}
	}
	return d, nil
}

// manyBody are decisions on several effects, each of its own.
type manyBody struct {
	Decisions []oneOfMany `json:"decisions"`
}

type oneOfMany struct {
	ID       string              `json:"id"`       // of the effect
	Decision effect.DecisionKind `json:"decision"` // approve or deny
	Digest   string              `json:"digest"`   // of the arguments that the person saw; required
	Request  string              `json:"request"`
	Reason   string              `json:"reason"`
}

type outcomesJSON struct {
	Outcomes []outcomeJSON `json:"outcomes"` // in the order of the decisions
}

// outcomeJSON is what came of one of several decisions.
type outcomeJSON struct {
	ID     string      `json:"id"`
	Effect *effectJSON `json:"effect,omitempty"` // as it now is, where the decision was recorded
	*problem
}

// maxDecisions bounds what is decided in one request.
const maxDecisions = 200

func (h *Handler) decideMany(w http.ResponseWriter, r *http.Request, who *caller) error {
	var body manyBody
	if err := h.readBody(w, r, &body); err != nil {
		return err
	}
	if n := len(body.Decisions); n == 0 || n > maxDecisions {
		return invalid("/decisions", "send from 1 to %d decisions", maxDecisions)
	}
	var said outcomesJSON
	for i := range body.Decisions {
		said.Outcomes = append(said.Outcomes, h.decideOneOf(r.Context(), &body.Decisions[i], who))
	}
	writeJSON(w, http.StatusOK, said)
	return nil
}

func (h *Handler) decideOneOf(ctx context.Context, one *oneOfMany, who *caller) outcomeJSON {
	var record *effect.Record
	var err error
	switch {
	case one.Decision != effect.DecideApprove && one.Decision != effect.DecideDeny:
		err = invalid("/decision", "of several, each is approved or denied: say approve or deny")
	case one.Digest == "":
		err = invalid("/digest", "send the digest of the arguments that were seen, from approval.digest")
	default:
		record, err = h.decide(ctx, one.ID, one.Decision, &decideBody{Digest: one.Digest, Request: one.Request, Reason: one.Reason}, who)
	}
	if err != nil {
		return outcomeJSON{ID: one.ID, problem: problemOf(err, h.log.Now())}
	}
	return outcomeJSON{ID: one.ID, problem: &problem{Outcome: "done"}, Effect: effectToJSON(record, h.log.Now())}
}
