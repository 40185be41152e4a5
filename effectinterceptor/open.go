package effectinterceptor

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
)

// open is one governed tools/call between its two phases.
type open struct {
	keys    []openKey // by which a response finds it, see evidence
	session openKey   // the one of them that is the session's
	local   bool
	until   time.Time // when it is forgotten at the latest

	call     *effect.Call
	contract *effect.Contract
	schemas  *toolSchemas     // by which the result is checked; nil: by none
	policy   string           // digest of the policy in force when it came
	identity *effect.Identity // nil for a read
	effectID string           // empty for a read
	claim    *effect.Claim    // nil unless this call may be dispatched as a claimed one
	replayed bool             // answered from the record
	edited   string           // what the model is told when other arguments ran than it sent
	started  time.Time
	came     time.Time     // as started, by the machine's own clock
	waited   time.Duration // for a log that did not answer, before the claim
	probed   bool          // its outcome was looked up

	counted    atomic.Bool // what it came to
	overlapped bool        // guarded by openSet: another request of the session was open at the same time

	mu      sync.Mutex
	settled bool // an outcome other than lost has been recorded
	waiting bool // and it was no end: one more may come
	lost    bool
}

// ended reports whether nothing but a late answer can come.
func (o *open) ended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.settled || o.lost || o.replayed
}

func (i *Interceptors) newOpen(in *interceptors.Invocation, call *effect.Call, contract *effect.Contract) *open {
	now := i.opts.Now()
	return &open{
		local:    in.Caller.Local,
		until:    now.Add(max(contract.Lease, contract.Timeout)),
		call:     call,
		contract: contract,
		started:  now,
		came:     time.Now(),
	}
}

// await makes o findable for the response that answers it.
func (i *Interceptors) await(in *interceptors.Invocation, o *open) {
	keys := []openKey{exchangeKey(in)}
	if !o.local || keys[0] == (openKey{}) {
		o.session = sessionKey(in)
		keys = append(keys, effectKey(in, o.effectID), spanKey(in), o.session)
	}
	o.keys = slices.DeleteFunc(keys, func(key openKey) bool { return key == openKey{} })
	i.open.add(o)
}

// forget ends an exchange. One whose answer was no end is remembered, without its payload, for the engine
// that brings the end later.
func (i *Interceptors) forget(o *open) {
	i.open.remove(o)
	o.mu.Lock()
	waiting := o.waiting
	o.mu.Unlock()
	if !waiting || o.keys[0].kind != ownExchange {
		return
	}
	call := *o.call
	call.Arguments, call.Recorded = nil, nil
	kept := &open{
		keys: o.keys[:1], local: o.local, until: o.until, call: &call, contract: o.contract, schemas: o.schemas, identity: o.identity,
		effectID: o.effectID, claim: o.claim, started: o.started, settled: true, waiting: true,
	}
	kept.counted.Store(true)
	i.waiting.add(o.keys[0].id, kept)
}

// resumed opens an exchange again whose answer was no end; nil when it is not known.
func (i *Interceptors) resumed(exchange string) *open {
	o, ok := i.waiting.take(exchange)
	if !ok {
		return nil
	}
	i.open.add(o)
	return o
}

// openSet is what is under way in this process. What it does not know any more is found by the effect
// id that the target echoes, or not at all.
type openSet struct {
	mu    sync.Mutex
	byKey map[openKey][]*open
	all   map[*open]struct{}
	swept time.Time
}

func newOpenSet() *openSet {
	return &openSet{byKey: map[openKey][]*open{}, all: map[*open]struct{}{}}
}

func (s *openSet) add(o *open) {
	if len(o.keys) == 0 { // no response can find it
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(o.started)
	for _, key := range o.keys {
		s.byKey[key] = append(s.byKey[key], o)
	}
	s.all[o] = struct{}{}
	if o.session == (openKey{}) {
		return
	}
	if same := s.byKey[o.session]; len(same) > 1 {
		for _, other := range same {
			other.overlapped = true
		}
	}
}

func (s *openSet) remove(o *open) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(o)
}

func (s *openSet) forget(o *open) {
	if _, ok := s.all[o]; !ok {
		return
	}
	delete(s.all, o)
	for _, key := range o.keys {
		left := slices.DeleteFunc(s.byKey[key], func(other *open) bool { return other == o })
		if len(left) == 0 {
			delete(s.byKey, key)
			continue
		}
		s.byKey[key] = left
	}
}

// sweep forgets what an engine began and never told of again. What our own engine still dispatches stays,
// however long it takes.
func (s *openSet) sweep(now time.Time) {
	if now.Sub(s.swept) < time.Minute {
		return
	}
	s.swept = now
	for o := range s.all {
		if now.After(o.until) && (!o.local || o.ended()) {
			s.forget(o)
		}
	}
}

// only returns the one open request with the key; nil when there are none or several, and for no key.
func (s *openSet) only(key openKey) *open {
	if key == (openKey{}) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.byKey[key]; len(found) == 1 {
		return found[0]
	}
	return nil
}

// alone is the only request of a session, when no other was open while it was: then a response of the
// session can answer nothing else.
func (s *openSet) alone(session openKey) *open {
	o := s.only(session)
	if o == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.overlapped {
		return nil
	}
	return o
}

// certain is the open request that the evidence names for certain.
func (s *openSet) certain(ev *evidence) *open {
	if o := s.only(ev.exchange); o != nil {
		return o
	}
	o := s.only(ev.effect)
	if o == nil || ev.echo.attempt != 0 && ev.echo.attempt != o.claim.Attempt {
		return nil
	}
	return o
}
