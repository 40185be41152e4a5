//go:build peers

package peers_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"
)

// capture keeps every message of the server as the text that came, as lib/capture.mjs does.
type capture struct {
	mu       sync.Mutex
	tr       transcript
	progress bool // of the current step
	counts   map[string]int
	changed  chan struct{}
}

func newCapture() *capture {
	c := &capture{counts: map[string]int{}, changed: make(chan struct{})}
	c.begin("connect", false)
	c.end("ok")
	return c
}

func (c *capture) begin(name string, progress bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tr.Steps = append(c.tr.Steps, record{Name: name, Messages: []string{}})
	c.progress = progress
}

func (c *capture) end(outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tr.Steps[len(c.tr.Steps)-1].Outcome = outcome
}

func (c *capture) take(text []byte) {
	var m struct {
		JSONRPC string
		Method  string
		ID      json.RawMessage
	}
	if json.Unmarshal(text, &m) != nil || m.JSONRPC != "2.0" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	current := &c.tr.Steps[len(c.tr.Steps)-1]
	switch {
	case m.Method == "":
		current.Messages = append(current.Messages, string(text))
	case m.ID != nil:
		c.tr.Requests = append(c.tr.Requests, string(text))
	case m.Method != "notifications/progress":
		c.tr.Notifications = append(c.tr.Notifications, string(text))
	case c.progress:
		current.Messages = append(current.Messages, string(text))
	}
	if m.Method != "" {
		c.counts[m.Method]++
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// seen waits until count messages of a method have come since the start.
func (c *capture) seen(method string, count int) error {
	deadline := time.After(time.Minute)
	for {
		c.mu.Lock()
		have, changed := c.counts[method], c.changed
		c.mu.Unlock()
		if have >= count {
			return nil
		}
		select {
		case <-changed:
		case <-deadline:
			return fmt.Errorf("only %d of %d %s came", have, count, method)
		}
	}
}

// tap passes r on and takes the lines of it.
func (c *capture) tap(r io.Reader) io.ReadCloser {
	out, in := io.Pipe()
	go func() {
		lines := bufio.NewReaderSize(r, 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			if text := bytes.TrimSpace(line); len(text) > 0 {
				c.take(text)
			}
			if _, writeErr := in.Write(line); err != nil || writeErr != nil {
				in.CloseWithError(err)
				return
			}
		}
	}()
	return out
}

// RoundTrip takes the messages of an HTTP answer, a JSON body or an event stream.
func (c *capture) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	resp.Body = &tappedBody{ReadCloser: resp.Body, capture: c, events: kind == "text/event-stream"}
	return resp, nil
}

// tappedBody takes messages before it hands out the bytes that end them.
type tappedBody struct {
	io.ReadCloser
	capture *capture
	events  bool
	pending []byte
}

func (b *tappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.pending = append(b.pending, p[:n]...)
	if b.events {
		b.takeEvents()
	} else if err != nil {
		b.capture.take(bytes.TrimSpace(b.pending))
		b.pending = nil
	}
	return n, err
}

func (b *tappedBody) takeEvents() {
	for {
		end := bytes.IndexByte(b.pending, '\n')
		if end < 0 {
			return
		}
		line := bytes.TrimSpace(b.pending[:end])
		b.pending = b.pending[end+1:]
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			b.capture.take(bytes.TrimSpace(data))
		}
	}
}
