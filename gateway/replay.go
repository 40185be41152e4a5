package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/undolog/undolog/internal/splice"
)

// replay is what a session has told its upstream about itself, to be said again to the next one: the
// handshake, the logging level, the subscriptions. Never a call.
type replay struct {
	mu        sync.Mutex
	hello     *Message // initialize
	ready     *Message // notifications/initialized
	level     *Message
	resources []subscription // in the order of subscribing
}

type subscription struct {
	uri string
	m   *Message
}

func (r *replay) initialize(m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hello = m
}

func (r *replay) initialized(m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = m
}

// note remembers a request that has been answered with a result.
func (r *replay) note(m *Message) {
	switch m.Method {
	case methodSetLevel:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.level = m
	case methodSubscribe, methodUnsubscribe:
		r.mu.Lock()
		defer r.mu.Unlock()
		uri := unquote(splice.Get(m.Params, "uri"))
		for i, s := range r.resources {
			if s.uri == uri {
				r.resources = append(r.resources[:i:i], r.resources[i+1:]...)
				break
			}
		}
		if m.Method == methodSubscribe {
			r.resources = append(r.resources, subscription{uri, m})
		}
	}
}

// run says it all again on conn. Only the handshake must succeed; a subscription that the new upstream
// refuses is reported and forgotten by it alone.
func (r *replay) run(ctx context.Context, c *core, conn Conn) error {
	r.mu.Lock()
	hello, ready, level := r.hello, r.ready, r.level
	resources := r.resources
	r.mu.Unlock()
	if hello == nil {
		return nil
	}
	result, err := c.askOn(ctx, conn, methodInitialize, hello.Params)
	if err != nil {
		return err
	}
	c.learn(methodInitialize, result)
	if ready == nil {
		return nil
	}
	if _, err := conn.Write(ctx, ready); err != nil {
		return fmt.Errorf("send %s: %w", methodInitialized, err)
	}
	var again []*Message
	if level != nil {
		again = append(again, level)
	}
	for _, s := range resources {
		again = append(again, s.m)
	}
	for _, m := range again {
		if _, err := c.askOn(ctx, conn, m.Method, m.Params); err != nil {
			c.logger.Warn("upstream does not take up what its predecessor had", slog.String("method", m.Method), slog.Any("error", err))
		}
	}
	return nil
}
