package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effectinterceptor"
)

// admin tells those who run the program how it is: whether it lives, whether calls may be sent to it, and
// what it counts. It listens apart from the agents, and asks nobody who they are.
type admin struct {
	log    *openedLog
	waits  *standing
	calls  atomic.Pointer[effectinterceptor.Interceptors] // nil: not there yet
	life   context.Context                                // of the program; when it ends no more calls are taken
	server *http.Server
	done   chan error
}

// startAdmin listens at addr until close.
func startAdmin(cmd *cobra.Command, addr string, log *openedLog) (*admin, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for --admin: %w", err)
	}
	a := &admin{log: log, waits: &standing{log: log.Log}, life: cmd.Context(), done: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", a.lives)
	mux.HandleFunc("GET /readyz", a.isReady)
	mux.HandleFunc("GET /metrics", a.counts)
	a.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	go func() { a.done <- a.server.Serve(l) }()
	fmt.Fprintf(cmd.ErrOrStderr(), "undolog: health and metrics at http://%s\n", l.Addr())
	return a, nil
}

// count has what ei counts told as well; nil tells nothing.
func (a *admin) count(ei *effectinterceptor.Interceptors) {
	if a != nil {
		a.calls.Store(ei)
	}
}

// close ends the listener; nil has none.
func (a *admin) close() error {
	if a == nil {
		return nil
	}
	err := a.server.Close()
	if served := <-a.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve --admin: %w", served))
	}
	return err
}

func (a *admin) lives(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "lives") }

// isReady says whether calls may be sent here: the log answers, and the program is not about to end.
func (a *admin) isReady(w http.ResponseWriter, r *http.Request) {
	if a.life.Err() != nil {
		answer(w, http.StatusServiceUnavailable, "the program is about to end")
		return
	}
	if err := a.ping(r.Context()); err != nil {
		answer(w, http.StatusServiceUnavailable, "the effect log does not answer: "+err.Error())
		return
	}
	answer(w, http.StatusOK, "ready")
}

// pingTimeout is below what probes usually wait.
const pingTimeout = 2 * time.Second

func (a *admin) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return a.log.backend.Ping(ctx)
}

func (a *admin) counts(w http.ResponseWriter, r *http.Request) {
	up := metric{name: "undolog_log_up", help: "1 when the effect log answers.", kind: gauge, value: 1}
	var waits []metric
	if a.ping(r.Context()) != nil {
		up.value = 0
	} else {
		waits = a.waits.metrics(r.Context())
	}
	all := append([]metric{programMetric(), up}, a.log.metrics()...)
	if ei := a.calls.Load(); ei != nil {
		all = append(all, callMetrics(ei.Counts())...)
	}
	w.Header().Set("Content-Type", metricsType)
	writeMetrics(w, append(all, waits...))
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // who asks has gone when it fails
}
