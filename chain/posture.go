package chain

import "github.com/undolog/undolog/interceptors"

// Posture is the side of the trust boundary that the chain stands on. It decides the direction of each
// phase.
type Posture string

const (
	// PostureServer receives requests and sends responses.
	PostureServer Posture = "server"
	// PostureClient sends requests and receives responses.
	PostureClient Posture = "client"
	// PostureGateway stands between two boundaries and runs two plans: toward the agent it is a server,
	// toward the upstream a client. Each interceptor is in exactly one of them, see HostPolicy.Side.
	PostureGateway Posture = "gateway"
)

func (p Posture) known() bool {
	return p == PostureServer || p == PostureClient || p == PostureGateway
}

// Direction says which way a payload crosses the trust boundary. It comes from the interception point,
// never from the phase.
type Direction string

const (
	// Receiving validates first, then mutates.
	Receiving Direction = "receiving"
	// Sending mutates first, then validates.
	Sending Direction = "sending"
)

// Direction returns the way in which a payload of the phase of an operation that the client began passes
// a chain of this posture; for a gateway, its plan toward the agent. An operation that the server began
// passes the other way.
func (p Posture) Direction(phase interceptors.Phase) Direction {
	if (p == PostureClient) == (phase == interceptors.PhaseRequest) {
		return Sending
	}
	return Receiving
}

// Side says in which of a gateway's two plans an interceptor is.
type Side string

const (
	SideAgent    Side = "agent"    // the boundary to the agent
	SideUpstream Side = "upstream" // the boundary to the upstream
)

// leg is one interception point on the way of a payload.
type leg struct {
	side      Side // empty: the plan of all interceptors
	direction Direction
	plan      *plan
}

// legs are the interception points that a phase passes, in the order in which it does; the second is
// zero where there is one. A direction that the caller gives is taken at its word.
func (c *Chain) legs(p *PhaseParams) [2]leg {
	if p.Direction != "" {
		return [2]leg{{side: p.Side, direction: p.Direction}}
	}
	phase := p.Phase
	if p.Request != nil && p.Request.FromServer { // the roles are swapped, not the rules
		phase = otherPhase(phase)
	}
	direction := c.opts.Posture.Direction(phase)
	if c.opts.Posture != PostureGateway {
		return [2]leg{{direction: direction}}
	}
	agent, upstream := leg{side: SideAgent, direction: direction}, leg{side: SideUpstream, direction: Sending}
	if direction == Receiving { // what the agent's boundary lets in goes out to the upstream
		return keepSide([2]leg{agent, upstream}, p.Side)
	}
	upstream.direction = Receiving
	return keepSide([2]leg{upstream, agent}, p.Side)
}

// keepSide leaves the leg of one side alone; an empty side leaves both.
func keepSide(legs [2]leg, side Side) [2]leg {
	switch side {
	case "":
		return legs
	case legs[0].side:
		return [2]leg{legs[0]}
	}
	return [2]leg{legs[1]}
}

func otherPhase(p interceptors.Phase) interceptors.Phase {
	if p == interceptors.PhaseRequest {
		return interceptors.PhaseResponse
	}
	return interceptors.PhaseRequest
}
