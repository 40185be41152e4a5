package effectinterceptor_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// serve puts the world's interceptors on an MCP server and gives the other end of its transport.
func (w *world) serve(opts *interceptors.ServerOptions) mcp.Transport {
	w.t.Helper()
	host := interceptors.NewServer(opts)
	if err := w.ei.Register(host, w.engine); err != nil {
		w.t.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "undolog"}, &mcp.ServerOptions{Capabilities: host.Capabilities()})
	if err := host.Install(server); err != nil {
		w.t.Fatal(err)
	}
	theirs, ours := mcp.NewInMemoryTransports()
	session, err := server.Connect(w.t.Context(), theirs, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = session.Wait() }) // how the client's end closed is no matter
	return ours
}

// engine is a session of somebody else's engine.
func engine(t *testing.T, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "engine"}, nil)
	if err := interceptors.AddClient(client); err != nil {
		t.Fatal(err)
	}
	session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	})
	return session
}

// A repeated call on the wire: to an engine that knows the answer in the target's place it is one, to
// every other a failing mutator, which blocks.
func TestWire_Respond(t *testing.T) {
	w := newWorld(t, foreign)
	cs := engine(t, w.serve(nil))
	c := w.remote().with(exchange("1"))
	call := func(client *interceptors.Client, c *caller, phase interceptors.Phase, payload string) (*interceptors.Result, error) {
		return client.Invoke(t.Context(), cs, c.params(effectinterceptor.EffectName, phase, payload))
	}
	plain := interceptors.NewClient(nil)
	if _, err := call(plain, c, interceptors.PhaseRequest, keyed); err != nil {
		t.Fatal(err)
	}
	if _, err := call(plain, c, interceptors.PhaseResponse, paid); err != nil {
		t.Fatal(err)
	}
	id := w.only().ID
	w.wantState(id, effect.StateCommitted)

	_, err := call(plain, w.remote().with(exchange("2")), interceptors.PhaseRequest, keyed)
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || wire.Code != -32603 {
		t.Fatalf("an engine that knows nothing gets %v, want -32603", err)
	}
	want := strings.TrimSuffix(paid, "}") + `,"_meta":{"dev.undolog/replayed":true,"dev.undolog/effect":{"id":"` + id + `","attempt":1,"identity":"key"}}}`
	if got := splice.Get(wire.Data, "dev.undolog/respond", "result"); string(got) != want {
		t.Errorf("error.data holds %s, want %s", got, want)
	}
	if got := outcomeOf(t, wire.Data); got != "replay" {
		t.Errorf("outcome is %s", got)
	}

	knowing := interceptors.NewClient(&interceptors.ClientOptions{Respond: true})
	_, err = call(knowing, w.remote().with(exchange("3")), interceptors.PhaseRequest, keyed)
	var answer *interceptors.RespondError
	if !errors.As(err, &answer) || string(answer.Result) != want {
		t.Errorf("an engine that knows gets %v (%+v)", err, answer)
	}
}

// A reason on the wire: a JSON-RPC error with what a model can act on.
func TestWire_Reason(t *testing.T) {
	w := newWorld(t, foreign, impatient)
	cs := engine(t, w.serve(nil))
	client := interceptors.NewClient(nil)
	params := w.remote().params(effectinterceptor.EffectName, interceptors.PhaseRequest, pay)
	if _, err := client.Invoke(t.Context(), cs, params); err != nil {
		t.Fatal(err)
	}
	_, err := client.Invoke(t.Context(), cs, params)
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || wire.Code != -32603 || outcomeOf(t, wire.Data) != "in_progress" || !strings.HasPrefix(wire.Message, "This call is already running") {
		t.Errorf("got %v (%+v)", err, wire)
	}
}

// W16: traceparent is nearer the transport than what the invoker wrote into context.
func TestWire_TraceparentWins(t *testing.T) {
	w := newWorld(t, foreign)
	cs := engine(t, w.serve(nil))
	p := w.remote().with(span("1")).params(effectinterceptor.EffectName, interceptors.PhaseRequest, pay)
	p.Meta = json.RawMessage(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`)
	if _, err := interceptors.NewClient(nil).Invoke(t.Context(), cs, p); err != nil {
		t.Fatal(err)
	}
	if got := w.only().Trace; got != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("recorded trace is %q", got)
	}
}

// The guard's denial carries every sign that an engine may look at, the nested one for engines that read
// nothing else.
func TestWire_GuardDenies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		legacy bool
		want   []string
	}{
		{"flat", false, []string{"info", "interceptor", "messages", "phase", "severity", "type", "valid"}},
		{"with the legacy envelope", true, []string{"info", "interceptor", "messages", "phase", "severity", "type", "valid", "validation"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, foreign)
			result := rawInvoke(t, w.serve(&interceptors.ServerOptions{LegacyEnvelope: tt.legacy}),
				`{"name":"undolog/guard","event":"tools/call","phase":"request","payload":{"method":"tools/call","params":{"name":"pay","arguments":[]}}}`)
			var members []string
			if err := splice.Each(result, func(name string, _ []byte) {
				if name != "durationMs" {
					members = append(members, name)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, sorted(members)); diff != "" {
				t.Errorf("members of %s (-want +got)\n%s", result, diff)
			}
			var denial struct {
				Valid    bool
				Severity string
				Messages []interceptors.Message
			}
			denials := []json.RawMessage{result}
			if tt.legacy {
				denials = append(denials, splice.Get(result, "validation"))
			}
			for _, raw := range denials {
				if err := json.Unmarshal(raw, &denial); err != nil {
					t.Fatal(err)
				}
				if denial.Valid || denial.Severity != "error" || len(denial.Messages) != 1 || denial.Messages[0].Severity != "error" {
					t.Errorf("%s denies nothing", raw)
				}
			}
			if got := denial.Messages[0].Path; got != "/params/arguments" {
				t.Errorf("path is %q", got)
			}
			if got := outcomeOf(t, splice.Get(result, "info")); got != "invalid" {
				t.Errorf("outcome is %s", got)
			}
		})
	}
}
