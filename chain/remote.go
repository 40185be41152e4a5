package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// RemoteOptions says how far a remote host is trusted and in which form it is called.
type RemoteOptions struct {
	// Respond trusts the host as if it were in process: it may answer in the target's place, direct the
	// dispatch and word the requester's error. Defaults to no.
	Respond bool
	// Wrapped sends request payloads as {method, params}. Defaults to bare params.
	Wrapped bool
	// Strict refuses results that do not name their interceptor, type and phase. Defaults to taking them
	// with a warning.
	Strict bool
	// Logger is told of incomplete answers. Defaults to none.
	Logger *slog.Logger
}

// Remote returns a host behind an MCP session. The session's client MUST have been prepared by
// interceptors.AddClient before it connected. The host does not close the session.
func Remote(name string, session *mcp.ClientSession, opts *RemoteOptions) Host {
	h := &remoteHost{name: name, session: session}
	if opts != nil {
		h.opts = *opts
	}
	h.client = interceptors.NewClient(&interceptors.ClientOptions{
		Logger:  h.opts.Logger,
		Strict:  h.opts.Strict,
		Respond: h.opts.Respond,
	})
	h.lister = interceptors.NewClient(&interceptors.ClientOptions{Logger: h.opts.Logger})
	return h
}

type remoteHost struct {
	name    string
	session *mcp.ClientSession
	client  *interceptors.Client
	lister  *interceptors.Client // never strict: one descriptor of a new type must not take the others out
	opts    RemoteOptions
}

func (h *remoteHost) Name() string  { return h.name }
func (h *remoteHost) Trusted() bool { return h.opts.Respond }

func (h *remoteHost) List(ctx context.Context) ([]interceptors.Descriptor, error) {
	return h.lister.List(ctx, h.session, "")
}

func (h *remoteHost) Listing(ctx context.Context) (*interceptors.Listing, error) {
	return h.lister.Listing(ctx, h.session, "")
}

func (h *remoteHost) Invoke(ctx context.Context, params *interceptors.InvokeParams) (*interceptors.Result, error) {
	if params.Context != nil && params.Meta == nil {
		params.Meta = traceMeta(params.Context)
	}
	wrapped := h.opts.Wrapped && params.Phase == interceptors.PhaseRequest
	if wrapped {
		params.Payload = wrap(params.Event, params.Payload)
	}
	res, err := h.client.Invoke(ctx, h.session, params)
	if err != nil {
		return nil, h.meant(err)
	}
	if wrapped && len(res.Payload) > 0 {
		if res.Payload = splice.Get(res.Payload, "params"); res.Payload == nil {
			return nil, errors.New("malformed result: the payload has lost its params")
		}
	}
	return res, nil
}

// meant turns the error of a trusted host into a BlockError where it is meant for the requester: the
// protocol's own errors carry no vendor's data.
func (h *remoteHost) meant(err error) error {
	var wire *jsonrpc.Error
	if !h.opts.Respond || !errors.As(err, &wire) {
		return err
	}
	vendor := false
	_ = splice.Each(wire.Data, func(name string, _ []byte) {
		vendor = vendor || strings.Contains(name, "/")
	})
	if !vendor {
		return err
	}
	return &interceptors.BlockError{Code: wire.Code, Message: wire.Message, Data: wire.Data}
}

func wrap(method string, params json.RawMessage) json.RawMessage {
	return fmt.Appendf(nil, `{"method":%s,"params":%s}`, quoted(method), params)
}

// traceMeta hands the operation's trace on; nil without one.
func traceMeta(c *interceptors.Context) json.RawMessage {
	if !isHex(c.TraceID, 32) || !isHex(c.SpanID, 16) {
		return nil
	}
	return fmt.Appendf(nil, `{"traceparent":"00-%s-%s-01"}`, c.TraceID, c.SpanID)
}

func isHex(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "0123456789abcdef") == ""
}

// readTraceparent takes the ids out of a traceparent; empty when it is none.
func readTraceparent(s string) (trace, span string) {
	parts := strings.Split(s, "-")
	if len(parts) < 4 || !isHex(parts[1], 32) || !isHex(parts[2], 16) {
		return "", ""
	}
	return parts[1], parts[2]
}
