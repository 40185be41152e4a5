package enginecheck

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/wire"
)

// What an agent hears beside the answers to its requests.

// listen says how the agent answers what it is asked and which notifications count, and forgets what it has
// heard.
func (s *session) listen(u *conformance.Upstream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.question, s.notes, s.notified, s.questioned, s.listens = u.Asks, nil, nil, nil, nil
	for _, n := range u.Notifies {
		s.listens = append(s.listens, n.Method)
	}
}

// hear is what the agent does with a message of the engine's.
func (s *session) hear(m *wire.Message) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.Method == "notifications/progress":
		s.notes = append(s.notes, m.Params)
	case slices.Contains(s.listens, m.Method) && m.ID == nil:
		raw, err := json.Marshal(conformance.Notification{Method: m.Method, Params: m.Params})
		if err != nil {
			return nil // it was read from JSON
		}
		s.notified = append(s.notified, raw)
		if s.more != nil {
			close(s.more)
			s.more = nil
		}
	case s.question != nil && m.Method == s.question.Method && m.ID != nil:
		s.questioned = m.Params
		return s.question.Answer
	}
	return nil
}

// heard puts what the agent got into the outcome.
func (s *session) heard(x *conformance.Exchanged) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.Notes, x.Notified, x.Asked = s.notes, s.notified, s.questioned
}

// Notifications need not come in the stream of the answer, nor before it.
const (
	notifyPatience = 10 * time.Second
	silence        = 300 * time.Millisecond // after which one that must not come is taken not to
)

// awaitNotified waits until there are as many notifications as are expected, or, where there should be none,
// for a while.
func (s *session) awaitNotified(ctx context.Context, want []conformance.Notification) {
	if want == nil {
		return
	}
	patience := notifyPatience
	if len(want) == 0 {
		patience = silence
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		n, more := s.notifications()
		if n >= max(len(want), 1) {
			return
		}
		select {
		case <-more:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (s *session) notifications() (int, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more == nil {
		s.more = make(chan struct{})
	}
	return len(s.notified), s.more
}
