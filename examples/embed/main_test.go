package main

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestEmbed(t *testing.T) {
	c, err := newChain(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	serverSide, clientSide := mcp.NewInMemoryTransports()
	ss, err := newServer(c).Connect(t.Context(), serverSide, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), clientSide, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cs.Close(); _ = ss.Wait() }()

	t.Run("a small sum is transferred", func(t *testing.T) {
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "transfer", Arguments: transferArguments{"alice", 1000}})
		if err != nil || res.Content[0].(*mcp.TextContent).Text != "1000 cents went to alice" {
			t.Errorf("result %+v, error %v", res, err)
		}
	})
	t.Run("a large one is refused, without the reason", func(t *testing.T) {
		_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "transfer", Arguments: transferArguments{"alice", 100_001}})
		var refused *jsonrpc.Error
		if !errors.As(err, &refused) || refused.Message != "Interceptor validation failed" {
			t.Errorf("error %v", err)
		}
	})
}
