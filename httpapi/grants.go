package httpapi

import (
	"net/http"
	"strings"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/effectjson"
	"github.com/undolog/undolog/internal/timespan"
	"github.com/undolog/undolog/store"
)

type grantsJSON struct {
	Grants []*effectjson.Grant `json:"grants"` // newest first
}

func (h *Handler) listGrants(w http.ResponseWriter, r *http.Request, who *caller) error {
	query := r.URL.Query()
	grants, err := h.log.Grants(r.Context(), &store.GrantFilter{
		Tenant: who.tenant, Server: query.Get("server"), Tool: query.Get("tool"), Active: query.Get("active") == "true", Limit: 1000,
	})
	if err != nil {
		return err
	}
	list, now := grantsJSON{Grants: []*effectjson.Grant{}}, h.log.Now()
	for _, g := range grants {
		list.Grants = append(list.Grants, effectjson.GrantOf(g, now))
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// grantBody says which calls are approved in advance: those like an effect's, with its exact arguments, or
// those of a server's tool for which a condition holds, or all of them.
type grantBody struct {
	Effect    string `json:"effect"`
	Server    string `json:"server"`
	Tool      string `json:"tool"`
	Where     string `json:"where"`
	Any       bool   `json:"any"` // all calls of the tool: to be said, not to be forgotten
	Principal string `json:"principal"`
	For       string `json:"for"` // how long it holds, such as 8h
	Forever   bool   `json:"forever"`
	Reason    string `json:"reason"`
}

func (h *Handler) giveGrant(w http.ResponseWriter, r *http.Request, who *caller) error {
	var body grantBody
	if err := h.readBody(w, r, &body); err != nil {
		return err
	}
	g, err := h.grantOf(r, &body, who)
	if err != nil {
		return err
	}
	made, err := h.log.Grant(r.Context(), *g)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, effectjson.GrantOf(made, h.log.Now()))
	return nil
}

func (h *Handler) grantOf(r *http.Request, body *grantBody, who *caller) (*effect.Grant, error) {
	g := &effect.Grant{
		Tenant: who.tenant, Server: body.Server, Tool: body.Tool, Where: body.Where, Principal: body.Principal, By: who.name, Reason: body.Reason,
	}
	if err := body.check(); err != nil {
		return nil, err
	}
	if !body.Forever {
		holds, err := timespan.Parse(body.For)
		if err != nil || holds <= 0 {
			return nil, invalid("/for", "say how long the grant holds, such as 8h or 2d, or forever: true")
		}
		g.ExpiresAt = h.log.Now().Add(holds)
	}
	switch {
	case body.Effect != "":
		shown, err := h.log.Show(r.Context(), who.tenant, body.Effect)
		if err != nil {
			return nil, err
		}
		of := shown.Record
		g.Kind, g.Server, g.Tool, g.Complete = effect.GrantExact, of.Server, of.Tool, of.Complete
	case body.Any:
		g.Kind = effect.GrantTool
	default:
		g.Kind = effect.GrantWhere
	}
	return g, h.bind(r, g)
}

// check wants exactly one of the three ways to say which calls, and a reason.
func (b *grantBody) check() error {
	ways := 0
	for _, said := range []bool{b.Effect != "", b.Where != "", b.Any} {
		if said {
			ways++
		}
	}
	switch {
	case ways != 1:
		return invalid("", "say which calls by one of effect, where and any")
	case b.Effect == "" && (b.Server == "" || b.Tool == ""):
		return invalid("", "name the server and the tool")
	case strings.TrimSpace(b.Reason) == "":
		return invalid("/reason", "say why")
	}
	return nil
}

// bind lets the grant hold for the tool's definition as it is known now.
func (h *Handler) bind(r *http.Request, g *effect.Grant) error {
	tools, err := h.log.Tools(r.Context(), g.Tenant, g.Server)
	if err != nil {
		return err
	}
	for _, t := range tools {
		if t.Name == g.Tool {
			g.Definition = t.Digest
		}
	}
	return nil
}

// reasonBody is why a person does something.
type reasonBody struct {
	Reason string `json:"reason"`
}

func (h *Handler) revokeGrant(w http.ResponseWriter, r *http.Request, who *caller) error {
	var body reasonBody
	if err := h.readBody(w, r, &body); err != nil {
		return err
	}
	g, revoked, err := h.log.Revoke(r.Context(), who.tenant, r.PathValue("id"), who.name, body.Reason)
	switch {
	case err != nil:
		return err
	case !revoked:
		at := g.RevokedAt.UTC().Format("2006-01-02 15:04:05 UTC")
		return &problem{
			Status: http.StatusConflict, Outcome: "already", Message: "already revoked by " + g.RevokedBy + " at " + at,
			By: g.RevokedBy, At: g.RevokedAt, Same: true,
		}
	}
	writeJSON(w, http.StatusOK, effectjson.GrantOf(g, h.log.Now()))
	return nil
}
