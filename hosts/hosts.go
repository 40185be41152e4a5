package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

// Options configures a Host. nil stands for all defaults.
type Options struct {
	// Remote says how far the host is trusted and in which form it is called.
	Remote chain.RemoteOptions
	// Connections is how many connections the host's callers share. Defaults to 1: a command runs once, and
	// a URL's requests have net/http's own connections.
	Connections int
	// MaxInFlight is how many requests may be under way; more wait for their turn. Defaults to 16.
	MaxInFlight int
	// Timeout is how long one request is awaited, whatever its caller allows. Defaults to 30 s.
	Timeout time.Duration
	// ConnectTimeout bounds the start of a command and the handshake. Defaults to 30 s.
	ConnectTimeout time.Duration
	// PingEvery is how often a connection is looked at. One that is idle is given up after one look in vain, one with
	// requests under way after four in a row. Defaults to 30 s; negative: never.
	PingEvery time.Duration
	// BreakAfter is how many time-outs in a row open the breaker. Defaults to 3.
	BreakAfter int
	// BreakFor is how long the breaker stays open before one request may try. Defaults to 10 s.
	BreakFor time.Duration
	// Header goes with every request to a URL. Its values are never logged.
	Header http.Header
	// HTTPClient serves requests to a URL. Defaults to one that follows no redirects.
	HTTPClient *http.Client
	// Env are NAME=VALUE pairs for a command beside the environment of this process.
	Env []string
	// Stderr takes a command's standard error. Defaults to nowhere.
	Stderr io.Writer
	// Grace is how long a command may take to end once its input is closed, and again after SIGTERM, before
	// it is killed. Its children are ended with it. Defaults to 3 s.
	Grace time.Duration
	// Implementation is who we say that we are. Defaults to "undolog" without a version.
	Implementation *mcp.Implementation
	// Logger is told of connections that come and go, and of the breaker. Defaults to none.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	d.Connections = orDefault(d.Connections, 1)
	d.MaxInFlight = orDefault(d.MaxInFlight, 16)
	d.Timeout = orDefault(d.Timeout, 30*time.Second)
	d.ConnectTimeout = orDefault(d.ConnectTimeout, 30*time.Second)
	d.BreakAfter = orDefault(d.BreakAfter, 3)
	d.BreakFor = orDefault(d.BreakFor, 10*time.Second)
	d.Grace = orDefault(d.Grace, 3*time.Second)
	if d.PingEvery == 0 {
		d.PingEvery = 30 * time.Second
	}
	if d.Implementation == nil {
		d.Implementation = &mcp.Implementation{Name: "undolog"}
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Remote.Logger == nil {
		d.Remote.Logger = d.Logger
	}
	return d
}

func orDefault[T int | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// Host is an interceptor host in another process. It is safe for concurrent use.
type Host struct {
	name    string
	opts    Options
	dial    func() (mcp.Transport, error)
	logger  *slog.Logger
	client  *interceptors.Client // looks whether the host is there
	lister  *interceptors.Client
	slots   chan struct{} // one for each request under way
	breaker breaker
	conns   []*conn
	next    atomic.Uint32

	changed  atomic.Pointer[func()]
	listener *listener // nil: not over HTTP

	ctx   context.Context // ends with Close
	close context.CancelFunc
	mu    sync.Mutex // guards the beginning of work against Close
	work  sync.WaitGroup
}

var (
	_ chain.Host    = (*Host)(nil)
	_ chain.Truster = (*Host)(nil)
	_ chain.Watcher = (*Host)(nil)
	_ chain.Lister  = (*Host)(nil)
)

// Command returns a host that is a command on its standard streams. It is started when it is first asked,
// and again when it has ended.
func Command(name string, argv []string, opts *Options) (*Host, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, fmt.Errorf("host %s: no command", name)
	}
	o := opts.orDefaults()
	return Dial(name, func() (mcp.Transport, error) { return newCommand(argv, &o), nil }, &o)
}

// URL returns a host at an endpoint of Streamable HTTP.
func URL(name, endpoint string, opts *Options) (*Host, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("host %s: %q is not an HTTP URL", name, endpoint)
	}
	o := opts.orDefaults()
	client := httpClient(&o)
	h, err := Dial(name, func() (mcp.Transport, error) {
		// A stream of the SDK's would bring nothing that it passes on.
		return &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: client, DisableStandaloneSSE: true, MaxRetries: -1, MaxEventSize: maxAnswer}, nil
	}, &o)
	if err != nil {
		return nil, err
	}
	h.listener = &listener{endpoint: endpoint, client: client, changed: h.tellChanged, logger: h.logger}
	return h, nil
}

