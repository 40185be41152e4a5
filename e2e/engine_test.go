package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/undolog/undolog/internal/mcptest"
)

// engine is somebody else's chain engine, as short as it can be: it has undolog/effect invoked before and
// after each call of a tool. Every invocation goes to the next of the interceptor servers.
type engine struct {
	hosts     []*mcptest.HTTP
	tools     *mcptest.HTTP
	principal string
	server    string
	turn      atomic.Int64
}

func (e *engine) call(ctx context.Context, id, tool, arguments, meta string) (mcptest.Message, error) {
	sent, err := e.invoke(ctx, id, "request", mcptest.ToolParams(tool, arguments, meta))
	if err != nil || sent.Error != nil {
		return respondedOr(sent), err
	}
	params, err := changed(sent)
	if err != nil {
		return sent, err
	}
	m, err := e.tools.Do(ctx, id, mcptest.Request(id, "tools/call", withMeta(params, mcptest.MetaMembers)))
	if err != nil || m.Error != nil {
		return m, err
	}
	recorded, err := e.invoke(ctx, id, "response", handBack(m.Result, params))
	if err != nil || recorded.Error != nil {
		return recorded, err
	}
	m.Result, err = changed(recorded)
	return m, err
}

func (e *engine) invoke(ctx context.Context, id, phase, payload string) (mcptest.Message, error) {
	host := e.hosts[int(e.turn.Add(1))%len(e.hosts)]
	return host.Do(ctx, id, mcptest.Request(id, "interceptor/invoke", fmt.Sprintf(
		`{"name":"undolog/effect","event":"tools/call","phase":%q,"payload":%s,"config":{"server":%q},`+
			`"context":{"principal":{"type":"service","id":%q},"dev.undolog/exchange":%q},"_meta":{%s}}`,
		phase, payload, e.server, e.principal, "exchange "+id, mcptest.MetaMembers)))
}

// respondedOr is the answer that an error carries in the tool's place, else the error.
func respondedOr(m mcptest.Message) mcptest.Message {
	var e struct {
		Data struct {
			Respond struct {
				Result json.RawMessage `json:"result"`
			} `json:"dev.undolog/respond"`
		} `json:"data"`
	}
	if json.Unmarshal(m.Error, &e) == nil && e.Data.Respond.Result != nil {
		m.Result, m.Error = e.Data.Respond.Result, nil
	}
	return m
}

// changed is the payload of a mutation's result.
func changed(m mcptest.Message) (json.RawMessage, error) {
	var r struct {
		Payload json.RawMessage `json:"payload"`
	}
	err := json.Unmarshal(m.Result, &r)
	return r.Payload, err
}

// withMeta puts members into the _meta of an object, which is not empty where it has one.
func withMeta(object json.RawMessage, members string) string {
	const meta = `"_meta":{`
	if before, after, found := strings.Cut(string(object), meta); found {
		return before + meta + members + "," + after
	}
	return "{" + meta + members + "}," + strings.TrimPrefix(string(object), "{")
}

// handBack puts the mark that was on the params on the result: by it any of the interceptor servers knows
// which call this is the answer of.
func handBack(result, params json.RawMessage) string {
	var p struct {
		Meta struct {
			Effect json.RawMessage `json:"dev.undolog/effect"`
		} `json:"_meta"`
	}
	if json.Unmarshal(params, &p) != nil || p.Meta.Effect == nil {
		return string(result)
	}
	return withMeta(result, `"dev.undolog/effect":`+string(p.Meta.Effect))
}
