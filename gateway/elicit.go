package gateway

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/internal/splice"
)

// The ways to ask an agent's user, who sees a page or a form.
const (
	askByURL  = "url"
	askByForm = "form"
)

const (
	methodElicit         = "elicitation/create"
	methodElicitComplete = "notifications/elicitation/complete"
)

// abilities is how an agent says that its user can be asked.
type abilities struct{ form, url bool }

// abilitiesOf reads a client's capabilities. elicitation without a mode means forms, as it did before there
// were modes.
func abilitiesOf(capabilities json.RawMessage) abilities {
	e := splice.Get(capabilities, "elicitation")
	if splice.Kind(e) != '{' {
		return abilities{}
	}
	form, url := splice.Kind(splice.Get(e, "form")) == '{', splice.Kind(splice.Get(e, "url")) == '{'
	return abilities{form: form || !url, url: url}
}

// modeFor is how the user is asked about p: in a form where the user decides, else by a page where others
// decide too. Empty: not at all.
func (a abilities) modeFor(p *chain.Pause) string {
	switch {
	case p.Host && a.form:
		return askByForm
	case p.URL != "" && a.url:
		return askByURL
	}
	return ""
}

// decisionSchema is what the form asks for.
var decisionSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"approve":{"type":"boolean","title":"Approve","description":"Yes lets the call be made once, with exactly these arguments"},` +
	`"reason":{"type":"string","title":"Reason","description":"Why; the agent is told it with a no"}},"required":["approve"]}`)

// elicitParams is the question about p. numbered adds the id by which a session is told that the page is done
// with.
func elicitParams(p *chain.Pause, mode string, numbered bool) json.RawMessage {
	q := struct {
		Mode    string          `json:"mode"`
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema,omitempty"`
		URL     string          `json:"url,omitempty"`
		ID      string          `json:"elicitationId,omitempty"`
	}{Mode: mode, Message: p.Text}
	switch mode {
	case askByForm:
		q.Schema = decisionSchema
	case askByURL:
		q.URL = p.URL
		if numbered {
			q.ID = p.ID
		}
	}
	raw, err := json.Marshal(q)
	if err != nil {
		panic(err) // strings
	}
	return raw
}

// elicited is what the agent's user has answered. accept to a page means that it was opened, and no more.
type elicited struct {
	Action  string `json:"action"`
	Content struct {
		Approve *bool  `json:"approve"`
		Reason  string `json:"reason"`
	} `json:"content"`
}

func (e *elicited) declines() bool { return e.Action != "accept" }

// readElicited reads an answer; nil when it is none.
func readElicited(result json.RawMessage) *elicited {
	e := new(elicited)
	if splice.Kind(result) != '{' || json.Unmarshal(result, e) != nil || e.Action == "" {
		return nil
	}
	return e
}

// heed does what the user has answered about p. It reports whether the call is to be tried again.
func (c *core) heed(ctx context.Context, g *governed, x *chain.Exchange, p *chain.Pause, e *elicited) (again bool) {
	switch {
	case e == nil:
		return false
	case e.declines():
		g.wait.declined = true
		return false
	case e.Content.Approve == nil:
		return false
	}
	err := c.opts.Chain.Decide(ctx, x, p, &chain.Decision{Approve: *e.Content.Approve, Reason: e.Content.Reason})
	if err != nil {
		c.logger.Warn("decision of the agent's user not taken", slog.String("pause", p.ID), slog.Any("error", err))
	}
	return err == nil
}

// elicit asks the user of the agent's host on the stream of the request id. The answer comes on the channel,
// unless none ever comes; forget takes a question back that is still open.
func (s *session) elicit(id, params json.RawMessage) (answers <-chan *Message, forget func()) {
	m := NewRequest(s.newID(s.lastID.Add(1)), methodElicit, params)
	m.For = id
	a := &asking{id: m.ID, answers: make(chan *Message, 1), own: true}
	s.enterAsked(a)
	if s.toAgent(m) != nil {
		s.takeAsked(m.ID)
		return nil, func() {}
	}
	return a.answers, func() {
		if s.takeAsked(m.ID) != nil {
			_ = s.toAgent(NewNotification(methodCancelled, cancelParams(m.ID, "no longer asked"))) // an agent that is gone is noticed by its reader
		}
	}
}
