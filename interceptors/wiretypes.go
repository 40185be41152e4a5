package interceptors

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/internal/splice"
)

// rawParams are params as they came. Reading them never fails: the SDK would answer a failure with an
// error that quotes them whole. DecodeInvoke judges them later.
type rawParams struct {
	mcp.ParamsBase
	raw    json.RawMessage
	peer   string // the protocol revision of the request
	caller Caller
}

// UnmarshalJSON keeps the bytes, and _meta where the SDK looks for the revision.
func (p *rawParams) UnmarshalJSON(raw []byte) error {
	p.raw = bytes.Clone(raw)
	var base struct {
		Meta mcp.Meta `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &base); err == nil {
		p.Meta = base.Meta
	}
	return nil
}

// event reads the params of interceptors/list.
func (p *rawParams) event() (string, error) {
	if p == nil || len(p.raw) == 0 || isNull(p.raw) {
		return "", nil
	}
	ms, err := members(p.raw)
	if err != nil {
		return "", &ParamsError{Problems: []Problem{problemOf("", err)}}
	}
	var event string
	var problems []Problem
	for _, m := range ms {
		if m.name == "event" {
			event = optionalString("/event", m.value, &problems)
		}
	}
	if len(problems) > 0 {
		return "", &ParamsError{Problems: problems}
	}
	return event, nil
}

// isStateless reports whether the request is of a revision without sessions.
func (p *rawParams) isStateless() bool { return p != nil && p.peer >= stateless }

// result makes an encoded object the result for this peer.
func (p *rawParams) result(body []byte) *wireResult {
	r := &wireResult{body: body}
	if p.isStateless() {
		r.resultType = "complete" // revision 2026-07-28 demands it; older ones do not know it
	}
	return r
}

// wireResult is a result whose members are encoded already.
type wireResult struct {
	mcp.ResultBase
	resultType string
	body       []byte // an object
}

// MarshalJSON adds what the transport knows to the body.
func (r *wireResult) MarshalJSON() ([]byte, error) {
	var extra []member
	if r.resultType != "" {
		extra = append(extra, member{"resultType", splice.Quote(r.resultType)})
	}
	if len(r.Meta) > 0 {
		raw, err := splice.Encode(r.Meta)
		if err != nil {
			return nil, fmt.Errorf("encode result meta: %w", err)
		}
		extra = append(extra, member{"_meta", raw})
	}
	return append(appendMembers(bytes.Clone(r.body[:len(r.body)-1]), extra...), '}'), nil
}

// UnmarshalJSON keeps the bytes, for the calling side.
func (r *wireResult) UnmarshalJSON(raw []byte) error {
	r.body = bytes.Clone(raw)
	return nil
}

// callParams are encoded params on the calling side; the SDK puts its own members into Meta.
type callParams struct {
	mcp.ParamsBase
	body json.RawMessage // an object without _meta
	meta json.RawMessage // the caller's _meta, an object or nil
}

// MarshalJSON writes one _meta: the caller's members, digit for digit, and the SDK's in their place.
func (p *callParams) MarshalJSON() ([]byte, error) {
	meta := []byte{'{'}
	if p.meta != nil {
		ms, err := members(p.meta)
		if err != nil {
			return nil, fmt.Errorf("encode params meta: %w", err)
		}
		for _, m := range ms {
			if _, own := p.Meta[m.name]; own {
				continue
			}
			meta = appendMembers(meta, m)
		}
	}
	if len(p.Meta) > 0 {
		own, err := splice.Encode(p.Meta)
		if err != nil {
			return nil, fmt.Errorf("encode params meta: %w", err)
		}
		if len(meta) > 1 {
			meta = append(meta, ',')
		}
		meta = append(meta, own[1:len(own)-1]...)
	}
	if len(meta) == 1 {
		return p.body, nil
	}
	body := appendMembers(bytes.Clone(p.body[:len(p.body)-1]), member{"_meta", append(meta, '}')})
	return append(body, '}'), nil
}
