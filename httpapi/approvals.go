package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/effectjson"
	"github.com/undolog/undolog/store"
)

// listApprovals lists what waits for approval, or what a query selects of what has.
func (h *Handler) listApprovals(w http.ResponseWriter, r *http.Request, who *caller) error {
	f, err := filter(r.URL.Query(), who, listLimit)
	if err != nil {
		return err
	}
	if len(f.States) == 0 {
		f.States = []effect.State{effect.StateAwaitingApproval}
	}
	list, err := h.list(r.Context(), f)
	if err != nil {
		return err
	}
	asked := list.Effects[:0]
	for _, e := range list.Effects {
		if e.Approval != nil {
			asked = append(asked, e)
		}
	}
	list.Effects = asked
	writeJSON(w, http.StatusOK, list)
	return nil
}

// approvalJSON is all that a person needs to decide.
type approvalJSON struct {
	*effectJSON
	Now               time.Time        `json:"now"`
	Text              string           `json:"text"`                   // the arguments that run, for the eye: nothing in it is invisible
	OriginalText      string           `json:"originalText,omitempty"` // those that were asked for, where a person changed them
	Definition        json.RawMessage  `json:"definition,omitempty"`   // the tool's, as its server last listed it
	DefinitionChanged bool             `json:"definitionChanged"`      // since approval was asked for
	MayDecide         bool             `json:"mayDecide"`              // who asks, now
	WhyNot            string           `json:"whyNot,omitempty"`
	Recent            []recentJSON     `json:"recent"` // what the run, else the caller at that server, did lately
	Transitions       []transitionJSON `json:"transitions"`
}

// recentJSON is a line on another effect.
type recentJSON struct {
	ID      string       `json:"id"`
	At      time.Time    `json:"at"`
	State   effect.State `json:"state"`
	Server  string       `json:"server"`
	Tool    string       `json:"tool"`
	Preview string       `json:"preview"`
}

func (h *Handler) showApproval(w http.ResponseWriter, r *http.Request, who *caller) error {
	shown, err := h.log.Show(r.Context(), who.tenant, r.PathValue("id"))
	if err != nil {
		return err
	}
	if shown.Record.Approval == nil {
		return &problem{Status: http.StatusNotFound, Outcome: "not_found", Message: "nobody was asked to approve this effect"}
	}
	a, err := h.approval(r.Context(), shown, who)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, a)
	return nil
}

func (h *Handler) approval(ctx context.Context, shown *store.Shown, who *caller) (*approvalJSON, error) {
	r, now := shown.Record, h.log.Now()
	a := &approvalJSON{
		effectJSON: effectToJSON(r, now), Now: now, Text: legible(r.Executed()), Transitions: transitionsToJSON(shown.Transitions),
	}
	if r.Approval.Arguments != nil {
		a.OriginalText = legible(r.Arguments)
	}
	a.WhyNot = whyNot(r, who, now)
	a.MayDecide = a.WhyNot == ""
	if err := h.describe(ctx, r, a); err != nil {
		return nil, err
	}
	var err error
	a.Recent, err = h.recent(ctx, r)
	return a, err
}

// whyNot says why somebody cannot approve an effect as it stands; empty when they can.
func whyNot(r *effect.Record, who *caller, now time.Time) string {
	_, err := r.Decided(&effect.Decision{Kind: effect.DecideApprove, By: who.name, Via: who.via}, now)
	if err == nil {
		return ""
	}
	return problemOf(err, now).Message
}

// describe says what the tool is.
func (h *Handler) describe(ctx context.Context, r *effect.Record, a *approvalJSON) error {
	tools, err := h.log.Tools(ctx, r.Tenant, r.Server)
	if err != nil {
		return err
	}
	for _, t := range tools {
		if t.Name == r.Tool {
			a.Definition = effectjson.Raw(t.Definition)
			a.DefinitionChanged = !r.Approval.Definition.IsZero() && r.Approval.Definition != t.Digest
		}
	}
	return nil
}

const (
	recentCount = 10
	recentFor   = 24 * time.Hour
)

// recent lists what was done before the effect, by its run, else by its caller at that server.
func (h *Handler) recent(ctx context.Context, of *effect.Record) ([]recentJSON, error) {
	f := &store.Filter{Tenant: of.Tenant, Run: of.Run, Limit: recentCount + 1}
	if of.Run == "" {
		f.Server, f.Since, f.Limit = of.Server, of.CreatedAt.Add(-recentFor), 100
	}
	records, err := h.log.List(ctx, f)
	if err != nil {
		return nil, err
	}
	now, list := h.log.Now(), []recentJSON{}
	for _, r := range records {
		if r.ID == of.ID || r.Principal != of.Principal || len(list) == recentCount {
			continue
		}
		list = append(list, recentJSON{ID: r.ID, At: r.CreatedAt, State: r.StateAt(now), Server: r.Server, Tool: r.Tool, Preview: preview(r.Executed())})
	}
	return list, nil
}
