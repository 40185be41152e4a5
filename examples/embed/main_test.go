package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
)

// agent is a client of the example, and what it knows of the test.
type agent struct {
	t  *testing.T
	cs *mcp.ClientSession
}

// connect runs the example over the log at path until the test, or part of one, ends.
func connect(t *testing.T, path string) *agent {
	t.Helper()
	serverSide, clientSide := mcp.NewInMemoryTransports()
	ended := make(chan error, 1)
	go func() { ended <- run(context.WithoutCancel(t.Context()), path, serverSide) }()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), clientSide, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cs.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return &agent{t, cs}
}

// The caller is a principal as the protocol knows them: other hosts of the chain could be told as well.
func TestCaller_IsKnownToTheProtocol(t *testing.T) {
	said, err := json.Marshal(interceptors.Context{Principal: caller(nil)})
	if err != nil {
		t.Fatal(err)
	}
	var read interceptors.Context
	if err := json.Unmarshal(said, &read); err != nil {
		t.Errorf("%s: %v", said, err)
	}
}

// transfer sends 10 dollars to an account and reports whether that was answered from the record.
func (a *agent) transfer(account string, meta mcp.Meta) (replayed bool) {
	a.t.Helper()
	res, err := a.cs.CallTool(a.t.Context(), &mcp.CallToolParams{
		Meta: meta, Name: "transfer", Arguments: transferArguments{account, 1000},
	})
	if err != nil || res.IsError {
		a.t.Fatalf("transfer to %s: result %+v, error %v", account, res, err)
	}
	replayed, _ = res.Meta["dev.undolog/replayed"].(bool)
	return replayed
}

func (a *agent) wantBalance(account, want string) {
	a.t.Helper()
	res, err := a.cs.CallTool(a.t.Context(), &mcp.CallToolParams{Name: "balance", Arguments: balanceArguments{account}})
	if err != nil {
		a.t.Fatal(err)
	}
	if got := res.Content[0].(*mcp.TextContent).Text; got != want {
		a.t.Errorf("balance of %s is %s, want %s", account, got, want)
	}
}

func TestEmbed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bank.db")
	order := func(key string) mcp.Meta { return mcp.Meta{"idempotencyKey": key} }
	t.Run("a call that is sent again runs once at the tool", func(t *testing.T) {
		a := connect(t, path)
		if first, again := a.transfer("ada", order("1")), a.transfer("ada", order("1")); first || !again {
			t.Errorf("answered from the record: the first %t, the second %t", first, again)
		}
		a.wantBalance("ada", "1000 cents")
		if a.transfer("ada", order("2")) {
			t.Error("another order was answered from the record")
		}
		a.wantBalance("ada", "2000 cents")
	})
	t.Run("without a key too", func(t *testing.T) {
		a := connect(t, path)
		if first, again := a.transfer("bob", nil), a.transfer("bob", nil); first || !again {
			t.Errorf("answered from the record: the first %t, the second %t", first, again)
		}
		a.wantBalance("bob", "1000 cents")
	})
	t.Run("the record outlives the program", func(t *testing.T) {
		a := connect(t, path) // a bank that has forgotten everything
		if !a.transfer("ada", order("1")) {
			t.Error("the order was carried out again")
		}
		a.wantBalance("ada", "0 cents")
	})
}

func TestEmbed_limit(t *testing.T) {
	a := connect(t, filepath.Join(t.TempDir(), "bank.db"))
	_, err := a.cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "transfer", Arguments: transferArguments{"alice", maxCents + 1}})
	var refused *jsonrpc.Error
	if !errors.As(err, &refused) || refused.Message != "Interceptor validation failed" {
		t.Errorf("want a refusal without the reason, got %v", err)
	}
	a.wantBalance("alice", "0 cents")
}
