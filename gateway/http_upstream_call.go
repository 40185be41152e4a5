package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/undolog/undolog/internal/splice"
)

// upstreamCall is one request on its way through an httpUpstream.
type upstreamCall struct {
	id        json.RawMessage
	method    string
	stateless bool               // of the generation in which closing the stream cancels
	cancel    context.CancelFunc // closes the stream

	returned chan struct{} // closed when net/http has given the request back

	once    sync.Once
	written chan struct{} // closed when outcome is set
	outcome error         // how the writing ended; nil: written
}

// settle notes how the writing ended, if nothing has been noted yet, and returns what counts.
func (c *upstreamCall) settle(err error) (outcome error) {
	c.once.Do(func() {
		c.outcome = err
		close(c.written)
	})
	<-c.written
	return c.outcome
}

// awaitWritten returns when the request has been written, or why it was not. The end of ctx stops the
// writing; a request that is out already is left alone.
func (c *upstreamCall) awaitWritten(ctx context.Context) error {
	select {
	case <-c.written:
		return c.outcome
	case <-ctx.Done():
	}
	err := c.settle(ctx.Err())
	if err != nil {
		c.cancel()
		<-c.returned // before that, bytes may still leave
	}
	return err
}

// call posts a request. When it returns without error, what follows is one message from Read; when it
// returns an error nothing follows.
func (c *httpUpstream) call(ctx context.Context, m *Message) (written bool, err error) {
	life, cancel := context.WithCancel(c.life)
	call := &upstreamCall{id: m.ID, method: m.Method, cancel: cancel, written: make(chan struct{}), returned: make(chan struct{})}
	trace := &writeTrace{onWritten: func() { call.settle(nil) }}
	req, err := c.request(trace.attach(life), http.MethodPost, m)
	if err != nil {
		cancel()
		return false, err
	}
	call.stateless = req.Header.Get(protocolHeader) >= statelessProtocol
	if err := c.begin(call, req); err != nil {
		cancel()
		return false, err
	}
	if err = call.awaitWritten(ctx); err == nil {
		return true, nil
	}
	return trace.written(ctx.Err() != nil || c.life.Err() != nil), fmt.Errorf("post %s to upstream: %w", m.Method, err)
}

// begin enters call among those under way and starts it.
func (c *httpUpstream) begin(call *upstreamCall, req *http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.life.Err() != nil:
		return http.ErrServerClosed
	case c.failure != nil:
		return c.failure
	}
	c.calls[idKey(call.id)] = call
	c.work.Go(func() {
		defer c.finish(call)
		c.roundTrip(call, req)
	})
	return nil
}

func (c *httpUpstream) finish(call *upstreamCall) {
	call.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if key := idKey(call.id); c.calls[key] == call {
		delete(c.calls, key)
	}
}

// hangUp serves a cancellation in the generation in which it is said by closing the response stream. It
// reports false when m has to be sent as the notification that it is.
func (c *httpUpstream) hangUp(m *Message) bool {
	c.mu.Lock()
	call := c.calls[idKey(splice.Get(m.Params, "requestId"))]
	c.mu.Unlock()
	if call == nil || !call.stateless {
		return false
	}
	call.cancel()
	return true
}

// roundTrip does the request and reads its answer to the end.
func (c *httpUpstream) roundTrip(call *upstreamCall, req *http.Request) {
	resp, err := c.client.Do(req)
	close(call.returned)
	if err != nil {
		err = withoutURL(err)
		if call.settle(err) == nil {
			c.lose(call, err)
		}
		return
	}
	defer resp.Body.Close()
	if call.settle(nil) != nil { // a server may answer before it has read all
		return
	}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch media = strings.ToLower(strings.TrimSpace(media)); {
	case resp.StatusCode/100 != 2:
		c.refused(call, resp)
	case media == "text/event-stream":
		c.readStream(call, resp)
	case media == "application/json":
		c.readBody(call, resp)
	default:
		c.lose(call, fmt.Errorf("the upstream answered HTTP %s with content type %q", resp.Status, media))
	}
}

// lose says that call will have no answer.
func (c *httpUpstream) lose(call *upstreamCall, cause error) {
	c.deliver(&Message{ID: call.id, Lost: true, Cause: cause, For: call.id})
}
