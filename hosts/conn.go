package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

const (
	pauseFirst   = 500 * time.Millisecond
	pauseMost    = 30 * time.Second
	slowAfter    = time.Second      // of waiting in vain
	probePart    = 3                // of the time to connect that an older host may let the probe hang
	pingPatience = 10 * time.Second // for the answer to a look
	looksInVain  = 4                // in a row, while requests are under way
)

// firstStateless is the first revision without sessions, and without a stream that a host may speak on unasked.
const firstStateless = "2026-07-28"

// conn is one connection over all its lives.
type conn struct {
	host *Host

	mu       sync.Mutex
	up       *life // nil while down
	opening  bool
	reviving bool
	slow     bool          // somebody has given up waiting for it to open
	changed  chan struct{} // closed when up, opening or err changes
	failures int           // in a row
	retryAt  time.Time
	err      error // why it is down
	lives    int
}

// life is one session of a conn.
type life struct {
	session *mcp.ClientSession
	remote  chain.Host
	asked   atomic.Int32    // requests under way
	ctx     context.Context // ends with it
	end     context.CancelFunc
}

// DownError says that a host cannot be reached and when it is tried again.
type DownError struct {
	Host  string
	After time.Duration
	Cause error
}

func (e *DownError) Error() string {
	return fmt.Sprintf("host %s is down: %v; it is tried again in %s", e.Host, e.Cause, e.After.Round(100*time.Millisecond))
}

func (e *DownError) Unwrap() error { return e.Cause }

// connected returns the session, and opens one when there is none and no pause is to be kept. It waits
// for an opening that is under way, unless one before has waited in vain.
func (c *conn) connected(ctx context.Context) (*life, error) {
	began := time.Now()
	for {
		c.mu.Lock()
		switch {
		case c.host.ctx.Err() != nil:
			c.mu.Unlock()
			return nil, errClosed
		case c.up != nil:
			defer c.mu.Unlock()
			return c.up, nil
		case c.slow && (c.opening || c.reviving): // a host that hangs keeps nobody a second time
			defer c.mu.Unlock()
			return nil, &DownError{c.host.name, max(0, time.Until(c.retryAt)), cmp.Or(c.err, errConnecting)}
		case c.reviving && c.failures == 1: // its pause is short and waited for
		case c.reviving: // also while it tries
			defer c.mu.Unlock()
			return nil, &DownError{c.host.name, max(0, time.Until(c.retryAt)), c.err}
		case !c.opening:
			c.opening = c.host.start(c.open)
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			if time.Since(began) >= slowAfter {
				c.gaveUp()
			}
			return nil, fmt.Errorf("host %s: connect: %w", c.host.name, context.Cause(ctx))
		case <-c.host.ctx.Done():
			return nil, errClosed
		}
	}
}

var errConnecting = errors.New("it does not open")

// gaveUp notes that a caller had no time left to wait for the connection.
func (c *conn) gaveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slow = c.up == nil
}

// begun sees to it that the connection stands or is on the way.
func (c *conn) begun() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up == nil && !c.opening && !c.reviving {
		c.opening = c.host.start(c.open)
	}
}

// open makes one try to connect. Not under a caller's context: others wait for it too.
func (c *conn) open() {
	up, err := c.connect()
	c.mu.Lock()
	c.opening = false
	defer c.mu.Unlock()
	defer c.announce()
	if err != nil {
		c.failed(err)
		return
	}
	if c.host.ctx.Err() != nil {
		up.close(c.host.logger)
		return
	}
	returned := c.lives > 0 || c.failures > 0 || c.slow
	c.up, c.err, c.failures, c.retryAt, c.slow = up, nil, 0, time.Time{}, false
	c.lives++
	c.host.logger.Info("interceptor host connected", slog.String("protocol", protocolOf(up.session)))
	c.tend(up)
	if returned {
		c.host.tellChanged()
	}
}

// announce wakes those who wait. The caller holds mu.
func (c *conn) announce() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// failed notes why the connection is down and has it come back. The caller holds mu.
func (c *conn) failed(err error) {
	c.failures++
	pause := pauseFirst << min(c.failures-1, 10)
	pause = min(pause, pauseMost)
	pause -= time.Duration(rand.Int64N(int64(pause) / 2))
	c.err, c.retryAt = err, time.Now().Add(pause)
	c.host.logger.Warn("interceptor host is down", slog.String("error", interceptors.Brief(err.Error())), slog.Duration("retry", pause))
	if !c.reviving {
		c.reviving = c.host.start(c.revive)
	}
}

