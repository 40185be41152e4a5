package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Listen opens addr for Serve. Without a Verifier it takes loopback addresses only, and warns: everybody
// on this machine is then the configured principal.
func (h *HTTPHandler) Listen(addr string) (net.Listener, error) {
	if h.opts.Verifier == nil && !isLoopback(addr) {
		return nil, fmt.Errorf("listen on %s: without a token file only loopback addresses are served, such as 127.0.0.1:8765", addr)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	if h.opts.Verifier == nil {
		h.logger.Warn("no token file: every process on this machine may call as the same principal",
			slog.String("address", ln.Addr().String()), slog.String("principal", h.opts.Principal))
	}
	return ln, nil
}

const shutdownGrace = time.Second // for responses that are being written

// Serve serves ln until ctx ends. It then ends the sessions, which drain for up to drain, and the open
// responses. Shared upstreams are the gateway's to close.
func (h *HTTPHandler) Serve(ctx context.Context, ln net.Listener, drain time.Duration) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return life },
		ConnContext:       withReceipts,
		ErrorLog:          slog.NewLogLogger(h.logger.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(receiptListener{ln, &h.conns}) }()
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
		h.drain(ctx, drain)
		srv.SetKeepAlivesEnabled(false)
	}
	end()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		srv.Close()
	}
	return errors.Join(err, h.drain(ctx, drain))
}

func (h *HTTPHandler) drain(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit+shutdownGrace)
	defer cancel()
	return h.Close(ctx)
}
