package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"

	"github.com/undolog/undolog/internal/splice"
)

// serveSessionPost takes a POST of the generation with sessions.
func (h *HTTPHandler) serveSessionPost(w http.ResponseWriter, r *http.Request, messages []*Message, accepts accepts) {
	begins := len(messages) == 1 && messages[0].Method == methodInitialize && messages[0].ID != nil && r.Header.Get(sessionHeader) == ""
	var a *httpAgent
	if begins {
		if a = h.open(w, r); a == nil {
			return
		}
	} else if a = h.lookup(w, r); a == nil {
		return
	}
	a.hold()
	defer a.release()
	requests := 0
	for _, m := range messages {
		if m.IsRequest() {
			requests++
		}
	}
	switch {
	case requests == 0:
		a.take(w, r, messages)
	case requests > 1 && !accepts.events:
		http.Error(w, "Accept must list text/event-stream for a batch", http.StatusNotAcceptable)
	default:
		h.serveRequests(w, r, a, messages, accepts.events, begins)
	}
}

// serveRequests passes requests on and keeps the response open for what belongs to them.
func (h *HTTPHandler) serveRequests(w http.ResponseWriter, r *http.Request, a *httpAgent, messages []*Message, events, begins bool) {
	stream := newAnswerStream(w, r, events)
	defer stream.close()
	if begins {
		stream.before = a.introduce
		defer func() {
			if !stream.hasResult() {
				a.cancel() // refused, or its agent has gone
			}
		}()
	}
	if _, err := a.begin(messages, stream); err != nil {
		writeRefusal(w, err)
		return
	}
	for _, m := range messages {
		// What has been read is passed on whether or not the agent waits for its answer: in this
		// generation a closed response is not a cancellation.
		if err := a.push(context.WithoutCancel(r.Context()), m); err != nil {
			a.endRequests(messages, err.Error())
			return
		}
		a.noteCancel(m)
	}
	stop := context.AfterFunc(r.Context(), stream.close)
	defer stop()
	defer context.AfterFunc(a.ended, func() {
		a.endRequests(messages, "the session has ended; what became of the request is not known here, the gateway's log says why it ended")
		stream.close()
	})()
	stream.keepAliveUntil(r.Context(), h.opts.KeepAlive)
}

// take passes on a POST that asks for no answer.
func (a *httpAgent) take(w http.ResponseWriter, r *http.Request, messages []*Message) {
	for _, m := range messages {
		if err := a.push(r.Context(), m); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		a.noteCancel(m)
	}
	w.WriteHeader(http.StatusAccepted)
}

// noteCancel ends the stream of a request that m cancels.
func (a *httpAgent) noteCancel(m *Message) {
	if m.Method == methodCancelled {
		a.abandon(splice.Get(m.Params, "requestId"))
	}
}

// endRequests answers what is still unanswered of a POST.
func (a *httpAgent) endRequests(messages []*Message, text string) {
	for _, m := range messages {
		if m.IsRequest() {
			a.answer(NewError(m.ID, codeInternal, text, nil)) // an agent that has gone needs none
		}
	}
}

// introduce gives the agent its session id with the headers, which go out ahead of the answer of an upstream that takes
// its time to start. An initialize that is refused, or whose agent leaves before the answer, leaves no session.
func (a *httpAgent) introduce(first *Message, h http.Header) (status int) {
	if first == nil || first.Error == nil {
		h.Set(sessionHeader, a.id)
	}
	return http.StatusOK
}

// serveGet opens the stream for messages that belong to no request.
func (h *HTTPHandler) serveGet(w http.ResponseWriter, r *http.Request) {
	if !acceptsOf(r.Header).events {
		http.Error(w, "Accept must list text/event-stream", http.StatusNotAcceptable)
		return
	}
	a := h.lookup(w, r)
	if a == nil {
		return
	}
	a.hold()
	defer a.release()
	stream := newAnswerStream(w, r, true)
	defer stream.close()
	a.listen(stream) // before the agent hears of it: what it opens next is newer
	defer a.unlisten(stream)
	if stream.open() != nil || a.catchUp(stream) != nil {
		return
	}
	defer context.AfterFunc(a.ended, stream.close)()
	stream.keepAliveUntil(r.Context(), h.opts.KeepAlive)
}

// serveDelete ends a session.
func (h *HTTPHandler) serveDelete(w http.ResponseWriter, r *http.Request) {
	a := h.lookup(w, r)
	if a == nil {
		return
	}
	h.forget(a)
	a.cancel()
	w.WriteHeader(http.StatusNoContent)
}

// open begins a session with a relay and an upstream of its own. When it returns nil it has answered.
func (h *HTTPHandler) open(w http.ResponseWriter, r *http.Request) *httpAgent {
	ctx, cancel := context.WithCancel(h.life)
	id := rand.Text()
	info := h.caller(r)
	info.Session = id
	a := newHTTPAgent(id, info, &h.opts, cancel)
	if text := h.enter(a); text != "" {
		cancel()
		a.Close()
		http.Error(w, text, http.StatusServiceUnavailable)
		return nil
	}
	go h.relay(ctx, a)
	return a
}

// enter adds a to the sessions, or says why not.
func (h *HTTPHandler) enter(a *httpAgent) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return "the gateway is shutting down"
	case len(h.sessions) >= h.opts.MaxSessions:
		return "too many sessions"
	}
	h.sessions[a.id] = a
	h.work.Add(1)
	return ""
}

// relay runs the session until its agent has gone.
func (h *HTTPHandler) relay(ctx context.Context, a *httpAgent) {
	defer h.work.Done()
	defer a.cancel()
	err := h.gw.Serve(ctx, a, a.info)
	if err != nil && !errors.Is(err, context.Canceled) {
		a.logger.Warn("session ended", slog.Any("error", err))
	}
	h.forget(a)
	a.Close()
}

func (h *HTTPHandler) forget(a *httpAgent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, a.id)
}

// lookup finds the session that r names and that its sender owns. When it returns nil it has answered.
func (h *HTTPHandler) lookup(w http.ResponseWriter, r *http.Request) *httpAgent {
	id := r.Header.Get(sessionHeader)
	if id == "" {
		http.Error(w, "the Mcp-Session-Id header is missing; a session begins with initialize", http.StatusBadRequest)
		return nil
	}
	h.mu.Lock()
	a := h.sessions[id]
	h.mu.Unlock()
	if a == nil {
		http.Error(w, "no such session", http.StatusNotFound)
		return nil
	}
	if who := h.caller(r); who.Principal != a.info.Principal || who.Tenant != a.info.Tenant {
		http.Error(w, "the session belongs to somebody else", http.StatusForbidden)
		return nil
	}
	return a
}
