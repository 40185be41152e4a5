package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/effectjson"
	"github.com/undolog/undolog/store"
)

// effectJSON is an effect as the API shows it.
type effectJSON struct {
	effectjson.Effect
	Preview string `json:"preview"` // the beginning of the arguments that run, as one line for the eye
}

func effectToJSON(r *effect.Record, now time.Time) *effectJSON {
	return &effectJSON{Effect: effectjson.Of(r, now), Preview: preview(r.Executed())}
}

// effectsJSON is a page of a list, newest first. Next goes on with it.
type effectsJSON struct {
	Now     time.Time     `json:"now"`
	Effects []*effectJSON `json:"effects"`
	Next    int64         `json:"next,omitempty"` // for ?before=; absent: there are no more
}

// list reads a page of what a filter selects. One more than its limit tells that there are more.
func (h *Handler) list(ctx context.Context, f *store.Filter) (*effectsJSON, error) {
	more := *f
	more.Limit++
	records, err := h.log.List(ctx, &more)
	if err != nil {
		return nil, err
	}
	now := h.log.Now()
	list := &effectsJSON{Now: now, Effects: make([]*effectJSON, 0, len(records))}
	if len(records) > f.Limit {
		records = records[:f.Limit]
		list.Next = records[f.Limit-1].Seq
	}
	for _, r := range records {
		list.Effects = append(list.Effects, effectToJSON(r, now).brief())
	}
	return list, nil
}

// briefSize is how much of a payload is listed; what is larger is shown with its effect alone.
const briefSize = 16 << 10

// brief is the effect without payloads that would make a list too large.
func (e *effectJSON) brief() *effectJSON {
	if len(e.Arguments) > briefSize {
		e.Arguments = nil
	}
	if a := e.Approval; a != nil && len(a.Edited) > briefSize {
		a.Edited = nil
	}
	if a := e.Answer; a != nil && len(a.Body) > briefSize {
		a.Body = nil
	}
	return e
}

// filter reads what is selected by a query; otherwise is how many where it does not say.
func filter(query url.Values, who *caller, otherwise int64) (*store.Filter, error) {
	f := &store.Filter{Tenant: who.tenant, Run: query.Get("run"), Server: query.Get("server"), Tool: query.Get("tool")}
	limit, err := number(query, "limit", otherwise)
	if err != nil {
		return nil, err
	}
	if f.Before, err = number(query, "before", 0); err != nil {
		return nil, err
	}
	if f.Limit = int(limit); f.Limit < 1 || f.Limit > 1000 {
		return nil, invalid("/limit", "limit must be from 1 to 1000")
	}
	for _, s := range query["state"] {
		if !slices.Contains(states, effect.State(s)) {
			return nil, invalid("/state", "there is no state of that name; /openapi.json lists them")
		}
		f.States = append(f.States, effect.State(s))
	}
	return f, nil
}

var states = []effect.State{
	effect.StateAwaitingApproval, effect.StateClaimed, effect.StateWaiting, effect.StateCommitted, effect.StateFailed,
	effect.StateReleased, effect.StateInDoubt, effect.StateDenied, effect.StateExpired, effect.StateVoid,
	effect.StateCompensating, effect.StateCompensated, effect.StateCompensationFailed,
}

func number(query url.Values, name string, otherwise int64) (int64, error) {
	text := query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, invalid("/"+name, "%s must be a number", name)
	}
	return n, nil
}

func (h *Handler) listEffects(w http.ResponseWriter, r *http.Request, who *caller) error {
	f, err := filter(r.URL.Query(), who, listLimit)
	if err != nil {
		return err
	}
	list, err := h.list(r.Context(), f)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

const (
	// listLimit is how many effects are listed where a query does not say.
	listLimit = 100
	// pendingLimit is that for those that wait.
	pendingLimit = 1000
)

// listPending lists what waits for somebody.
func (h *Handler) listPending(w http.ResponseWriter, r *http.Request, who *caller) error {
	query := r.URL.Query()
	if query.Has("state") {
		return invalid("/state", "what is pending is what waits, in three states: GET /v1/effects selects by state")
	}
	f, err := filter(query, who, pendingLimit)
	if err != nil {
		return err
	}
	list, err := h.list(r.Context(), f.Waiting())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// shownJSON is an effect with its history.
type shownJSON struct {
	*effectJSON
	Text        string             `json:"text"`                 // the arguments that run or ran, for the eye: nothing in it is invisible
	AnswerText  string             `json:"answerText,omitempty"` // the answer in the same way
	Transitions []transitionJSON   `json:"transitions"`
	Events      []effectjson.Event `json:"events"`
}

type transitionJSON struct {
	Ordinal int          `json:"ordinal"`
	Attempt int          `json:"attempt"`
	State   effect.State `json:"state"`
	At      time.Time    `json:"at"`
	By      string       `json:"by,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Last    *effect.Vote `json:"decision,omitempty"` // what had been decided last by then
}

func (h *Handler) showEffect(w http.ResponseWriter, r *http.Request, who *caller) error {
	shown, err := h.log.Show(r.Context(), who.tenant, r.PathValue("id"))
	if err != nil {
		return err
	}
	record := shown.Record
	writeJSON(w, http.StatusOK, shownJSON{
		effectJSON: effectToJSON(record, h.log.Now()), Text: legible(record.Executed()), AnswerText: legible(record.Answer.Body),
		Transitions: transitionsToJSON(shown.Transitions), Events: eventsToJSON(shown.Events),
	})
	return nil
}

func transitionsToJSON(moves []effect.Transition) []transitionJSON {
	list := make([]transitionJSON, 0, len(moves))
	for _, m := range moves {
		t := transitionJSON{Ordinal: m.Ordinal, Attempt: m.Attempt, State: m.State, At: m.At, By: m.By, Reason: m.Reason}
		if m.Approval != nil {
			t.Last = m.Approval.Last
		}
		list = append(list, t)
	}
	return list
}

// maxEvents bounds what is shown of an effect that was replayed very often: the newest.
const maxEvents = 200

func eventsToJSON(events []effect.Event) []effectjson.Event {
	events = events[max(0, len(events)-maxEvents):]
	list := make([]effectjson.Event, 0, len(events))
	for i := range events {
		list = append(list, effectjson.EventOf(&events[i]))
	}
	return list
}
