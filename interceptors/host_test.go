package interceptors_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
)

// hostCase is one exchange with a host, from testdata/host.json.
type hostCase struct {
	Name         string
	Interceptors []string
	Method       string
	Params       json.RawMessage
	Result       json.RawMessage
	Error        *jsonrpc.Error
}

func hostCases(t *testing.T) []hostCase {
	t.Helper()
	raw, err := os.ReadFile("testdata/host.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []hostCase
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func (c *hostCase) server(t *testing.T) *interceptors.Server {
	t.Helper()
	known := behaviors()
	s := interceptors.NewServer(nil)
	for _, name := range c.Interceptors {
		if err := s.Add(known[name]); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// volatile are members that belong to the transport or differ between runs.
var volatile = []string{"durationMs", "info", "_meta", "resultType", "ttlMs", "cacheScope"}

func (c *hostCase) check(t *testing.T, result []byte, err error) {
	t.Helper()
	if c.Error == nil {
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(canonical(t, c.Result), canonical(t, result, volatile...)); diff != "" {
			t.Errorf("result (-want +got)\n%s", diff)
		}
		return
	}
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) {
		t.Fatalf("error = %v, want a JSON-RPC error", err)
	}
	if wire.Code != c.Error.Code {
		t.Errorf("code = %d, want %d", wire.Code, c.Error.Code)
	}
	if diff := cmp.Diff(canonical(t, c.Error.Data), canonical(t, wire.Data)); diff != "" {
		t.Errorf("data (-want +got)\n%s", diff)
	}
	if strings.Contains(wire.Message+string(wire.Data), "canary") {
		t.Errorf("the handler's text is on the wire: %+v", wire)
	}
}

func TestServer_InProcess(t *testing.T) {
	for _, c := range hostCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			result, err := callInProcess(t, c.server(t), c.Method, c.Params)
			if err != nil {
				err = interceptors.WireError(err)
			}
			c.check(t, result, err)
		})
	}
}

func callInProcess(t *testing.T, s *interceptors.Server, method string, params json.RawMessage) ([]byte, error) {
	t.Helper()
	if method == interceptors.MethodList {
		var p struct{ Event string }
		if err := json.Unmarshal(params, &p); err != nil {
			t.Fatal(err)
		}
		listed, err := s.List(p.Event)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(map[string][]interceptors.Descriptor{"interceptors": listed})
		return raw, err
	}
	p, err := interceptors.DecodeInvoke(params)
	if err != nil {
		return nil, err
	}
	r, err := s.Invoke(t.Context(), p)
	if err != nil {
		return nil, err
	}
	return marshal(t, r), nil
}

// rawCall are params and result of a peer that sends and sees exact JSON.
type rawCallParams struct {
	mcp.ParamsBase
	body json.RawMessage
}

func (p *rawCallParams) MarshalJSON() ([]byte, error) {
	object := map[string]json.RawMessage{}
	if err := json.Unmarshal(p.body, &object); err != nil {
		return nil, err
	}
	if p.Meta != nil {
		meta, err := json.Marshal(p.Meta)
		if err != nil {
			return nil, err
		}
		object["_meta"] = meta
	}
	return json.Marshal(object)
}

type rawCallResult struct {
	mcp.ResultBase
	body json.RawMessage
}

func (r *rawCallResult) UnmarshalJSON(raw []byte) error {
	r.body = bytes.Clone(raw)
	return nil
}

var revisions = []string{"2025-06-18", "2025-11-25", "2026-07-28"}

// connect gives a peer of the host that speaks the revision, in memory.
func connect(t *testing.T, s *interceptors.Server, revision string) *mcp.ClientSession {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "host"}, &mcp.ServerOptions{Capabilities: s.Capabilities()})
	if err := s.Install(server); err != nil {
		t.Fatal(err)
	}
	theirs, ours := mcp.NewInMemoryTransports()
	ss, err := server.Connect(t.Context(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs := connectTransport(t, ours, revision)
	t.Cleanup(func() {
		cs.Close()
		ss.Wait()
	})
	return cs
}

// connectTransport gives a peer that can send raw params; see rawCall.
func connectTransport(t *testing.T, transport mcp.Transport, revision string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "peer"}, nil)
	for _, method := range []string{interceptors.MethodList, interceptors.MethodInvoke, "interceptors/invoke"} {
		if err := mcp.AddSendingCustomMethod[*rawCallParams, *rawCallResult](client, method); err != nil {
			t.Fatal(err)
		}
	}
	cs, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func rawCall(ctx context.Context, cs *mcp.ClientSession, method string, params json.RawMessage) ([]byte, error) {
	r, err := mcp.CallCustomMethod[*rawCallParams, *rawCallResult](ctx, cs, method, &rawCallParams{body: params})
	if err != nil {
		return nil, err
	}
	return r.body, nil
}

func TestServer_Install(t *testing.T) {
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			for _, c := range hostCases(t) {
				t.Run(c.Name, func(t *testing.T) {
					cs := connect(t, c.server(t), revision)
					result, err := rawCall(t.Context(), cs, c.Method, c.Params)
					c.check(t, result, err)
					if err == nil {
						checkResultType(t, result, revision)
					}
				})
			}
		})
	}
}

// checkResultType is case W9: the member is there for 2026-07-28 and absent before.
func checkResultType(t *testing.T, result []byte, revision string) {
	t.Helper()
	var got struct{ ResultType *string }
	if err := json.Unmarshal(result, &got); err != nil {
		t.Fatal(err)
	}
	switch {
	case revision < "2026-07-28" && got.ResultType != nil:
		t.Errorf("resultType = %q for a peer of %s", *got.ResultType, revision)
	case revision >= "2026-07-28" && (got.ResultType == nil || *got.ResultType != "complete"):
		t.Errorf("result %s has no resultType complete", result)
	}
}
