// Package effectjson is how effects, requests for approval and standing grants are written as JSON, by the
// commands and by the HTTP API alike. Of an effect it has what everybody may know who may see it; what only its
// caller may know is added by who may show that.
package effectjson

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/undolog/undolog/effect"
)

// Effect is an effect, without what only its caller may know.
type Effect struct {
	ID         string          `json:"id"` // UUIDv7
	Seq        int64           `json:"seq"`
	At         time.Time       `json:"at"`
	ChangedAt  time.Time       `json:"changedAt"`
	State      effect.State    `json:"state"`
	Tenant     string          `json:"tenant"`
	Principal  string          `json:"principal,omitempty"`
	Session    string          `json:"session,omitempty"`
	Trace      string          `json:"trace,omitempty"`
	Server     string          `json:"server"`
	Tool       string          `json:"tool"`
	Tier       effect.Tier     `json:"tier"`
	Identity   effect.Rule     `json:"identity"`
	Generation int             `json:"generation"`
	Attempt    int             `json:"attempt"`
	Ordinal    int             `json:"ordinal"`
	Run        string          `json:"run,omitempty"`
	Contract   string          `json:"contract,omitempty"` // where the tier and the rest came from
	By         string          `json:"by,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Delivered  bool            `json:"delivered"`
	Arguments  json.RawMessage `json:"arguments,omitempty"` // as they were asked for
	Approval   *Request        `json:"approval,omitempty"`
	Answer     *Answer         `json:"answer,omitempty"`
}

// Of is a record as it stands at a time.
func Of(r *effect.Record, now time.Time) Effect {
	return Effect{
		ID: r.ID, Seq: r.Seq, At: r.CreatedAt, ChangedAt: r.ChangedAt, State: r.StateAt(now), Tenant: r.Tenant,
		Principal: r.Principal, Session: r.Session, Trace: r.Trace, Server: r.Server, Tool: r.Tool, Tier: r.Tier,
		Identity: r.Rule, Generation: r.Generation, Attempt: r.Attempt, Ordinal: r.Ordinal, Run: r.Run, Contract: r.Source,
		By: r.By, Reason: r.Reason, Delivered: r.Delivered, Arguments: Raw(r.Arguments),
		Approval: requestOf(r.Approval), Answer: AnswerOf(r.Answer),
	}
}

// Answer is what a target answered.
type Answer struct {
	Kind    effect.AnswerKind `json:"kind"` // result or error
	IsError bool              `json:"isError,omitempty"`
	Pruned  bool              `json:"pruned,omitempty"` // no longer kept; body says so
	Body    json.RawMessage   `json:"body,omitempty"`
}

// AnswerOf is nil where there is no answer.
func AnswerOf(a effect.Answer) *Answer {
	if a.Kind == effect.AnswerNone {
		return nil
	}
	return &Answer{Kind: a.Kind, IsError: a.IsError, Pruned: a.Pruned, Body: Raw(a.Body)}
}

// Request is what is known of a request for approval. The handle by which its caller goes on is nobody else's
// to know.
type Request struct {
	ID          string          `json:"id"`
	RequestedAt time.Time       `json:"requestedAt"`
	DecideUntil time.Time       `json:"decideUntil"`
	RemindAt    time.Time       `json:"remindAt"`
	UseUntil    time.Time       `json:"useUntil,omitzero"` // absent: not approved
	Quorum      int             `json:"quorum"`
	Missing     int             `json:"missing"` // how many more people must approve
	Approvers   []string        `json:"approvers,omitempty"`
	Digest      string          `json:"digest"` // of the complete arguments that are approved
	Why         string          `json:"why,omitempty"`
	Edited      json.RawMessage `json:"edited,omitempty"` // the arguments that run, where a person changed them
	Votes       []effect.Vote   `json:"votes,omitempty"`
	Last        *effect.Vote    `json:"last,omitempty"`
}

func requestOf(a *effect.Approval) *Request {
	if a == nil {
		return nil
	}
	return &Request{
		ID: a.ID, RequestedAt: a.RequestedAt, DecideUntil: a.DecideUntil, RemindAt: a.RemindAt(), UseUntil: a.UseUntil,
		Quorum: a.Quorum, Missing: a.Missing(), Approvers: a.Approvers, Digest: a.Complete.String(), Why: a.Why,
		Edited: Raw(a.Arguments), Votes: a.Votes, Last: a.Last,
	}
}

// Grant is a standing grant.
type Grant struct {
	ID         string           `json:"id"`
	Kind       effect.GrantKind `json:"kind"`
	Server     string           `json:"server"`
	Tool       string           `json:"tool"`
	Principal  string           `json:"principal,omitempty"` // absent: any caller
	Digest     string           `json:"digest,omitempty"`    // of the arguments that it is for
	Where      string           `json:"where,omitempty"`
	Definition string           `json:"definition,omitempty"` // digest of the tool's definition that it holds for
	By         string           `json:"by"`
	Reason     string           `json:"reason,omitempty"`
	CreatedAt  time.Time        `json:"createdAt"`
	ExpiresAt  time.Time        `json:"expiresAt,omitzero"`
	RevokedAt  time.Time        `json:"revokedAt,omitzero"`
	RevokedBy  string           `json:"revokedBy,omitempty"`
	Active     bool             `json:"active"`
}

// GrantOf is a grant as it stands at a time.
func GrantOf(g *effect.Grant, now time.Time) *Grant {
	j := &Grant{
		ID: g.ID, Kind: g.Kind, Server: g.Server, Tool: g.Tool, Principal: g.Principal, Where: g.Where, By: g.By, Reason: g.Reason,
		CreatedAt: g.CreatedAt, ExpiresAt: g.ExpiresAt, RevokedAt: g.RevokedAt, RevokedBy: g.RevokedBy, Active: g.IsActive(now),
	}
	if !g.Complete.IsZero() {
		j.Digest = g.Complete.String()
	}
	if !g.Definition.IsZero() {
		j.Definition = g.Definition.String()
	}
	return j
}

// Event is something that happened to an effect and moved no state.
type Event struct {
	At     time.Time       `json:"at"`
	Kind   string          `json:"kind"`
	Detail json.RawMessage `json:"detail,omitempty"`
}

// EventOf leaves out whom and what the event is about: its effect says so.
func EventOf(ev *effect.Event) Event {
	return Event{At: ev.At, Kind: ev.Kind, Detail: Raw(ev.Detail)}
}

// Raw is JSON as the log has it; nil when it was taken away. The log has what a server sent, byte for byte, and
// that may not be UTF-8: whoever reads our JSON gets U+FFFD in place of such bytes.
func Raw(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	if !utf8.Valid(raw) {
		return bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	return raw
}
