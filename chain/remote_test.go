package chain_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

var implementation = &mcp.Implementation{Name: "test", Version: "v0"}

// connect serves s in memory and returns a client's session with it.
func connect(t testing.TB, s *mcp.Server, client *mcp.Client, protocol string) *mcp.ClientSession {
	t.Helper()
	serverSide, clientSide := mcp.NewInMemoryTransports()
	ss, err := s.Connect(t.Context(), serverSide, nil)
	if err != nil {
		t.Fatalf("connect server: %v", err)
	}
	cs, err := client.Connect(t.Context(), clientSide, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
	if err != nil {
		t.Fatalf("connect client: %v", err)
	}
	t.Cleanup(func() {
		_ = cs.Close()
		_ = ss.Wait()
	})
	return cs
}

// session is a session with a host of these interceptors.
func session(t testing.TB, protocol string, all ...interceptors.Interceptor) *mcp.ClientSession {
	t.Helper()
	s := mcp.NewServer(implementation, nil)
	if err := server(t, all...).Install(s); err != nil {
		t.Fatalf("Install: %v", err)
	}
	client := mcp.NewClient(implementation, nil)
	if err := interceptors.AddClient(client); err != nil {
		t.Fatalf("AddClient: %v", err)
	}
	return connect(t, s, client, protocol)
}

var protocols = []string{"2025-11-25", "2026-07-28"}

func TestRemote_RunsLikeALocalHost(t *testing.T) {
	for _, protocol := range protocols {
		for _, wrapped := range []bool{false, true} {
			t.Run(protocol+map[bool]string{false: " bare", true: " wrapped"}[wrapped], func(t *testing.T) {
				cs := session(t, protocol, validator("v", allowAll), mutator("m", appendTag("m")))
				c := newChain(t, nil)
				use(t, c, chain.Remote("far", cs, &chain.RemoteOptions{Wrapped: wrapped}), nil)
				reply := c.Do(t.Context(), &chain.Request{Event: call, Params: raw(`{"id":9007199254740993}`)},
					func(_ context.Context, params json.RawMessage) chain.Answer {
						if string(params) != `{"id":9007199254740993,"trace":["m"]}` {
							t.Errorf("sent %s", params)
						}
						return answers(`{"n":1915883588174806058}`)(t.Context(), params)
					})
				if string(reply.Result) != `{"n":1915883588174806058,"trace":["m"]}` {
					t.Errorf("result %s, error %s", reply.Result, reply.Error)
				}
			})
		}
	}
}

func TestRemote_TellsTheTrace(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	var meta string
	cs := session(t, "2025-11-25", validator("v", func(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
		meta = string(in.Meta)
		return interceptors.Allow(), nil
	}))
	c := newChain(t, nil)
	use(t, c, chain.Remote("far", cs, nil), nil)
	c.Do(t.Context(), &chain.Request{Event: call, Params: raw(hi), TraceID: trace, SpanID: span}, answers(`{}`))
	if !strings.Contains(meta, "00-"+trace+"-"+span+"-01") {
		t.Errorf("_meta = %s", meta)
	}
}

func TestRemote_AnswersForTheTargetOnlyWhereConfigured(t *testing.T) {
	replay := mutator("replay", func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
		return nil, &interceptors.RespondError{Result: raw(`{"n":9007199254740993}`)}
	}, hooks(on(interceptors.PhaseRequest, "*")))
	cs := session(t, "2025-11-25", replay)
	t.Run("respond is set", func(t *testing.T) {
		c := newChain(t, nil)
		use(t, c, chain.Remote("far", cs, &chain.RemoteOptions{Respond: true}), nil)
		if reply := c.Do(t.Context(), request, nil); string(reply.Result) != `{"n":9007199254740993}` {
			t.Errorf("result %s, error %s", reply.Result, reply.Error)
		}
	})
	t.Run("respond is not set", func(t *testing.T) {
		c := newChain(t, nil)
		use(t, c, chain.Remote("far", cs, nil), nil)
		reply := c.Do(t.Context(), request, nil)
		wantError(t, reply, -32603, "Interceptor mutation failed")
		if strings.Contains(string(reply.Error), "9007") {
			t.Errorf("the requester is told %s", reply.Error)
		}
	})
}

