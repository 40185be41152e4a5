package chain

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/interceptors"
)

// Posture is the side of the trust boundary that the chain stands on. It decides the direction of each
// phase.
type Posture string

const (
	// PostureServer receives requests and sends responses.
	PostureServer Posture = "server"
	// PostureClient sends requests and receives responses.
	PostureClient Posture = "client"
)

// Direction says which way a payload crosses the trust boundary. It comes from the interception point,
// never from the phase.
type Direction string

const (
	// Receiving validates first, then mutates.
	Receiving Direction = "receiving"
	// Sending mutates first, then validates.
	Sending Direction = "sending"
)

// Direction returns the way in which a payload of the phase passes a chain of this posture.
func (p Posture) Direction(phase interceptors.Phase) Direction {
	if (p == PostureClient) == (phase == interceptors.PhaseRequest) {
		return Sending
	}
	return Receiving
}

// Options configures a Chain.
type Options struct {
	// Logger gets failures, refusals and alerts. Defaults to none.
	Logger *slog.Logger
	// Posture defaults to PostureServer.
	Posture Posture
	// Observer is told about exchanges. Defaults to nobody.
	Observer Observer
	// Deadline bounds one phase as a whole. What has not answered by then has failed, each by its own
	// mode and failOpen. Defaults to no bound.
	Deadline time.Duration
	// DiscoveryTTL is how long a host's list of interceptors is believed before it is asked again.
	// Negative: until Invalidate. Defaults to 5 minutes.
	DiscoveryTTL time.Duration
	// Now is the clock of timestamps and discovery. Defaults to time.Now.
	Now func() time.Time
}

// Chain runs interceptors around operations. It is safe for concurrent use.
type Chain struct {
	opts Options

	mu       sync.Mutex // guards hosts and lists, held while hosts are asked
	hosts    []*hostEntry
	resolved atomic.Pointer[snapshot]

	inflight inflight
	stop     context.Context // ends when Drain gives up
	giveUp   context.CancelFunc
}

// New returns a chain without hosts: it passes everything until Use adds one.
func New(opts *Options) (*Chain, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Posture == "" {
		o.Posture = PostureServer
	}
	if o.Posture != PostureServer && o.Posture != PostureClient {
		return nil, fmt.Errorf("new chain: posture %q is neither server nor client", o.Posture)
	}
	if o.Deadline < 0 {
		return nil, fmt.Errorf("new chain: deadline %v is negative", o.Deadline)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.DiscoveryTTL == 0 {
		o.DiscoveryTTL = 5 * time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Chain{opts: o}
	c.stop, c.giveUp = context.WithCancel(context.Background())
	return c, nil
}
