package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// errStreamClosed is why a message did not reach the agent: the HTTP response that it belongs to is over.
var errStreamClosed = errors.New("the agent's HTTP response is closed")

// A slow agent gets writeGrace and a second for each bytesPerSecond before its stream is given up.
const (
	writeGrace     = 30 * time.Second
	bytesPerSecond = 256 << 10
)

// answerStream is one HTTP response to an agent: an event stream, or one JSON body. Its headers go out
// with the first message, which therefore may still choose the status. Safe for concurrent use; the
// handler MUST call close before it returns.
type answerStream struct {
	events bool // may be an event stream; else it is one JSON body
	single bool // when the first message is the last, it may go out as a JSON body
	before func(first *Message, h http.Header) (status int)

	agent   context.Context // of the HTTP request: ends when the agent hangs up
	read    *receipts       // of its connection; nil when that cannot tell
	mu      sync.Mutex
	w       http.ResponseWriter
	rc      *http.ResponseController
	started bool
	result  bool // the last message was written and is no error
	closed  bool
	over    chan struct{} // closed with closed
}

func newAnswerStream(w http.ResponseWriter, r *http.Request, events bool) *answerStream {
	return &answerStream{events: events, agent: r.Context(), read: receiptsOf(r), w: w, rc: http.NewResponseController(w), over: make(chan struct{})}
}

// send writes m to the agent. Without error the message is in the hands of the live connection. last
// says that nothing follows it.
func (s *answerStream) send(m *Message, last bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Of a response that is one answer with its length ahead, an agent that has the answer has every byte.
	// Behind an answer in chunks there is an end that it need not read.
	whole := last && !s.started
	err := s.sendLocked(m, last)
	s.result = s.result || err == nil && last && m.Error == nil
	if err == nil && whole && m.OnLoss != nil && s.read != nil {
		s.read.expect(m.OnLoss, 1)
	}
	return err
}

func (s *answerStream) sendLocked(m *Message, last bool) error {
	if s.closed || s.agent.Err() != nil {
		return errStreamClosed
	}
	if last {
		defer s.closeLocked()
	}
	if !s.started && (!s.events || s.single && last) {
		s.w.Header().Set("Content-Length", strconv.Itoa(len(m.Raw)))
		return s.writeLocked(m.Raw, s.startLocked(m, "application/json"))
	}
	return s.eventLocked(m, last)
}

// open sends the headers of an event stream ahead of its first message.
func (s *answerStream) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.started || !s.events {
		return nil
	}
	return s.writeLocked(nil, s.startLocked(nil, "text/event-stream"))
}

// keepAlive writes a comment, so that proxies keep the stream and a dead agent is noticed.
func (s *answerStream) keepAlive() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errStreamClosed
	case !s.events:
		return nil
	case !s.started:
		return s.writeLocked([]byte(": waiting\n\n"), s.startLocked(nil, "text/event-stream"))
	}
	return s.writeLocked([]byte(": waiting\n\n"), 0)
}

// headersAfter is how long headers wait for an answer. One that is quick goes out whole, with its length;
// for a slow one the agent is told that it is waited for.
const headersAfter = time.Second

// keepAliveUntil writes comments until ctx ends, the stream is over or the agent has gone.
func (s *answerStream) keepAliveUntil(ctx context.Context, every time.Duration) {
	tick := time.NewTimer(min(headersAfter, every))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tick.Reset(every)
			if s.keepAlive() != nil {
				return
			}
		case <-s.over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// hasResult reports whether the last message was written and is no error.
func (s *answerStream) hasResult() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result
}

// close ends the stream. Nothing is written to the response afterwards.
func (s *answerStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked()
}

func (s *answerStream) closeLocked() {
	if !s.closed {
		s.closed = true
		close(s.over)
	}
}

// startLocked sets the headers and returns the status for the first write.
func (s *answerStream) startLocked(first *Message, contentType string) (status int) {
	s.started = true
	h := s.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no") // nginx holds events back otherwise
	status = http.StatusOK
	if s.before != nil {
		status = s.before(first, h)
	}
	return status
}

func (s *answerStream) eventLocked(m *Message, last bool) error {
	b := make([]byte, 0, len(m.Raw)+24)
	b = append(b, "event: message\ndata: "...)
	b = append(b, oneLine(m.Raw)...)
	b = append(b, "\n\n"...)
	if s.started {
		return s.writeLocked(b, 0)
	}
	if last {
		s.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	}
	return s.writeLocked(b, s.startLocked(m, "text/event-stream"))
}

// writeLocked writes and flushes b, behind the status when it is not zero. An agent that does not take
// it in time has gone.
func (s *answerStream) writeLocked(b []byte, status int) error {
	s.rc.SetWriteDeadline(time.Now().Add(writeGrace + time.Duration(len(b)/bytesPerSecond)*time.Second))
	defer s.rc.SetWriteDeadline(time.Time{})
	if status != 0 {
		s.w.WriteHeader(status)
	}
	_, err := s.w.Write(b)
	if err == nil {
		err = s.rc.Flush()
	}
	if err != nil {
		s.closeLocked()
	}
	return err
}

// takesEvents reports whether messages beside the answer can go out on s. It does not wait for a write.
func (s *answerStream) takesEvents() bool {
	select {
	case <-s.over:
		return false
	default:
		return s.events
	}
}
