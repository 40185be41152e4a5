package e2e_test

import (
	"context"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkAgent is an agent made with go-sdk, and what its user is asked.
type sdkAgent struct {
	*mcp.ClientSession
	mu    sync.Mutex
	asked []*mcp.ElicitParams

	elicited chan struct{} // one for each of asked
	complete chan string   // elicitations that are done with
	progress chan string   // what is told while it waits
}

// connectSDK connects an agent of a revision whose client can ask its user in a way: url, form, or none.
func connectSDK(t *testing.T, version, way string, transport mcp.Transport) *sdkAgent {
	t.Helper()
	a := &sdkAgent{elicited: make(chan struct{}, 8), complete: make(chan string, 8), progress: make(chan string, 64)}
	opts := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ElicitationCompleteHandler: func(_ context.Context, r *mcp.ElicitationCompleteNotificationRequest) {
			a.complete <- r.Params.ElicitationID
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			a.progress <- r.Params.Message
		},
	}
	switch way {
	case "url":
		opts.Capabilities.Elicitation = &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}
		opts.ElicitationHandler = a.answer(&mcp.ElicitResult{Action: "accept"})
	case "form":
		opts.Capabilities.Elicitation = &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}
		opts.ElicitationHandler = a.answer(&mcp.ElicitResult{Action: "accept", Content: map[string]any{"approve": true, "reason": "it is mine"}})
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, opts)
	session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() }) // how the transport closes is no matter
	a.ClientSession = session
	return a
}

func (a *sdkAgent) answer(result *mcp.ElicitResult) func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	return func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked = append(a.asked, r.Params)
		a.elicited <- struct{}{}
		return result, nil
	}
}

// charge makes a charge of 10 and returns what came of it.
func (a *sdkAgent) charge(ctx context.Context) (*mcp.CallToolResult, error) {
	params := &mcp.CallToolParams{Name: "charge", Arguments: map[string]any{"account": "alice", "amount": 10}}
	params.SetProgressToken("waits")
	return a.CallTool(ctx, params)
}

// Whatever an agent's client can do, an approved call of it runs, once.
func TestAgents_GoSDK(t *testing.T) {
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		for _, transport := range []string{"stdio", "HTTP"} {
			for _, way := range []string{"none", "url", "form"} {
				t.Run(strings.Join([]string{version, transport, way}, "/"), func(t *testing.T) {
					t.Parallel()
					goSDKAgent(t, version, transport, way)
				})
			}
		}
	}
}

func goSDKAgent(t *testing.T, version, transport, way string) {
	fields := ""
	if way == "form" {
		fields = ", elicitation: true"
	}
	w := newWorld(t).withPolicy(askAll(fields))
	a := connectSDK(t, version, way, w.sdkTransport(transport))
	done := make(chan charged, 1)
	go func() {
		result, err := a.charge(context.WithoutCancel(t.Context()))
		done <- charged{result, err}
	}()
	a.awaitAsked(t, way, done)
	if way != "form" {
		w.ran("approve", w.awaitPending(1)[0])
	}
	if got := <-done; got.err != nil || got.result.IsError {
		t.Fatalf("the call did not run: %+v, %v", got.result, got.err)
	}
	w.wantEffects("charge", 1)
	a.wantAsked(t, way)
	if way == "url" && version == "2025-11-25" {
		if id := <-a.complete; id != a.asked[0].ElicitationID {
			t.Errorf("elicitation %s is complete, want %s", id, a.asked[0].ElicitationID)
		}
	}
	if way == "form" {
		if shown := w.ran("show", w.only("charge").ID); !strings.Contains(shown, "it is mine") {
			t.Errorf("the log does not say what the host's user said:\n%s", shown)
		}
	}
}

// charged is what came of a charge.
type charged struct {
	result *mcp.CallToolResult
	err    error
}

// awaitAsked waits until the user of a client that can show a page is asked, and that of one that can do nothing is
// told: a decision that comes before would make it needless.
func (a *sdkAgent) awaitAsked(t *testing.T, way string, done <-chan charged) {
	t.Helper()
	elicited, progress := a.elicited, a.progress
	switch way {
	case "url":
		progress = nil
	case "none":
		elicited = nil
	default:
		return
	}
	select {
	case <-elicited:
	case text := <-progress:
		if !strings.Contains(text, "approval") {
			t.Errorf("progress says %q", text)
		}
	case got := <-done:
		t.Fatalf("the call has ended before anybody was asked: %+v, %v", got.result, got.err)
	}
}

// wantAsked checks that the user was asked once, in the way that the client can.
func (a *sdkAgent) wantAsked(t *testing.T, way string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if way == "none" {
		if len(a.asked) > 0 {
			t.Errorf("a client that cannot ask was asked %+v", a.asked[0])
		}
		return
	}
	if len(a.asked) != 1 || a.asked[0].Mode != way || !strings.Contains(a.asked[0].Message, `"amount":10`) {
		t.Fatalf("asked %d times, first %+v", len(a.asked), a.asked)
	}
	if way == "url" && !strings.HasPrefix(a.asked[0].URL, "https://approve.test/a/") {
		t.Errorf("sent to %s", a.asked[0].URL)
	}
}

// sdkTransport is the agent's end of a gateway in front of the payments server.
func (w *world) sdkTransport(name string) mcp.Transport {
	w.t.Helper()
	flags := []string{"--approval-url", "https://approve.test/a"}
	if name == "stdio" {
		return &mcp.CommandTransport{Command: exec.Command(w.undolog, append([]string{"--db", w.db}, w.gatewayArgs(flags...)...)...)}
	}
	return &mcp.StreamableClientTransport{Endpoint: w.httpGateway(flags...), HTTPClient: &http.Client{}}
}
