package effectinterceptor

import (
	"encoding/json"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// open is one governed tools/call between its two phases.
type open struct {
	exchange string // correlation id of the engine, scoped to the invoker; empty: none was sent
	invoker  string // tenant and subject of the authenticated invoker
	session  string
	span     string // trace and span, empty when there is none
	local    bool
	until    time.Time // when the entry is forgotten at the latest

	call     *effect.Call
	contract *effect.Contract
	identity *effect.Identity // nil for a read
	effectID string           // empty for a read
	claim    *effect.Claim    // nil unless this call may be dispatched as a claimed one
	replayed bool             // answered from the record
	started  time.Time

	mu      sync.Mutex
	settled bool // an outcome other than lost has been recorded
}

// openSet is what is under way in this process. What it does not know any more is found by the effect
// id that the target echoes, or not at all.
type openSet struct {
	mu        sync.Mutex
	exchanges map[string]*open
	loose     map[*open]bool // without an exchange id
	swept     time.Time
}

func newOpenSet() *openSet {
	return &openSet{exchanges: map[string]*open{}, loose: map[*open]bool{}}
}

func (s *openSet) add(o *open, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	if o.exchange != "" {
		s.exchanges[o.exchange] = o
		return
	}
	s.loose[o] = true
}

func (s *openSet) remove(o *open) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exchanges[o.exchange] == o {
		delete(s.exchanges, o.exchange)
	}
	delete(s.loose, o)
}

func (s *openSet) byExchange(id string) *open {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exchanges[id]
}

// sweep forgets what a foreign engine began and never told of again.
func (s *openSet) sweep(now time.Time) {
	if now.Sub(s.swept) < time.Minute {
		return
	}
	s.swept = now
	for o := range s.loose {
		if now.After(o.until) {
			delete(s.loose, o)
		}
	}
	for id, o := range s.exchanges {
		if !o.local && now.After(o.until) {
			delete(s.exchanges, id)
		}
	}
}

// match finds the request that a response answers: by exchange id, by the effect id that the target
// echoed, by trace and span if unique, by session if only one request of it is unanswered. Otherwise it
// does not guess.
func (s *openSet) match(in *interceptors.Invocation, echoed string) *open {
	if id := exchangeOf(in); id != "" {
		return s.byExchange(id)
	}
	invoker := invokerOf(in)
	if echoed != "" {
		return s.only(func(o *open) bool { return o.invoker == invoker && o.effectID == echoed })
	}
	if span := spanOf(in); span != "" {
		if o := s.only(func(o *open) bool { return o.invoker == invoker && o.span == span }); o != nil {
			return o
		}
	}
	if session := in.Context.SessionID; session != "" {
		return s.only(func(o *open) bool { return o.invoker == invoker && o.session == session })
	}
	return nil
}

// only returns the one open call for which is reports true; nil when there are none or several.
func (s *openSet) only(is func(*open) bool) *open {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *open
	for _, o := range s.all() {
		if !is(o) {
			continue
		}
		if found != nil {
			return nil
		}
		found = o
	}
	return found
}

func (s *openSet) all() []*open {
	all := make([]*open, 0, len(s.loose)+len(s.exchanges))
	for o := range s.loose {
		all = append(all, o)
	}
	for _, o := range s.exchanges {
		all = append(all, o)
	}
	return all
}

// exchangeOf is the engine's correlation id, scoped so that no invoker names another's.
func exchangeOf(in *interceptors.Invocation) string {
	id := extra(in, exchangeExtra)
	if id == "" || in.Caller.Local {
		return id
	}
	return invokerOf(in) + "\x00" + id
}

func invokerOf(in *interceptors.Invocation) string {
	return in.Caller.Tenant + "\x00" + in.Caller.Subject
}

func spanOf(in *interceptors.Invocation) string {
	if in.Context.TraceID == "" || in.Context.SpanID == "" {
		return ""
	}
	return in.Context.TraceID + "\x00" + in.Context.SpanID
}

// echoedEffect is the effect id that the target left in the _meta of its result, empty when it did not.
func echoedEffect(result json.RawMessage) string {
	var id string
	if raw := splice.Get(result, "_meta", effectMeta, "id"); raw != nil && jsonv2.Unmarshal(raw, &id) == nil {
		return id
	}
	return ""
}
