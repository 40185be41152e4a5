package gateway_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/gateway"
)

// playSDK is an upstream made with go-sdk, as a process.
func playSDK() int {
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	addSDKTools(server)
	mcp.AddTool(server, &mcp.Tool{Name: "crash"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		os.Exit(9)
		return nil, nil, nil
	})
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil && !strings.Contains(err.Error(), "EOF") {
		return 1
	}
	return 0
}

// connect runs a go-sdk client as the agent of a gateway whose upstream is a process.
func connect(t *testing.T, role, version string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	g := gateway.New(&gateway.Options{
		Chain: newChain(t, newSpy()), Prime: true, Target: role,
		Dial: func(ctx context.Context, _ *gateway.AgentInfo) (gateway.Conn, error) {
			return gateway.StartProcess(ctx, []string{os.Args[0]}, &gateway.ProcessOptions{
				Env: append(os.Environ(), "GATEWAY_TEST_PROCESS="+role), Grace: time.Second,
			})
		},
	})
	toRelay, in := io.Pipe()
	out, fromRelay := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- g.Serve(context.Background(), gateway.NewLineConn(toRelay, fromRelay, nil), gateway.AgentInfo{})
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, o)
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: out, Writer: in}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return session
}

func TestServe_sdkAgentAndProcess(t *testing.T) {
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) { sdkAgentAndProcess(t, version) })
	}
}

func sdkAgentAndProcess(t *testing.T, version string) {
	progress := make(chan float64, 8)
	session := connect(t, "sdk", version, &mcp.ClientOptions{
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "sampled"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			progress <- r.Params.Progress
		},
	})
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) < 3 {
		t.Fatalf("ListTools = %+v, %v", tools, err)
	}
	params := &mcp.CallToolParams{Name: "progress"}
	params.SetProgressToken("tok")
	if _, err := session.CallTool(t.Context(), params); err != nil {
		t.Errorf("progress: %v", err)
	}
	if p := <-progress; p != 1 {
		t.Errorf("progress %v", p)
	}
	if version < "2026-07-28" { // from then on sampling is no request of its own
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "sample"})
		if err != nil || res.Content[0].(*mcp.TextContent).Text != "sampled" {
			t.Errorf("sample = %+v, %v", res, err)
		}
	}
	for range 2 {
		_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "crash"})
		if err == nil || !strings.Contains(err.Error(), "exited with status 9") {
			t.Errorf("crash: %v", err)
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "progress"}); err != nil {
			t.Errorf("after a crash: %v", err)
		}
	}
}
