package interceptors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/internal/splice"
)

// maxPages bounds the pages of one list.
const maxPages = 1000

// Listing is what a host answers to interceptors/list.
type Listing struct {
	Interceptors []Descriptor
	// TTL is how long the host says that the list may be kept; zero: not at all. Nothing is known of it when
	// HasTTL is false.
	TTL    time.Duration
	HasTTL bool
}

// add takes a page into the listing, whose time is the shortest that a page names.
func (l *Listing) add(page *wirePage, descriptors []Descriptor) {
	l.Interceptors = append(l.Interceptors, descriptors...)
	if ttl, ok := page.ttl(); ok && (!l.HasTTL || ttl < l.TTL) {
		l.TTL, l.HasTTL = ttl, true
	}
}

// List is Listing without the time that the list may be kept.
func (c *Client) List(ctx context.Context, cs *mcp.ClientSession, event string) ([]Descriptor, error) {
	l, err := c.Listing(ctx, cs, event)
	if err != nil {
		return nil, err
	}
	return l.Interceptors, nil
}

// Listing asks a host for its descriptors, those with a hook for the event, or all when it is empty, and
// reads every page. A descriptor of an unknown type or mode is left out, the others are kept. An error of
// the host is a *jsonrpc.Error.
func (c *Client) Listing(ctx context.Context, cs *mcp.ClientSession, event string) (*Listing, error) {
	listing := new(Listing)
	cursor := ""
	for range maxPages {
		body, err := splice.Encode(struct {
			Event  string `json:"event,omitempty"`
			Cursor string `json:"cursor,omitempty"`
		}{event, cursor})
		if err != nil {
			return nil, fmt.Errorf("encode params of %s: %w", MethodList, err)
		}
		raw, err := call(ctx, cs, MethodList, &callParams{body: body})
		if err != nil {
			return nil, err
		}
		page, descriptors, err := c.readPage(ctx, raw)
		if err != nil {
			return nil, &MalformedError{MethodList, err}
		}
		listing.add(page, descriptors)
		if page.NextCursor == "" {
			return listing, nil
		}
		cursor = page.NextCursor
	}
	return nil, &MalformedError{MethodList, fmt.Errorf("more than %d pages", maxPages)}
}

// wirePage is a page of a list.
type wirePage struct {
	Interceptors []json.RawMessage `json:"interceptors"`
	NextCursor   string            `json:"nextCursor"`
	TTLMs        json.RawMessage   `json:"ttlMs"`
}

// ttl reads how long the page may be kept. What is no number of milliseconds says nothing: a list is good
// without it.
func (p *wirePage) ttl() (ttl time.Duration, ok bool) {
	const most = float64(math.MaxInt64 / int64(time.Millisecond) / 2)
	ms, err := strconv.ParseFloat(string(p.TTLMs), 64)
	if err != nil || ms < 0 {
		return 0, false
	}
	return time.Duration(min(ms, most)) * time.Millisecond, true
}

func (c *Client) readPage(ctx context.Context, raw json.RawMessage) (wire *wirePage, page []Descriptor, err error) {
	wire = new(wirePage)
	if err := json.Unmarshal(raw, wire); err != nil {
		return nil, nil, err
	}
	if wire.Interceptors == nil {
		return nil, nil, errors.New("interceptors is missing")
	}
	for _, one := range wire.Interceptors {
		d, odd, err := readDescriptor(one)
		if err == nil && len(odd) > 0 && c.opts.Strict {
			err = fmt.Errorf("%s of interceptor %q cannot be read", strings.Join(odd, ", "), d.Name)
		}
		switch {
		case err == nil:
			c.noteOdd(ctx, &d, odd)
			page = append(page, d)
		case c.opts.Strict:
			return nil, nil, err
		default:
			c.log.WarnContext(ctx, "interceptor left out", slog.String("error", Brief(err.Error())))
		}
	}
	return wire, page, nil
}

// noteOdd tells of members that were read as near as can be, or not at all.
func (c *Client) noteOdd(ctx context.Context, d *Descriptor, odd []string) {
	if len(odd) > 0 {
		c.log.WarnContext(ctx, "interceptor is not described as the protocol has it",
			slog.String("interceptor", Brief(d.Name)), slog.Any("members", odd))
	}
}
