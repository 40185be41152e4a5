//go:build peers

package peers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goPeer drives a server with go-sdk's client.
type goPeer struct {
	t        *testing.T
	client   *mcp.Client
	session  *mcp.ClientSession
	capture  *capture
	progress chan struct{}
}

// runGo is the driver around go-sdk.
func runGo(t *testing.T, plan string, to target) *transcript {
	t.Helper()
	p := &goPeer{t: t, capture: newCapture(), progress: make(chan struct{}, 1)}
	p.client = mcp.NewClient(&mcp.Implementation{Name: "peer", Version: "1.0.0"}, &mcp.ClientOptions{
		CreateMessageHandler: answerSampling, ElicitationHandler: answerElicitation,
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { p.sawProgress() },
	})
	p.client.AddRoots(&mcp.Root{URI: "file:///srv/one", Name: "one"})
	p.connect(to)
	for _, s := range readPlan(t, plan) {
		p.do(s)
	}
	p.capture.mu.Lock()
	tr := p.capture.tr
	tr.Era = p.era()
	tr.Steps = slices.Clone(tr.Steps)
	p.capture.mu.Unlock()
	return &tr
}

func answerSampling(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	return &mcp.CreateMessageResult{
		Model: "fixed", Role: "assistant", StopReason: "endTurn", Content: &mcp.TextContent{Text: "a sampled answer"},
	}, nil
}

func answerElicitation(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	if req.Params.Mode == "url" {
		return &mcp.ElicitResult{Action: "accept"}, nil
	}
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "check": true, "integer": 7, "number": 2.5}}, nil
}

func (p *goPeer) sawProgress() {
	select {
	case p.progress <- struct{}{}:
	default:
	}
}

func (p *goPeer) connect(to target) {
	p.t.Helper()
	session, err := p.client.Connect(p.t.Context(), p.transport(to), nil)
	if err != nil {
		p.t.Fatalf("connect: %v", err)
	}
	p.session = session
	p.t.Cleanup(func() { session.Close() })
}

func (p *goPeer) transport(to target) mcp.Transport {
	p.t.Helper()
	if to.url != "" {
		return &mcp.StreamableClientTransport{Endpoint: to.url, HTTPClient: &http.Client{Transport: p.capture}}
	}
	cmd := exec.Command(to.command[0], to.command[1:]...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill() // an error says that it has ended
		_ = cmd.Wait()
	})
	return &mcp.IOTransport{Reader: p.capture.tap(stdout), Writer: stdin}
}

func (p *goPeer) era() string {
	if p.session.InitializeResult().ProtocolVersion >= "2026-07-28" {
		return "modern"
	}
	return "legacy"
}

func (p *goPeer) do(s step) {
	if s.Only != nil && !slices.Contains(s.Only, "go") || s.Era != "" && s.Era != p.era() {
		return
	}
	p.capture.begin(string(s.raw), s.Progress)
	p.capture.end(outcome(p.carryOut(p.t.Context(), s)))
}

func outcome(err error) string {
	var wire *jsonrpc.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &wire):
		return fmt.Sprintf("%d: %s", wire.Code, wire.Message)
	default:
		return err.Error()
	}
}

func (p *goPeer) carryOut(ctx context.Context, s step) error {
	switch {
	case s.Await != "":
		return p.capture.seen(s.Await, max(s.Count, 1))
	case s.List != "":
		return p.list(ctx, s.List)
	case s.Call != "":
		return p.call(ctx, s)
	case s.Cancel != "":
		return p.callAndCancel(ctx, s)
	case s.ReadAll:
		return p.readAll(ctx)
	case s.Prompt != "":
		return p.prompt(ctx, s)
	case s.RootsChanged:
		p.client.AddRoots(&mcp.Root{URI: "file:///srv/two", Name: "two"})
		return nil
	default:
		return p.simple(ctx, s)
	}
}

func (p *goPeer) simple(ctx context.Context, s step) (err error) {
	switch {
	case s.Read != "":
		_, err = p.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: s.Read})
	case s.Complete != nil:
		_, err = p.session.Complete(ctx, s.Complete)
	case s.Level != "":
		err = p.session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: s.Level})
	case s.Ping:
		err = p.session.Ping(ctx, &mcp.PingParams{})
	case s.Subscribe != "":
		err = p.session.Subscribe(ctx, &mcp.SubscribeParams{URI: s.Subscribe})
	case s.Unsubscribe != "":
		err = p.session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: s.Unsubscribe})
	default:
		err = fmt.Errorf("step %s says nothing to do", s.raw)
	}
	return err
}

func (p *goPeer) list(ctx context.Context, kind string) (err error) {
	switch kind {
	case "tools":
		for _, err = range p.session.Tools(ctx, nil) {
		}
	case "resources":
		for _, err = range p.session.Resources(ctx, nil) {
		}
	case "resourceTemplates":
		for _, err = range p.session.ResourceTemplates(ctx, nil) {
		}
	case "prompts":
		for _, err = range p.session.Prompts(ctx, nil) {
		}
	default:
		err = fmt.Errorf("nothing lists %s", kind)
	}
	return err
}

func (p *goPeer) readAll(ctx context.Context) error {
	for resource, err := range p.session.Resources(ctx, nil) {
		if err != nil {
			return err
		}
		if _, err := p.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: resource.URI}); err != nil {
			return err
		}
	}
	return nil
}

func (p *goPeer) prompt(ctx context.Context, s step) error {
	params := &mcp.GetPromptParams{Name: s.Prompt}
	if s.Arguments != nil {
		if err := json.Unmarshal(s.Arguments, &params.Arguments); err != nil {
			return err
		}
	}
	_, err := p.session.GetPrompt(ctx, params)
	return err
}

func (p *goPeer) call(ctx context.Context, s step) error {
	_, err := p.session.CallTool(ctx, callParams(s.Call, s, s.Progress))
	return err
}

func callParams(name string, s step, progress bool) *mcp.CallToolParams {
	params := &mcp.CallToolParams{Name: name, Arguments: s.Arguments}
	if s.Arguments == nil {
		params.Arguments = json.RawMessage("{}")
	}
	if progress {
		params.Meta = mcp.Meta{}
		params.SetProgressToken("step")
	}
	return params
}

// callAndCancel gives up a call at its first progress.
func (p *goPeer) callAndCancel(ctx context.Context, s step) error {
	select {
	case <-p.progress: // of an earlier step
	default:
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.progress:
			cancel()
		case <-ctx.Done():
		}
	}()
	_, err := p.session.CallTool(ctx, callParams(s.Cancel, s, true))
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("answered before it was cancelled: %w", errors.Join(err, io.ErrUnexpectedEOF))
}
