package gateway_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/undolog/undolog/gateway"
	"github.com/undolog/undolog/internal/mcptest"
)

// SEP-2243: an argument that its tool wants as a header too is refused where the two say different things.
func TestFront_StatelessParamHeadersRepeatTheArguments(t *testing.T) {
	f := newFront(t, nil, scriptedAll(func(m *gateway.Message, send func(string)) {
		switch m.Method {
		case "tools/list":
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"x","inputSchema":{"type":"object",`+
				`"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}}`, m.ID))
		case "server/discover":
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID))
		case "tools/call":
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID))
		}
	}))
	header := func(method string, more ...string) map[string]string {
		h := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	list := mcptest.Request("1", "tools/list", `{"_meta":{`+mcptest.MetaMembers+`}}`)
	if resp := f.do(t, "", list, header("tools/list"), nil); resp.StatusCode != 200 {
		t.Fatalf("tools/list: %s", resp.Status)
	}
	for name, c := range map[string]struct {
		region string // the header; "-": none
		args   string
		status int
	}{
		"the same":                      {"north", `{"region":"north"}`, 200},
		"the same in base64":            {"=?base64?bm9ydGg=?=", `{"region":"north"}`, 200},
		"neither":                       {"-", `{}`, 200},
		"null and no header":            {"-", `{"region":null}`, 200},
		"another":                       {"south", `{"region":"north"}`, 400},
		"no header":                     {"-", `{"region":"north"}`, 400},
		"no argument":                   {"north", `{}`, 400},
		"base64 without its padding":    {"=?base64?bm9ydGg?=", `{"region":"north"}`, 400},
		"base64 of no such letters":     {"=?base64?bm9y!!!dGg=?=", `{"region":"north"}`, 400},
		"what is no base64 is verbatim": {"bm9ydGg=", `{"region":"north"}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			h := header("tools/call", "Mcp-Name", "x")
			if c.region != "-" {
				h["Mcp-Param-Region"] = c.region
			}
			resp := f.do(t, "", mcptest.ToolCall("5", "x", c.args, mcptest.MetaMembers), h, nil)
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != c.status {
				t.Fatalf("status is %d, want %d: %s, %v", resp.StatusCode, c.status, body, err)
			}
			if c.status == 200 {
				return
			}
			m, err := mcptest.ParseMessage(body)
			if err != nil {
				t.Fatal(err)
			}
			if e, err := m.Err(); err != nil || e.Code != -32020 {
				t.Errorf("answer is %s, want code -32020", body)
			}
		})
	}
}