// revive brings the connection back.
func (c *conn) revive() {
	for {
		c.mu.Lock()
		if c.up != nil {
			c.reviving = false
			c.mu.Unlock()
			return
		}
		pause := time.Until(c.retryAt)
		c.mu.Unlock()
		timer := time.NewTimer(max(0, pause))
		select {
		case <-timer.C:
		case <-c.host.ctx.Done():
			timer.Stop()
			return
		}
		c.mu.Lock()
		c.opening = true
		c.mu.Unlock()
		c.open()
	}
}

// connect opens a session at the newest revision that both sides know: the SDK probes for the stateless
// ones and falls back to the handshake by itself. A host that lets the probe hang is asked once more
// without it.
func (c *conn) connect() (*life, error) {
	ctx, cancel := context.WithTimeout(c.host.ctx, c.host.opts.ConnectTimeout)
	defer cancel()
	probe, cancelProbe := context.WithTimeout(ctx, c.host.opts.ConnectTimeout/probePart)
	defer cancelProbe()
	up, err := c.begin(probe, nil)
	if err != nil && probe.Err() != nil && ctx.Err() == nil {
		up, err = c.begin(ctx, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	}
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return up, nil
}

// begin opens a session. ctx bounds the opening alone.
func (c *conn) begin(ctx context.Context, opts *mcp.ClientSessionOptions) (*life, error) {
	transport, err := c.host.dial()
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(c.host.opts.Implementation, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	if err := interceptors.AddClient(client); err != nil {
		return nil, err
	}
	up := &life{}
	up.ctx, up.end = context.WithCancel(c.host.ctx)
	opened := context.AfterFunc(ctx, up.end)
	up.session, err = client.Connect(up.ctx, c.host.watched(transport), opts)
	if err != nil {
		up.end()
		return nil, err
	}
	if !opened() {
		up.close(c.host.logger)
		return nil, context.Cause(ctx)
	}
	up.remote = chain.Remote(c.host.name, up.session, &c.host.opts.Remote)
	return up, nil
}

// tend looks after a new life until it ends.
func (c *conn) tend(up *life) {
	c.host.work.Go(func() { // under open's own work: the host is not closed before this is counted
		err := up.session.Wait()
		c.lost(up, cmp.Or(err, errors.New("it closed the connection")))
	})
	if c.host.opts.PingEvery > 0 {
		c.host.work.Go(func() { c.ping(up) })
	}
	if protocol := protocolOf(up.session); c.host.listener != nil && protocol < firstStateless {
		c.host.work.Go(func() { c.host.listener.listen(up.ctx, up.session.ID(), protocol) })
	}
}

// ping looks whether the host itself answers, by a question that every revision has: the stateless ones
// know no ping. While a request is under way one look in vain says nothing: its answer may have to wait for a long
// one before it.
func (c *conn) ping(up *life) {
	ticker := time.NewTicker(c.host.opts.PingEvery)
	defer ticker.Stop()
	inVain := 0
	for {
		select {
		case <-ticker.C:
		case <-up.ctx.Done():
			return
		}
		asking, cancel := context.WithTimeout(up.ctx, pingPatience)
		_, err := c.host.client.List(asking, up.session, "ping")
		cancel()
		var wire *jsonrpc.Error
		var malformed *interceptors.MalformedError
		if err == nil || up.ctx.Err() != nil || errors.As(err, &wire) || errors.As(err, &malformed) {
			inVain = 0
			continue
		}
		if inVain++; up.asked.Load() == 0 || inVain == looksInVain {
			c.lost(up, fmt.Errorf("it does not answer when looked at: %w", err))
			return
		}
	}
}

// lost ends a life that does not stand any more, once.
func (c *conn) lost(up *life, cause error) {
	c.mu.Lock()
	current := c.up == up
	if current {
		c.up = nil
		if c.host.ctx.Err() == nil {
			c.failed(cause)
		}
		c.announce()
	}
	c.mu.Unlock()
	if current {
		up.close(c.host.logger)
	}
}

func (l *life) close(logger *slog.Logger) {
	l.end()
	if err := l.session.Close(); err != nil { // a process that was ended says so by an error
		logger.Debug("interceptor host's connection closed", slog.Any("error", err))
	}
}

// end closes the connection for good. A try that is under way ends by the host's context.
func (c *conn) end() {
	c.mu.Lock()
	up := c.up
	c.up = nil
	c.mu.Unlock()
	if up != nil {
		up.close(c.host.logger)
	}
}

func protocolOf(s *mcp.ClientSession) string {
	if r := s.InitializeResult(); r != nil {
		return r.ProtocolVersion
	}
	return ""
}
