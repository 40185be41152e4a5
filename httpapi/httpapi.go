package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Approver is somebody who may see and decide.
type Approver struct {
	Name   string   // "user:NAME"
	Tenant string   // whose effects; defaults to effect.DefaultTenant
	Key    [32]byte // SHA-256 of the bearer token
}

// Options are what may be set about a Handler.
type Options struct {
	// Approvers are those who may ask anything at all. At least one.
	Approvers []Approver
	// URL is where browsers reach the handler, behind a proxy for instance: requests for its host are taken
	// beside those for addresses and for this machine, and with https cookies are for https only. Defaults to
	// nil: addresses and this machine.
	URL *url.URL
	// Invited is told that a code of Invite was used. Defaults to nothing.
	Invited func(name string)
	// SessionFor is how long a browser is known after it has logged in. Defaults to 12 hours.
	SessionFor time.Duration
	// LookEvery is how often a stream of changes looks into the log. Defaults to 250 ms.
	LookEvery time.Duration
	// Heartbeat is the time between signs of life on a stream. Defaults to 15 s.
	Heartbeat time.Duration
	// MaxStreams bounds the streams that are open at once for one tenant. Defaults to 100.
	MaxStreams int
	// MaxAllStreams bounds those of all tenants. Defaults to 1000, or to MaxStreams where that is more.
	MaxAllStreams int
	// ReadTimeout is how long a request's body may take to come. Defaults to 30 s.
	ReadTimeout time.Duration
	// MaxBody bounds one request's body. Defaults to 4 MiB.
	MaxBody int64
	// Logger is told what failed on our side. Defaults to silence.
	Logger *slog.Logger
}

// Handler serves the API and the page. It is safe for concurrent use.
type Handler struct {
	log       *store.Log
	opts      Options
	approvers map[[32]byte]*Approver // by key
	sessions  map[string]*Approver   // by what a session's cookie names its approver by
	codes     codes
	streams   streams
	mux       *http.ServeMux
	guarded   http.Handler
}

// New makes a handler on a log. It refuses an approver who is not named user:NAME: agents do not decide.
func New(log *store.Log, opts *Options) (*Handler, error) {
	h := &Handler{log: log, opts: opts.resolved(), approvers: map[[32]byte]*Approver{}, sessions: map[string]*Approver{}}
	for _, a := range h.opts.Approvers {
		if name, isUser := strings.CutPrefix(a.Name, "user:"); !isUser || name == "" {
			return nil, fmt.Errorf("%q cannot approve: who does is named user:NAME", a.Name)
		}
		if a.Tenant == "" {
			a.Tenant = effect.DefaultTenant
		}
		h.approvers[a.Key], h.sessions[a.handle()] = &a, &a
	}
	if len(h.approvers) == 0 {
		return nil, errors.New("nobody is named who may approve")
	}
	h.mux = h.routes()
	h.guarded = h.guard(h.mux)
	return h, nil
}

func (o *Options) resolved() Options {
	r := *o
	if r.Invited == nil {
		r.Invited = func(string) {}
	}
	if r.SessionFor <= 0 {
		r.SessionFor = 12 * time.Hour
	}
	if r.LookEvery <= 0 {
		r.LookEvery = 250 * time.Millisecond
	}
	if r.Heartbeat <= 0 {
		r.Heartbeat = 15 * time.Second
	}
	if r.MaxStreams <= 0 {
		r.MaxStreams = 100
	}
	if r.MaxAllStreams <= 0 {
		r.MaxAllStreams = max(1000, r.MaxStreams)
	}
	if r.ReadTimeout <= 0 {
		r.ReadTimeout = 30 * time.Second
	}
	if r.MaxBody <= 0 {
		r.MaxBody = 4 << 20
	}
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	return r
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.guarded.ServeHTTP(w, r) }
