package chain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/undolog/undolog/interceptors"
)

// panicError is a panic of a host or an upstream. Its stack is for debug logs alone.
type panicError struct {
	who   string
	value any
	stack []byte
}

// newPanicError is called while the panic is recovered from.
func newPanicError(who string, value any) *panicError {
	return &panicError{who, value, debug.Stack()}
}

func (e *panicError) Error() string { return fmt.Sprintf("%s panicked: %v", e.who, e.value) }

// brief is an error as logs and Outcome.Reason have it: hosts write what they like into theirs.
func brief(err error) string { return interceptors.Brief(err.Error()) }

// longestFailure is what debug logs have of an error.
const longestFailure = 64 << 10

// noteFailure logs a failed invocation: in brief, and at Debug with all that its host wrote.
func (r *run) noteFailure(ctx context.Context, e *entry, failure error) {
	logger := r.chain.opts.Logger
	logger.WarnContext(ctx, "interceptor failed",
		slog.String("interceptor", e.descriptor.Name), slog.String("host", e.host.Name()),
		slog.String("mode", string(e.mode)), slog.Bool("failOpen", e.failOpen),
		slog.String("phase", string(r.params.Phase)), slog.String("exchange", r.params.Exchange),
		slog.String("error", brief(failure)))
	noteWhole(ctx, logger, r.params.Exchange, failure)
}

// noteWhole is for what brief leaves out.
func noteWhole(ctx context.Context, logger *slog.Logger, exchange string, failure error) {
	if !logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	text := failure.Error()
	attrs := []slog.Attr{slog.String("exchange", exchange), slog.String("error", text[:min(len(text), longestFailure)])}
	var p *panicError
	if errors.As(failure, &p) {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	logger.LogAttrs(ctx, slog.LevelDebug, "failure in full", attrs...)
}
