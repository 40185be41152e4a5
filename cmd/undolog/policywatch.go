package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/undolog/undolog/effect"
)

// policyWatch takes a policy file anew when it changes and on SIGHUP.
type policyWatch struct {
	path   string
	load   func() (*effect.Policy, error)
	logger *slog.Logger
	apply  func(ctx context.Context, p *effect.Policy)
	digest string // of the policy in force
	wrong  string // what was last told to be wrong with the file; empty: nothing
}

// settleTime is how long after a change the file is read: editors write in several steps. What they write later is
// a change of its own.
const settleTime = 100 * time.Millisecond

// start watches the file until ctx ends, on a goroutine of its own. A file that cannot be read, or is no
// policy, is told of and keeps the policy in force.
func (w *policyWatch) start(ctx context.Context) {
	hangup := make(chan struct{}, 1)
	onHangup(ctx, func() {
		select {
		case hangup <- struct{}{}:
		default: // it will be read anyway
		}
	})
	// The directory is watched: editors and configuration systems put another file in the place of the old one.
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		err = watcher.Add(filepath.Dir(w.path))
	}
	if err != nil {
		w.logger.WarnContext(ctx, "changes of the policy file are noticed on SIGHUP only", slog.Any("error", err))
	}
	go func() {
		if watcher == nil {
			watcher = &fsnotify.Watcher{} // that tells of nothing
		} else {
			defer watcher.Close()
		}
		w.run(ctx, hangup, watcher)
	}()
}

func (w *policyWatch) run(ctx context.Context, hangup <-chan struct{}, watcher *fsnotify.Watcher) {
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			w.reload(ctx)
		case <-watcher.Events: // of any file: the policy may be a link to what has changed
			if due == nil { // the log may be written in the same directory, all the time
				due = time.After(settleTime)
			}
		case err := <-watcher.Errors:
			w.logger.WarnContext(ctx, "changes of the policy file may go unnoticed", slog.Any("error", err))
		case <-due:
			due = nil
			w.reload(ctx)
		}
	}
}

func (w *policyWatch) reload(ctx context.Context) {
	policy, err := w.load()
	told := w.wrong
	w.wrong = ""
	switch {
	case err != nil:
		if w.wrong = err.Error(); w.wrong == told { // other files of its directory change too
			return
		}
		w.logger.ErrorContext(ctx, "policy not taken: the one before stays in force", slog.String("file", w.path), slog.Any("error", err))
	case policy.Digest != w.digest:
		w.digest = policy.Digest
		w.apply(ctx, policy)
		w.logger.WarnContext(ctx, "policy changed", slog.String("file", w.path), slog.String("digest", policy.Digest))
	case told != "":
		w.logger.WarnContext(ctx, "policy file is sound again, and says what is in force", slog.String("file", w.path))
	}
}
