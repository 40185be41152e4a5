package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/examples/payments/ledger"
)

// call is one tools/call with its arguments as they came.
type call struct {
	req  *mcp.CallToolRequest
	raw  json.RawMessage
	args map[string]json.RawMessage
}

// newCall checks the arguments against the tool's parameters; problem says in words what is wrong.
func newCall(t tool, req *mcp.CallToolRequest) (c *call, problem string) {
	c = &call{req: req, raw: req.Params.Arguments, args: map[string]json.RawMessage{}}
	if len(c.raw) == 0 {
		c.raw = json.RawMessage("{}")
	}
	if err := json.Unmarshal(c.raw, &c.args); err != nil {
		return nil, "arguments must be an object"
	}
	for _, p := range t.params {
		value, ok := c.args[p.name]
		switch {
		case !ok && !p.optional:
			return nil, p.name + " is missing"
		case ok && !p.accepts(value):
			return nil, fmt.Sprintf("%s must be a %s", p.name, p.kind)
		}
	}
	return c, ""
}

// text returns a string argument, empty when it is absent.
func (c *call) text(name string) string {
	var s string
	if raw, ok := c.args[name]; ok {
		_ = json.Unmarshal(raw, &s) // checked by newCall
	}
	return s
}

// record appends the call's effect to the ledger.
func (c *call) record(p *payments, tool, prefix string) (ledger.Entry, error) {
	e := ledger.Entry{Tool: tool, Arguments: c.raw}
	e.Key, _ = c.req.Params.Meta["idempotencyKey"].(string)
	if effect, ok := c.req.Params.Meta["dev.undolog/effect"]; ok {
		raw, err := json.Marshal(effect)
		if err != nil {
			return ledger.Entry{}, fmt.Errorf("encode effect: %w", err)
		}
		e.Effect = raw
	}
	recorded, _, err := p.book.Append(e, prefix)
	return recorded, err
}

// progress tells a client that asked for it how far the call is.
func (c *call) progress(ctx context.Context, done, total float64) error {
	token := c.req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	return c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: token, Progress: done, Total: total,
	})
}

// find returns the charge with an id, as the ledger has it.
func (p *payments) find(id string) (ledger.Entry, bool, error) {
	entries, err := p.book.Entries()
	if err != nil {
		return ledger.Entry{}, false, err
	}
	i := slices.IndexFunc(entries, func(e ledger.Entry) bool { return e.Tool == "charge" && e.ID == id })
	if i < 0 {
		return ledger.Entry{}, false, nil
	}
	return entries[i], true, nil
}

// encode is json.Marshal without escapes for HTML.
func encode(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
