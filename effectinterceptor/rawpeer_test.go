package effectinterceptor_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// rawInvoke calls interceptor/invoke by bare messages and returns the result's bytes.
func rawInvoke(t *testing.T, transport mcp.Transport, params string) json.RawMessage {
	t.Helper()
	conn, err := transport.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	send := func(text string) {
		m, err := jsonrpc.DecodeMessage([]byte(text))
		if err == nil {
			err = conn.Write(t.Context(), m)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	receive := func() json.RawMessage {
		m, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, ok := m.(*jsonrpc.Response)
		if !ok || r.Error != nil {
			t.Fatalf("received %+v", m)
		}
		return r.Result
	}
	send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	receive()
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	send(`{"jsonrpc":"2.0","id":2,"method":"interceptor/invoke","params":` + params + `}`)
	return receive()
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