// Dial returns a host behind any transport of the SDK; dial makes a new one for each connection.
func Dial(name string, dial func() (mcp.Transport, error), opts *Options) (*Host, error) {
	if name == "" {
		return nil, errors.New("host without a name")
	}
	h := &Host{name: name, opts: opts.orDefaults(), dial: dial}
	h.logger = h.opts.Logger.With(slog.String("host", name))
	h.client = interceptors.NewClient(nil)
	h.lister = interceptors.NewClient(&interceptors.ClientOptions{Logger: h.opts.Remote.Logger})
	h.slots = make(chan struct{}, h.opts.MaxInFlight)
	h.breaker = breaker{after: h.opts.BreakAfter, duration: h.opts.BreakFor}
	h.ctx, h.close = context.WithCancel(context.Background())
	for range h.opts.Connections {
		h.conns = append(h.conns, &conn{host: h, changed: make(chan struct{})})
	}
	return h, nil
}

// Name is what the host was called when it was made.
func (h *Host) Name() string { return h.name }

// Trusted reports Options.Remote.Respond.
func (h *Host) Trusted() bool { return h.opts.Remote.Respond }

// Watch has changed called when the host says that its interceptors have changed, and when it is there again
// after it was gone.
func (h *Host) Watch(changed func()) { h.changed.Store(&changed) }

// Begin starts to connect before the host is first asked, so that whoever asks first need not wait for it. It
// does not wait itself.
func (h *Host) Begin() {
	for _, c := range h.conns {
		c.begun()
	}
}

// tellChanged calls the watcher apart: it may be waiting for the very call that has led here.
func (h *Host) tellChanged() {
	if changed := h.changed.Load(); changed != nil {
		h.start(*changed)
	}
}

// listPatience is how long a list is awaited: a chain that wants one holds an operation up for it.
const listPatience = 5 * time.Second

// List asks the host for its interceptors.
func (h *Host) List(ctx context.Context) ([]interceptors.Descriptor, error) {
	l, err := h.Listing(ctx)
	if err != nil {
		return nil, err
	}
	return l.Interceptors, nil
}

// Listing asks the host for its interceptors, and for how long they may be kept.
func (h *Host) Listing(ctx context.Context) (l *interceptors.Listing, err error) {
	err = h.do(ctx, min(h.opts.Timeout, listPatience), 0, func(ctx context.Context, up *life) error {
		l, err = h.lister.Listing(ctx, up.session, "")
		return err
	})
	return l, err
}

// Invoke runs one interceptor. It is sent once and never again, whatever becomes of it.
func (h *Host) Invoke(ctx context.Context, params *interceptors.InvokeParams) (res *interceptors.Result, err error) {
	patience := time.Duration(params.TimeoutMs) * time.Millisecond
	err = h.do(ctx, h.opts.Timeout, patience, func(ctx context.Context, up *life) error {
		res, err = up.remote.Invoke(ctx, params)
		return err
	})
	return res, err
}

var errClosed = errors.New("host is closed")

// Close ends the connections, and commands with them, and returns when nothing of the host is left. Calls
// under way fail. It may be called more than once.
func (h *Host) Close() {
	h.mu.Lock()
	h.close()
	h.mu.Unlock()
	for _, c := range h.conns {
		c.end()
	}
	h.work.Wait()
}

// start runs f as work that Close waits for; false when the host is closed.
func (h *Host) start(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return false
	}
	h.work.Go(f)
	return true
}
