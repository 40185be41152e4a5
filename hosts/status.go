package hosts

import (
	"time"

	"github.com/undolog/undolog/interceptors"
)

// State says whether a host can be asked.
type State string

const (
	StateIdle       State = "idle"       // it was not asked yet
	StateConnecting State = "connecting" // the first connection is being opened
	StateConnected  State = "connected"  // at least one connection stands
	StateDown       State = "down"       // none does
)

// Declared is what a host says of the extension in its capabilities.
type Declared string

const (
	DeclaredYes     Declared = "yes"
	DeclaredUnknown Declared = "unknown" // some peers lose the word on the way: what it lists decides
)

// Status is how a host stands at a moment.
type Status struct {
	Host        string
	State       State
	Breaker     BreakerState
	Connections int    // that stand
	Protocol    string // of one of them
	Declared    Declared
	InFlight    int
	TimedOut    int       // time-outs since the last sign of life
	Connected   int       // how often a connection was made
	RetryAt     time.Time // when a connection that is down is tried again; zero: none is
	Err         error     // why it is down
}

// Status returns how the host stands.
func (h *Host) Status() Status {
	s := Status{Host: h.name, State: StateIdle, Declared: DeclaredUnknown, InFlight: len(h.slots)}
	s.Breaker, s.TimedOut = h.breaker.state()
	for _, c := range h.conns {
		c.report(&s)
	}
	return s
}

func (c *conn) report(s *Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Connected += c.lives
	switch {
	case c.up != nil:
		s.State, s.Protocol = StateConnected, protocolOf(c.up.session)
		s.Connections++
		if declares(c.up) {
			s.Declared = DeclaredYes
		}
	case s.State == StateConnected:
	case c.err != nil:
		s.State, s.Err = StateDown, c.err
	case c.opening:
		s.State = StateConnecting
	}
	if !c.retryAt.IsZero() && (s.RetryAt.IsZero() || c.retryAt.Before(s.RetryAt)) {
		s.RetryAt = c.retryAt
	}
}

func declares(up *life) bool {
	r := up.session.InitializeResult()
	if r == nil || r.Capabilities == nil {
		return false
	}
	_, extension := r.Capabilities.Extensions[interceptors.ExtensionID]
	_, experimental := r.Capabilities.Experimental[interceptors.ExtensionID]
	return extension || experimental
}
