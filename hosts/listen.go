package hosts

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/undolog/undolog/interceptors"
)

// listener hears over HTTP that a host's interceptors have changed. Hosts before 2026-07-28 say it on the
// stream of a GET, which the SDK would keep to itself: so the GET is ours. Later ones say how long a list may
// be kept.
type listener struct {
	endpoint string
	client   *http.Client
	changed  func()
	logger   *slog.Logger
}

// errNoStream says that a host has no stream for us, which it is free to have or not.
var errNoStream = errors.New("it has no stream of events")

// listen keeps a stream open until ctx ends, or the host says that it has none.
func (l *listener) listen(ctx context.Context, session, protocol string) {
	for pause := pauseFirst; ; pause = min(2*pause, pauseMost) {
		begun, err := l.hear(ctx, session, protocol)
		if ctx.Err() != nil {
			return
		}
		l.logger.DebugContext(ctx, "interceptor host's stream has ended", slog.Any("error", err))
		if errors.Is(err, errNoStream) {
			return
		}
		if begun {
			pause = pauseFirst
		}
		timer := time.NewTimer(pause + time.Duration(rand.Int64N(int64(pause))))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// hear reads one stream to its end. begun says that there was one.
func (l *listener) hear(ctx context.Context, session, protocol string) (begun bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.endpoint, nil)
	if err != nil {
		return false, err
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", protocol)
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	res, err := l.client.Do(r)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	switch {
	case res.StatusCode >= 500:
		return false, fmt.Errorf("answered %s", res.Status)
	case res.StatusCode != http.StatusOK || !strings.EqualFold(strings.TrimSpace(media), "text/event-stream"):
		return false, errNoStream
	}
	l.changed() // perhaps, while nobody listened
	return true, l.read(res.Body)
}

// longestEvent is what is read of an event: notifications are short.
const longestEvent = 1 << 20

func (l *listener) read(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, longestEvent)
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		if more, ok := bytes.CutPrefix(line, []byte("data:")); ok && len(data)+len(more) < longestEvent {
			data = append(append(data, more...), '\n')
		}
		if len(line) > 0 {
			continue
		}
		if isChange(data) {
			l.changed()
		}
		data = data[:0]
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}

func isChange(event []byte) bool {
	var m struct{ Method string }
	return len(event) > 0 && json.Unmarshal(event, &m) == nil && m.Method == interceptors.NotificationListChanged
}
