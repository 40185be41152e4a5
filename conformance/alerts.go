package conformance

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// AlertLog keeps what an operator is told, line by line, as an io.Writer that programs and loggers write to.
// It is safe for concurrent use; the zero value is ready.
type AlertLog struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // closed at the next write; nil while nobody waits
}

// alertPatience is how long what is written by another program may be on its way.
const alertPatience = 10 * time.Second

// Write implements io.Writer.
func (l *AlertLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return l.text.Write(p)
}

// Await returns what was written as soon as every text is in it; without them, what there is after a while.
func (l *AlertLog) Await(ctx context.Context, texts []string) string {
	timer := time.NewTimer(alertPatience)
	defer timer.Stop()
	for {
		written, more := l.written()
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(written, text) }) {
			return written
		}
		select {
		case <-more:
		case <-timer.C:
			return written
		case <-ctx.Done():
			return written
		}
	}
}

func (l *AlertLog) written() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return l.text.String(), l.more
}
