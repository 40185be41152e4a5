package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/examples/payments/faults"
)

// act ends a call as a fault wants it.
func (p *payments) act(a faults.Act, text string) (*mcp.CallToolResult, error) {
	switch a {
	case faults.ToolError:
		return toolError(text), nil
	case faults.RPCError:
		return nil, &jsonrpc.Error{Code: -32050, Message: text, Data: []byte(`{"receipt":9007199254740993}`)}
	case faults.Drop:
		<-p.gone
		return nil, errors.New("nobody is there to be answered")
	case faults.Exit:
		os.Exit(3)
	case faults.Kill:
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			return nil, fmt.Errorf("kill myself: %w", err)
		}
		select {}
	}
	return nil, fmt.Errorf("unknown act %q", a)
}

// pause waits for the delay, and then until the file exists when one is named.
func pause(ctx context.Context, ms int, file string) error {
	if ms > 0 {
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if file == "" {
		return nil
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func toolError(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
