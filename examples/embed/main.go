// Command embed is an MCP server of one's own that runs a chain of interceptors in itself, without a
// gateway in front: a tool that transfers money, and a validator that refuses large sums.
//
//	go run ./examples/embed
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

func main() {
	c, err := newChain(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		log.Fatal(err)
	}
	if err := newServer(c).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Print(err)
	}
	drained, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Drain(drained); err != nil {
		log.Fatal(err)
	}
}

// newChain is where interceptors are put together; more hosts are more calls of Use.
func newChain(logger *slog.Logger) (*chain.Chain, error) {
	c, err := chain.New(&chain.Options{Logger: logger})
	if err != nil {
		return nil, err
	}
	house := interceptors.NewServer(&interceptors.ServerOptions{Logger: logger})
	if err := house.Add(limit); err != nil {
		return nil, err
	}
	if err := c.Use(chain.Local("house", house), nil); err != nil {
		return nil, err
	}
	return c, nil
}

func newServer(c *chain.Chain) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "bank", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "transfer", Description: "Transfer money to an account."}, transfer)
	server.AddReceivingMiddleware(c.Middleware(nil))
	return server
}

type transferArguments struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

func transfer(_ context.Context, _ *mcp.CallToolRequest, in transferArguments) (*mcp.CallToolResult, any, error) {
	text := fmt.Sprintf("%d cents went to %s", in.Cents, in.Account)
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}
