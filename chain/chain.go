package chain

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

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
	// DiscoveryTTL is how long a host's list of interceptors is believed before it is asked again, if the
	// host asks for no less: see Lister. Negative: until Invalidate. Defaults to 5 minutes.
	DiscoveryTTL time.Duration
	// StateKey seals the requestState of answers that ask for input, where interceptors judge what is
	// answered: it says what each question was. Replicas that take each other's requests need the same
	// one. Defaults to a random key, so that a question asked before a restart is asked once more.
	StateKey []byte
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
	if !o.Posture.known() {
		return nil, fmt.Errorf("new chain: posture %q is none of server, client and gateway", o.Posture)
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
	if len(o.StateKey) == 0 {
		o.StateKey = []byte(rand.Text())
	}
	c := &Chain{opts: o}
	c.stop, c.giveUp = context.WithCancel(context.Background())
	return c, nil
}
