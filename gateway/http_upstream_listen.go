package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// listen opens the stream for messages that belong to no request, once a session. An upstream without
// one answers 405.
func (c *httpUpstream) listen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listening || c.life.Err() != nil {
		return
	}
	c.listening = true
	c.work.Go(c.listenLoop)
}

// listenLoop keeps the stream open until the connection ends or the upstream has none.
func (c *httpUpstream) listenLoop() {
	pos := streamPosition{retry: firstListenDelay}
	wait := pos.retry
	for {
		resp, err := c.openStream(pos.lastID)
		switch {
		case err != nil:
			c.logger.Debug("upstream stream not opened", slog.Any("error", err))
			wait = min(2*wait, longestListenWait)
		case resp == nil:
			return
		default:
			c.readEvents(nil, resp, &pos)
			wait = pos.retry
		}
		if !c.pause(wait) {
			return
		}
	}
}

// openStream opens the stream. It returns nil without error when the upstream has none.
func (c *httpUpstream) openStream(lastID string) (*http.Response, error) {
	req, err := c.request(c.life, http.MethodGet, nil)
	if err != nil {
		return nil, err
	}
	if lastID != "" {
		req.Header.Set(lastEventHeader, lastID)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("open upstream stream: %w", withoutURL(err))
	}
	if resp.StatusCode == http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return resp, nil
	}
	resp.Body.Close()
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
		return nil, fmt.Errorf("open upstream stream: HTTP %s", resp.Status)
	}
	return nil, nil // a 404 says that there is no such stream, or no session: the next POST will tell
}

// resume asks for the events of a broken response stream behind the last one that came.
func (c *httpUpstream) resume(broken *http.Request, pos *streamPosition) (resp *http.Response, err error) {
	for range resumeAttempts {
		if !c.pauseUnder(broken.Context(), max(pos.retry, resumeDelay)) {
			return nil, broken.Context().Err()
		}
		if resp, err = c.openAt(broken, pos.lastID); err == nil {
			return resp, nil
		}
	}
	return nil, err
}

func (c *httpUpstream) openAt(broken *http.Request, lastID string) (*http.Response, error) {
	req, err := c.request(broken.Context(), http.MethodGet, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(lastEventHeader, lastID)
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("HTTP %s", resp.Status)
	}
	return resp, nil
}

func (c *httpUpstream) pause(d time.Duration) bool { return c.pauseUnder(c.life, d) }

// pauseUnder waits for d and reports false when ctx ended before.
func (c *httpUpstream) pauseUnder(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
