package main

import (
	"context"
	_ "embed"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/effect"
)

//go:embed policy.yaml
var policyFile []byte

// policy says which tool may be repeated. It is part of the program, so a mistake in it is a bug.
func policy() *effect.Policy {
	p, err := effect.ParsePolicy("policy.yaml", policyFile)
	if err != nil {
		panic(err)
	}
	return p
}

// bank holds the accounts.
type bank struct {
	mu    sync.Mutex
	cents map[string]int64
}

func newBank() *bank { return &bank{cents: map[string]int64{}} }

func (b *bank) server() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "bank", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "transfer", Description: "Transfer money to an account."}, b.transfer)
	mcp.AddTool(s, &mcp.Tool{Name: "balance", Description: "Tell what is on an account."}, b.balance)
	return s
}

type transferArguments struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

func (b *bank) transfer(_ context.Context, _ *mcp.CallToolRequest, in transferArguments) (*mcp.CallToolResult, any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cents[in.Account] += in.Cents
	return text("%d cents went to %s", in.Cents, in.Account), nil, nil
}

type balanceArguments struct {
	Account string `json:"account"`
}

func (b *bank) balance(_ context.Context, _ *mcp.CallToolRequest, in balanceArguments) (*mcp.CallToolResult, any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return text("%d cents", b.cents[in.Account]), nil, nil
}

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}
