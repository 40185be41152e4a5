package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/undolog/undolog/chain"
)

// asking is a request of the upstream to the agent: sampling, elicitation, roots. It passes the chain the
// other way round; what is not governed (ping) is passed on as it is. Our own questions go past the chain.
type asking struct {
	own     bool // it is ours, not the upstream's
	id      json.RawMessage
	answers chan *Message      // of the agent; nil when not governed
	cancel  context.CancelFunc // likewise
}

// askAgent takes a request of the upstream. The chain may hold it up, so that it runs apart from the
// goroutine that reads.
func (s *session) askAgent(m *Message) {
	a := &asking{id: m.ID}
	if !chain.Governed(m.Method) {
		s.enterAsked(a)
		if err := s.toAgent(m); err != nil && s.takeAsked(m.ID) != nil {
			s.link.notify(NewError(m.ID, codeInternal, "the agent cannot be reached", nil))
		}
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	a.answers, a.cancel = make(chan *Message, 1), cancel
	s.enterAsked(a)
	s.calls.add()
	go func() {
		defer s.calls.done()
		defer cancel()
		s.governAsked(ctx, a, m)
	}()
}

// governAsked takes a request of the upstream through the chain and answers it, unless it was taken back.
func (s *session) governAsked(ctx context.Context, a *asking, m *Message) {
	request := s.core.request(m)
	request.FromServer = true
	var answered atomic.Pointer[Message] // by a dispatch that may outlive this call
	reply := s.opts.Chain.Do(ctx, request, func(ctx context.Context, params json.RawMessage) chain.Answer {
		answer, outcome := s.askAndWait(ctx, a, withParams(m, params))
		answered.Store(answer)
		return outcome
	})
	answer := answered.Load()
	taken := s.takeAsked(a.id) == nil && answer == nil // an answer that came took it off the list
	defer reply.Delivered(false)                       // whether the upstream has read it is not known
	if taken || ctx.Err() != nil {
		return
	}
	switch {
	case reply.Error != nil:
		answer = NewErrorObject(m.ID, reply.Error)
	case answer == nil:
		answer = NewResult(m.ID, reply.Result)
	case !bytes.Equal(answer.Result, reply.Result):
		answer = answer.WithResult(reply.Result)
	}
	s.link.notify(answer)
}

// askAndWait sends the agent a request and awaits its answer: the Upstream of a chain.
func (s *session) askAndWait(ctx context.Context, a *asking, m *Message) (*Message, chain.Answer) {
	if written, err := s.agent.Write(ctx, m); err != nil {
		kind := chain.Lost
		if !written {
			kind = chain.Unsent
		}
		return nil, chain.Answer{Kind: kind, Cause: err}
	}
	select {
	case answer := <-a.answers:
		return answer, chain.Answer{Kind: chain.Answered, Result: answer.Result, Error: answer.Error}
	case <-ctx.Done():
		return nil, chain.Answer{Kind: chain.Lost, Cause: context.Cause(ctx)}
	}
}

// answerAsked takes an answer of the agent to where it is awaited; false when nobody has asked.
func (s *session) answerAsked(m *Message) bool {
	a := s.takeAsked(m.ID)
	switch {
	case a == nil:
		return false
	case a.answers == nil:
		s.link.notify(m)
	default:
		a.answers <- m // it has room for one, and only one takes the asking off the list
	}
	return true
}

func (s *session) enterAsked(a *asking) {
	s.inFlightMu.Lock()
	defer s.inFlightMu.Unlock()
	s.asked[idKey(a.id)] = a
}

// takeAsked takes the upstream's request off the list; nil when it is not there any more.
func (s *session) takeAsked(id json.RawMessage) *asking {
	s.inFlightMu.Lock()
	defer s.inFlightMu.Unlock()
	key := idKey(id)
	a := s.asked[key]
	delete(s.asked, key)
	return a
}

// forgetAsked ends a request that the upstream has taken back.
func (s *session) forgetAsked(id json.RawMessage) {
	if a := s.takeAsked(id); a != nil && a.cancel != nil {
		a.cancel()
	}
}

// forgetAllAsked ends everything that the upstream has asked.
func (s *session) forgetAllAsked() (asked []*asking) {
	s.inFlightMu.Lock()
	for key, a := range s.asked {
		if !a.own {
			asked = append(asked, a)
			delete(s.asked, key)
		}
	}
	s.inFlightMu.Unlock()
	for _, a := range asked {
		if a.cancel != nil {
			a.cancel()
		}
	}
	return asked
}