func TestRemote_BlocksInItsOwnWordsOnlyWhereTrusted(t *testing.T) {
	cs := session(t, "2025-11-25",
		validator("b", func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
			return nil, &interceptors.BlockError{Code: -31001, Message: "ask a person", Data: raw(`{"acme/why":"x"}`)}
		}))
	for trusted, want := range map[bool]string{true: "ask a person", false: "Interceptor execution failed"} {
		c := newChain(t, nil)
		use(t, c, chain.Remote("far", cs, &chain.RemoteOptions{Respond: trusted}), nil)
		wantError(t, c.Do(t.Context(), request, nil), map[bool]int64{true: -31001, false: -32603}[trusted], want)
	}
	t.Run("a trusted host's crash is still a failure", func(t *testing.T) {
		c := newChain(t, nil)
		use(t, c, chain.Remote("far", session(t, "2025-11-25", validator("b", crashJudge, failOpen)), &chain.RemoteOptions{Respond: true}), nil)
		if reply := c.Do(t.Context(), request, answers(`{}`)); reply.Error != nil {
			t.Errorf("error %s", reply.Error)
		}
	})
}

// bareResult is what hosts of an early draft answer.
type bareResult struct {
	mcp.ResultBase
	Valid bool `json:"valid"`
}

type anyParams struct {
	mcp.ParamsBase
}

type listResult struct {
	mcp.ResultBase
	Interceptors []json.RawMessage `json:"interceptors"`
}

func TestRemote_BareResults(t *testing.T) {
	s := mcp.NewServer(implementation, nil)
	err := mcp.AddReceivingCustomMethod(s, interceptors.MethodList, func(context.Context, *mcp.ServerSession, *anyParams) (*listResult, error) {
		return &listResult{Interceptors: []json.RawMessage{
			raw(`{"name":"old","type":"validation","hooks":[{"events":["tools/call"],"phase":"request"}]}`)}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = mcp.AddReceivingCustomMethod(s, interceptors.MethodInvoke, func(context.Context, *mcp.ServerSession, *anyParams) (*bareResult, error) {
		return &bareResult{Valid: true}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(implementation, nil)
	if err := interceptors.AddClient(client); err != nil {
		t.Fatal(err)
	}
	cs := connect(t, s, client, "2025-11-25")
	t.Run("are taken, with a warning", func(t *testing.T) {
		var log strings.Builder
		c := newChain(t, nil)
		use(t, c, chain.Remote("far", cs, &chain.RemoteOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}), nil)
		wantAllow(t, execute(t, c, chain.Receiving, hi), hi)
		if !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("log: %s", log.String())
		}
	})
	t.Run("are failures to a strict host", func(t *testing.T) {
		c := newChain(t, nil)
		use(t, c, chain.Remote("far", cs, &chain.RemoteOptions{Strict: true}), nil)
		wantDeny(t, execute(t, c, chain.Receiving, hi), chain.StatusValidationFailed)
	})
}

func TestRemote_SessionIsGone(t *testing.T) {
	cs := session(t, "2025-11-25", validator("v", allowAll))
	c := newChain(t, nil)
	use(t, c, chain.Remote("far", cs, nil), nil)
	wantAllow(t, execute(t, c, chain.Receiving, hi), hi)
	if err := cs.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	wantDeny(t, execute(t, c, chain.Receiving, hi), chain.StatusValidationFailed)
}

func TestRemote_StrictOnesKeepWhatCanBeRead(t *testing.T) {
	s := mcp.NewServer(implementation, nil)
	err := mcp.AddReceivingCustomMethod(s, interceptors.MethodList,
		func(context.Context, *mcp.ServerSession, *listParams) (*listResult, error) {
			return &listResult{Interceptors: []json.RawMessage{raw(`{"name":"s","type":"sink","hooks":[]}`),
				raw(`{"name":"v","type":"validation","hooks":[{"events":["*"],"phase":"request"}]}`)}}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(implementation, nil)
	if err := interceptors.AddClient(client); err != nil {
		t.Fatal(err)
	}
	listed, err := chain.Remote("far", connect(t, s, client, "2025-11-25"), &chain.RemoteOptions{Strict: true}).List(t.Context())
	if err != nil || len(listed) != 1 || listed[0].Name != "v" {
		t.Errorf("List = %v, %v, want v alone", listed, err)
	}
}

type listParams struct{ mcp.ParamsBase }
