package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// hangups is where SIGHUP goes: to who has a file to read anew, and where nobody has, it ends the program like
// SIGTERM.
type hangups struct {
	mu     sync.Mutex
	reload func()
}

type hangupKey struct{}

// withHangups returns a context that SIGHUP ends, unless onHangup was called with it or one made of it.
func withHangups(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	h := new(hangups)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for range signals {
			h.mu.Lock()
			reload := h.reload
			h.mu.Unlock()
			if reload == nil {
				cancel()
				return
			}
			reload()
		}
	}()
	return context.WithValue(ctx, hangupKey{}, h), cancel
}

// onHangup has SIGHUP call reload from now on, where ctx comes from withHangups.
func onHangup(ctx context.Context, reload func()) {
	h, ok := ctx.Value(hangupKey{}).(*hangups)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reload = reload
}
