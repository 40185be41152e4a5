package interceptors

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// announceOn serves a GET and tells its peer of changes for as long as it is an open stream of events: over
// HTTP the SDK gives no way to its connections, but the stream is ours as well.
func (s *Server) announceOn(w http.ResponseWriter, r *http.Request, next http.Handler) {
	stream := &eventStream{ResponseWriter: w}
	defer stream.end()
	n := &news{server: s, send: stream.announce}
	defer s.changes.add(n.tell)()
	next.ServeHTTP(stream, r)
}

// eventStream lets events of ours between those that a handler writes, each by one Write.
type eventStream struct {
	http.ResponseWriter
	mu    sync.Mutex
	begun bool // events can be written
	ended bool
}

func (s *eventStream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.ResponseWriter.Write(b)
	s.begun = err == nil && strings.HasPrefix(s.Header().Get("Content-Type"), "text/event-stream")
	return n, err
}

// FlushError is what http.ResponseController calls.
func (s *eventStream) FlushError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// Unwrap gives http.ResponseController what eventStream has not itself.
func (s *eventStream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

var errNoStream = errors.New("its stream of events is not open")

func (s *eventStream) announce() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun || s.ended {
		return errNoStream
	}
	const event = `event: message` + "\n" + `data: {"jsonrpc":"2.0","method":"` + NotificationListChanged + `"}` + "\n\n"
	if _, err := io.WriteString(s.ResponseWriter, event); err != nil {
		return err
	}
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// end keeps the response from being written to after its handler has returned.
func (s *eventStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}
