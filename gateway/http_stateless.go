package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/undolog/undolog/internal/splice"
)

// serveStateless takes a POST of the generation without sessions. The end of its response, whoever ends
// it, is the end of the request.
func (h *HTTPHandler) serveStateless(w http.ResponseWriter, r *http.Request, messages []*Message) {
	m := messages[0]
	switch {
	case len(messages) > 1:
		writeError(w, http.StatusBadRequest, nil, codeInvalidRequest, "batches are not part of this protocol revision")
		return
	case m.IsResponse():
		writeError(w, http.StatusBadRequest, nil, codeInvalidRequest, "a client sends no responses in this protocol revision")
		return
	}
	if err := checkStandardHeaders(r.Header, m); err != nil {
		writeError(w, http.StatusBadRequest, m.ID, codeHeaderMismatch, err.Error())
		return
	}
	if m.IsNotification() {
		h.takeNotification(w, r, m)
		return
	}
	if text := missingMeta(m); text != "" {
		writeError(w, http.StatusBadRequest, m.ID, codeInvalidParams, text)
		return
	}
	if m.Method == methodInitialize {
		writeError(w, http.StatusNotFound, m.ID, codeMethodNotFound, "this protocol revision has no initialize")
		return
	}
	h.doStateless(w, r, m)
}

// missingMeta says what a request's _meta lacks.
func missingMeta(m *Message) string {
	if _, ok := stringAt(m.Params, "_meta", metaProtocol); !ok {
		return "_meta lacks " + metaProtocol
	}
	if caps := splice.Get(m.Params, "_meta", metaCapabilities); len(caps) == 0 || caps[0] != '{' {
		return "_meta lacks " + metaCapabilities
	}
	return ""
}

// takeNotification passes a notification on. A cancellation is said by closing the response in this
// generation; one that comes as a message names an id that means nothing outside its own POST.
func (h *HTTPHandler) takeNotification(w http.ResponseWriter, r *http.Request, m *Message) {
	if m.Method != methodCancelled {
		if err := h.gw.Do(r.Context(), h.callerOf(r), m, nil); err != nil {
			h.logger.Warn("notification not relayed", slog.String("method", m.Method), slog.Any("error", err))
		}
	}
	w.WriteHeader(http.StatusAccepted)
}

func (h *HTTPHandler) callerOf(r *http.Request) AgentInfo {
	info := h.caller(r)
	info.Protocol = r.Header.Get(protocolHeader)
	return info
}

// doStateless relays one request and what belongs to it. An end of ours awaits a tool's answer, as it does
// in sessions, and cuts off whatever else may go on for ever.
func (h *HTTPHandler) doStateless(w http.ResponseWriter, r *http.Request, m *Message) {
	if !h.begin() {
		w.Header().Set("Retry-After", "1")
		writeError(w, http.StatusServiceUnavailable, m.ID, codeInternal, "this gateway is about to end and takes no more calls: nothing was sent")
		return
	}
	defer h.work.Done()
	stream := newAnswerStream(w, r, true)
	stream.single, stream.before = true, statelessStatus
	defer stream.close()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if m.Method != methodToolsCall {
		defer context.AfterFunc(h.life, cancel)()
	}
	pinged := make(chan struct{})
	go func() {
		defer close(pinged)
		stream.keepAliveUntil(ctx, h.opts.KeepAlive)
	}()
	err := h.gw.Do(ctx, h.callerOf(r), m, func(out *Message) error {
		return stream.send(out, out.IsResponse())
	})
	if err != nil && ctx.Err() == nil {
		h.logger.Warn("request not relayed", slog.String("method", m.Method), slog.Any("error", err))
		stream.send(NewError(m.ID, codeInternal, err.Error(), nil), true) // a stream that is closed already has had its answer
	}
	cancel()
	<-pinged
}

// begin counts a request as work that Close waits for; false once it has been called.
func (h *HTTPHandler) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.work.Add(1)
	return true
}

// statelessStatus is the HTTP status that goes with a first message.
func statelessStatus(first *Message, _ http.Header) int {
	if first == nil || first.Error == nil {
		return http.StatusOK
	}
	var e struct {
		Code int64 `json:"code"`
	}
	if json.Unmarshal(first.Error, &e) != nil {
		return http.StatusOK
	}
	switch e.Code {
	case codeMethodNotFound:
		return http.StatusNotFound
	case codeParse, codeInvalidRequest, codeInvalidParams, codeHeaderMismatch, -32021, -32022:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
