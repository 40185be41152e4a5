package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"
)

const (
	resumeAttempts = 3
	resumeDelay    = 500 * time.Millisecond
	lingerTime     = time.Second // for the end of a stream behind its answer, so that its connection is used again
)

// notApplied are the statuses that prove, when no JSON-RPC answer comes with them, that a request was
// not acted on: MCP answers so what it cannot accept (400, 404, 405, 406, 415), and HTTP what it did not
// let in (401, 403, 411, 413, 414, 421, 426, 429, 431) or wants sent elsewhere (307, 308). Everything
// else, 408 and 5xx above all, can come after the effect.
var notApplied = []int{307, 308, 400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 421, 426, 429, 431}

// readBody reads an answer in application/json.
func (c *httpUpstream) readBody(call *upstreamCall, resp *http.Response) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, c.maxResult+1))
	switch {
	case err != nil:
		c.lose(call, fmt.Errorf("read the upstream's answer: %w", err))
		return
	case int64(len(raw)) > c.maxResult:
		size := max(resp.ContentLength, int64(len(raw)))
		c.deliver(&Message{ID: call.id, Truncated: true, Size: size, For: call.id})
		return
	}
	if !c.receive(call, resp, raw) {
		c.lose(call, errors.New("the upstream's HTTP response carries no answer to the request"))
	}
}

// readStream reads an answer in text/event-stream. A stream that breaks off is taken up again where the
// upstream numbers its events; that asks for an answer once more, never for the work.
func (c *httpUpstream) readStream(call *upstreamCall, resp *http.Response) {
	var pos streamPosition
	for attempt := 0; ; attempt++ {
		seen := pos.lastID
		answered, err := c.readEvents(call, resp, &pos)
		if answered {
			return
		}
		if pos.lastID != seen {
			attempt = 0
		}
		if pos.lastID == "" || call.stateless || attempt == resumeAttempts {
			c.lose(call, fmt.Errorf("the upstream's response stream ended without an answer: %w", err))
			return
		}
		if resp, err = c.resume(resp.Request, &pos); err != nil {
			c.lose(call, fmt.Errorf("resume the upstream's response stream: %w", err))
			return
		}
	}
}

// streamPosition is how far a stream was read.
type streamPosition struct {
	lastID string
	retry  time.Duration
}

// readEvents passes on the events of one HTTP response. A nil call is the stream that belongs to no
// request. answered says that the call's answer was among them.
func (c *httpUpstream) readEvents(call *upstreamCall, resp *http.Response, pos *streamPosition) (answered bool, err error) {
	defer resp.Body.Close()
	events := newEventReader(resp.Body, c.maxResult)
	var linger *time.Timer
	for {
		ev, err := events.next()
		if err != nil {
			return answered, err
		}
		if ev.id != "" {
			pos.lastID = ev.id
		}
		if ev.retry > 0 {
			pos.retry = min(ev.retry, longestListenWait)
		}
		if len(ev.data) == 0 || ev.name != "" && ev.name != "message" {
			continue
		}
		if ev.cut {
			answered = c.receiveCut(call, ev) || answered
		} else {
			answered = c.receive(call, resp, ev.data) || answered
		}
		if answered && linger == nil {
			linger = time.AfterFunc(lingerTime, call.cancel)
			defer linger.Stop()
		}
	}
}

// receive passes on one message and reports whether it was the end of call.
func (c *httpUpstream) receive(call *upstreamCall, resp *http.Response, raw []byte) (answered bool) {
	m, err := ParseMessage(raw, upstreamLimits(&Limits{MaxBytes: c.maxResult}))
	var refused *RefusedError
	if errors.As(err, &refused) {
		c.logger.Warn("upstream sent a message that cannot be relayed", slog.Any("error", err))
		c.arrive(inbound{err: err})
		return refused.IsResponse() && call.isFor(refused.ID)
	}
	answered = m.IsResponse() && call.isFor(m.ID)
	if call != nil {
		m.For = call.id
	}
	if answered {
		c.learn(call, resp, m)
	}
	c.deliver(m)
	return answered
}

// receiveCut passes on what is left of an event above the limit.
func (c *httpUpstream) receiveCut(call *upstreamCall, ev *event) (answered bool) {
	var s scanner
	s.scan(ev.data)
	m := s.truncated()
	m.Size = ev.size
	if m.Method == "" && call != nil { // what is this big on a call's stream is its answer
		m.ID, m.For = call.id, call.id
		answered = true
	}
	c.deliver(m)
	return answered
}

// isFor reports whether id is the call's. There is no call on a stream of its own.
func (c *upstreamCall) isFor(id json.RawMessage) bool {
	return c != nil && idKey(c.id) == idKey(id)
}

// learn keeps what an answer says about the connection itself.
func (c *httpUpstream) learn(call *upstreamCall, resp *http.Response, m *Message) {
	switch {
	case m.Result == nil:
	case call.method == methodInitialize:
		c.noteInitialized(resp.Header.Get(sessionHeader), m.Result)
	case call.method == methodToolsList:
		c.tools.learn(m.Result)
	}
}

// refused turns an HTTP error into the answer of call.
func (c *httpUpstream) refused(call *upstreamCall, resp *http.Response) {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, refusalBodyLimit))
	m, err := ParseMessage(raw, nil)
	isError := err == nil && m.IsResponse() && m.Error != nil
	surely := slices.Contains(notApplied, resp.StatusCode)
	switch {
	case isError && call.isFor(m.ID):
		m.For = call.id
		c.deliver(m)
	case !surely:
		c.lose(call, fmt.Errorf("the upstream answered HTTP %s", resp.Status))
	default:
		var object json.RawMessage
		if isError {
			object = m.Error
		}
		c.deliver(refusalAnswer(call, resp.StatusCode, object))
	}
	if c.sessionGone(resp) {
		c.fail(ErrSessionGone)
	}
}

// refusalAnswer is the error for a request that the upstream's HTTP layer did not let in. Its code is one
// that stands for "not applied", whatever code the upstream chose.
func refusalAnswer(call *upstreamCall, status int, object json.RawMessage) *Message {
	code := codeInvalidRequest
	if call.method == methodDiscover {
		// An upstream that knows sessions alone refuses the probe in many ways; to the client all of them
		// mean: go on with initialize.
		code = codeMethodNotFound
	}
	text := fmt.Sprintf("the upstream refused the request with HTTP %d %s; nothing was run", status, http.StatusText(status))
	data := fmt.Sprintf(`{"reason":"upstream_http_status","status":%d}`, status)
	if object != nil {
		data = fmt.Sprintf(`{"reason":"upstream_http_status","status":%d,"error":%s}`, status, object)
		if saysNotApplied(object) {
			m := NewErrorObject(call.id, object)
			m.For = call.id
			return m
		}
	}
	m := NewError(call.id, code, text, json.RawMessage(data))
	m.For = call.id
	return m
}

// saysNotApplied reports whether a JSON-RPC error itself stands for a request that was not acted on.
func saysNotApplied(object json.RawMessage) bool {
	var e struct {
		Code int64 `json:"code"`
	}
	if json.Unmarshal(object, &e) != nil {
		return false
	}
	switch e.Code {
	case codeParse, codeInvalidRequest, codeMethodNotFound, codeInvalidParams, codeHeaderMismatch, -32021, -32022:
		return true
	}
	return false
}
