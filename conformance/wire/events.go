package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// longestStream bounds what is read of one stream, or of a body that is none.
const longestStream = 64 << 20

// events takes what a stream says and returns the response in it: the last message that is no request.
func (h *HTTP) events(ctx context.Context, stream io.Reader) (last json.RawMessage, err error) {
	in := bufio.NewReader(io.LimitReader(stream, longestStream))
	for {
		line, err := in.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if response := h.take(ctx, bytes.TrimSpace(data)); response != nil {
				last = response
			}
		}
		switch {
		case err == io.EOF:
			return last, nil
		case err != nil:
			return nil, err
		}
	}
}

// take returns a message that is a response, and deals with all others.
func (h *HTTP) take(ctx context.Context, data []byte) (response json.RawMessage) {
	var m Message
	if json.Unmarshal(data, &m) != nil {
		return nil // an event that is no message; the answer that is missing will be found
	}
	if m.Method == "" {
		return data
	}
	var result json.RawMessage
	if h.OnMessage != nil {
		result = h.OnMessage(&m)
	}
	if m.ID != nil {
		h.reply(ctx, m.ID, result)
	}
	return nil
}

// reply answers a request of the peer's, with an error where there is no result.
func (h *HTTP) reply(ctx context.Context, id, result json.RawMessage) {
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
	if result == nil {
		body = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, id)
	}
	_, _, _ = h.do(ctx, http.MethodPost, h.headers(""), body) // a lost peer is found by the next call
}

// streamPatience is how long a peer may take to open its stream before what would come on it is not waited for.
const streamPatience = 2 * time.Second

// listen opens the stream on which a peer with sessions says what belongs to no answer. A peer need not have
// one, and may keep its header until it has something to say.
func (h *HTTP) listen() {
	ctx, hang := context.WithCancel(context.Background())
	h.hang = hang
	opened := make(chan struct{})
	h.listening.Go(func() { h.hear(ctx, sync.OnceFunc(func() { close(opened) })) })
	timer := time.NewTimer(streamPatience)
	defer timer.Stop()
	select {
	case <-opened:
	case <-timer.C:
	}
}

// hear reads the stream to its end. It tells when that is open, or is not to be.
func (h *HTTP) hear(ctx context.Context, opened func()) {
	defer opened()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL, nil)
	if err != nil {
		return
	}
	for name, values := range h.Header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "text/event-stream")
	for name, value := range h.headers("") {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	res, err := h.client.Do(req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	opened()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		_, _ = h.events(ctx, res.Body) // it ends when one of the two hangs up
	}
}
