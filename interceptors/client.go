package interceptors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/internal/splice"
)

// ClientOptions configure a Client. The zero value is ready.
type ClientOptions struct {
	// Logger is told of descriptors that are left out and of results in an incomplete form. Defaults to
	// silence.
	Logger *slog.Logger
	// Strict refuses results that do not say which interceptor, type and phase they are of, and lists
	// with a descriptor of which a member cannot be read. Defaults to reading every form that is in use.
	Strict bool
	// Respond turns an answer in the target's place into a *RespondError. Set it only for a host that is
	// trusted to speak for the target. Defaults to off: the answer is a failure like any other.
	Respond bool
}

// Client calls the extension's methods of a host. It is safe for concurrent use by many sessions.
type Client struct {
	opts ClientOptions
	log  *slog.Logger
}

// NewClient returns a client.
func NewClient(opts *ClientOptions) *Client {
	c := new(Client)
	if opts != nil {
		c.opts = *opts
	}
	if c.log = c.opts.Logger; c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c
}

// AddClient registers the extension's methods with an MCP client. It MUST be called before the client
// connects; the sessions that come of it can be given to List and Invoke of any Client.
func AddClient(client *mcp.Client) error {
	err := errors.Join(
		mcp.AddSendingCustomMethod[*callParams, *wireResult](client, MethodList),
		mcp.AddSendingCustomMethod[*callParams, *wireResult](client, MethodInvoke),
	)
	if err != nil {
		return fmt.Errorf("add interceptor methods: %w", err)
	}
	return nil
}

// MalformedError says that a host's answer cannot be read, or is not of what was asked for.
type MalformedError struct {
	Method string
	Err    error
}

func (e *MalformedError) Error() string { return fmt.Sprintf("read answer of %s: %v", e.Method, e.Err) }

func (e *MalformedError) Unwrap() error { return e.Err }

// Invoke calls one interceptor of a host. An error of the host is a *jsonrpc.Error, or a *RespondError
// when that is asked for; an answer that cannot be read, or that names another interceptor or phase, is a
// *MalformedError; a transport's failure comes as it is. Invoke sets no deadline of its own.
func (c *Client) Invoke(ctx context.Context, cs *mcp.ClientSession, p *InvokeParams) (*Result, error) {
	bare := *p
	bare.Meta = nil
	body, err := splice.Encode(&bare)
	if err != nil {
		return nil, fmt.Errorf("encode params of %s: %w", MethodInvoke, err)
	}
	raw, err := call(ctx, cs, MethodInvoke, &callParams{body: body, meta: p.Meta})
	if err != nil {
		return nil, c.peerError(err)
	}
	r, form, err := readResult(raw)
	if err == nil {
		err = c.checkEcho(r, form, p)
	}
	if err != nil {
		return nil, &MalformedError{MethodInvoke, err}
	}
	if form == shapeBare {
		c.log.WarnContext(ctx, "interceptor result is incomplete", slog.String("interceptor", p.Name))
	}
	r.Interceptor, r.Phase = p.Name, p.Phase
	return r, nil
}

// checkEcho compares what the result says of itself with what was asked.
func (c *Client) checkEcho(r *Result, form shape, p *InvokeParams) error {
	if c.opts.Strict && form != shapeFlat {
		return fmt.Errorf("the result is %s", form)
	}
	if c.opts.Strict && r.Type == TypeMutation && r.Payload == nil {
		return errors.New("a mutation without a payload")
	}
	if r.Interceptor != "" && r.Interceptor != p.Name {
		return fmt.Errorf("the result is of interceptor %q", r.Interceptor)
	}
	if r.Phase != "" && r.Phase != p.Phase {
		return fmt.Errorf("the result is of phase %q", r.Phase)
	}
	if r.Type == TypeMutation && !r.Modified && r.Payload != nil && !equalJSON(r.Payload, p.Payload) {
		return errors.New("the payload differs and is said to be unmodified")
	}
	return nil
}

func (c *Client) peerError(err error) error {
	var wire *jsonrpc.Error
	if !c.opts.Respond || !errors.As(err, &wire) {
		return err
	}
	if respond := readRespond(wire.Data); respond != nil {
		return respond
	}
	return err
}

// call sends params, which MUST be fresh since the SDK writes into them, and returns the result's bytes.
// A JSON-RPC error of the peer is returned itself, without what the SDK wraps around it.
func call(ctx context.Context, cs *mcp.ClientSession, method string, p *callParams) (json.RawMessage, error) {
	res, err := mcp.CallCustomMethod[*callParams, *wireResult](ctx, cs, method, p)
	if err != nil {
		var wire *jsonrpc.Error
		if errors.As(err, &wire) {
			return nil, wire
		}
		return nil, fmt.Errorf("call %s: %w", method, err)
	}
	return res.body, nil
}
