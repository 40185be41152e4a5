package interceptors_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
)

// scriptParams and scriptResult are what a foreign host reads and writes, byte for byte.
type scriptParams struct {
	mcp.ParamsBase
	body json.RawMessage
}

func (p *scriptParams) UnmarshalJSON(raw []byte) error {
	p.body = bytes.Clone(raw)
	return nil
}

type scriptResult struct {
	mcp.ResultBase
	body json.RawMessage
}

func (r *scriptResult) MarshalJSON() ([]byte, error) { return r.body, nil }

// script answers one method of a foreign host.
type script func(params json.RawMessage) (result string, err error)

// foreignHost gives a session with a host that answers by script.
func foreignHost(t *testing.T, method string, answer script) *mcp.ClientSession {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "foreign"}, nil)
	err := mcp.AddReceivingCustomMethod(server, method,
		func(_ context.Context, _ *mcp.ServerSession, p *scriptParams) (*scriptResult, error) {
			result, err := answer(p.body)
			return &scriptResult{body: json.RawMessage(result)}, err
		})
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := mcp.NewInMemoryTransports()
	ss, err := server.Connect(t.Context(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs := connectClient(t, ours, "2025-11-25")
	t.Cleanup(func() {
		cs.Close()
		ss.Wait()
	})
	return cs
}

// connectClient gives a session that interceptors.Client can use.
func connectClient(t *testing.T, transport mcp.Transport, revision string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "engine"}, nil)
	if err := interceptors.AddClient(client); err != nil {
		t.Fatal(err)
	}
	cs, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func TestClient_Invoke_Shapes(t *testing.T) {
	valid := interceptors.Result{Interceptor: "i", Type: interceptors.TypeValidation, Phase: interceptors.PhaseRequest, Valid: true}
	denied := interceptors.Result{Interceptor: "i", Type: interceptors.TypeValidation, Phase: interceptors.PhaseRequest,
		Severity: interceptors.SeverityError, Messages: []interceptors.Message{{Message: "no", Severity: interceptors.SeverityError}}}
	bare, unsaid := denied, denied
	bare.Messages = nil
	unsaid.Messages, unsaid.Severity = nil, ""
	changed := interceptors.Result{Interceptor: "i", Type: interceptors.TypeMutation, Phase: interceptors.PhaseRequest,
		Modified: true, Payload: json.RawMessage(`{"id":9007199254740993}`)}
	kept := changed
	kept.Modified, kept.Payload = false, json.RawMessage(`{"name": "echo"}`)

	const head = `"interceptor":"i","phase":"request"`
	const no = `"valid":false,"severity":"error","messages":[{"message":"no","severity":"error"}]`
	cases := map[string]struct {
		answer string
		want   *interceptors.Result // nil: malformed
		strict bool                 // read under Strict too
	}{
		"flat validation":      {`{` + head + `,"type":"validation",` + no + `}`, &denied, true},
		"flat mutation":        {`{` + head + `,"type":"mutation","modified":true,"payload":{"id":9007199254740993}}`, &changed, true},
		"flat with nulls":      {`{` + head + `,"type":"validation","valid":true,"severity":null,"messages":null,"info":null,"resultType":"complete"}`, &valid, true},
		"unmodified":           {`{` + head + `,"type":"mutation","modified":false,"payload":{"name": "echo"}}`, &kept, true},
		"flat with its mirror": {`{` + head + `,"type":"validation",` + no + `,"validation":{` + no + `}}`, &denied, true},
		"nested validation":    {`{` + head + `,"type":"validation","durationMs":0,"validation":{` + no + `}}`, &denied, false},
		"nested mutation": {`{` + head + `,"type":"mutation","mutation":{"modified":true},"payload":{"id":9007199254740993}}`,
			&changed, false},
		"E34 bare validation":                         {`{"valid":true}`, &valid, false},
		"a denial with messages that are none":        {`{` + head + `,"type":"validation","valid":false,"severity":"error","messages":"no"}`, &bare, true},
		"a denial whose messages are texts":           {`{` + head + `,"type":"validation","valid":false,"severity":"error","messages":["no"]}`, &bare, true},
		"a denial with other members of other types":  {`{` + head + `,"type":"validation","valid":false,"severity":"error","info":"x","durationMs":"3","suggestions":{}}`, &bare, true},
		"a denial of a severity that is no text":      {`{` + head + `,"type":"validation","valid":false,"severity":3}`, &unsaid, true},
		"a nested denial with messages that are none": {`{` + head + `,"type":"validation","validation":{"valid":false,"severity":"error","messages":"no"}}`, &bare, false},
		"bare mutation":                               {`{"modified":true,"payload":{"id":9007199254740993}}`, &changed, false},

		"a pass with messages that are none":    {`{` + head + `,"type":"validation","valid":true,"messages":"no"}`, nil, false},
		"a warning with messages that are none": {`{` + head + `,"type":"validation","valid":false,"severity":"warn","messages":"no"}`, nil, false},
		"a mutation with an info that is none":  {`{` + head + `,"type":"mutation","modified":true,"payload":1,"info":"x"}`, nil, false},
		"nothing":                               {`{}`, nil, false},
		"an unknown type":                       {`{` + head + `,"type":"sink","recorded":true}`, nil, false},
		"E17 another interceptor":               {`{"interceptor":"j","phase":"request","type":"validation","valid":true}`, nil, false},
		"E17 another phase":                     {`{"interceptor":"i","phase":"response","type":"validation","valid":true}`, nil, false},
		"E17 a type that it is not":             {`{` + head + `,"type":"validation","modified":true,"payload":1}`, nil, false},
		"both types at once":                    {`{` + head + `,"type":"validation","valid":true,"modified":true,"payload":1}`, nil, false},
		"a mirror that contradicts":             {`{` + head + `,"type":"validation","valid":true,"validation":{` + no + `}}`, nil, false},
		"a verdict in another type":             {`{` + head + `,"type":"validation","valid":"yes"}`, nil, false},
		"modified without a payload":            {`{` + head + `,"type":"mutation","modified":true}`, nil, false},
		"unmodified with another payload":       {`{` + head + `,"type":"mutation","modified":false,"payload":{"name":"rm"}}`, nil, false},
		"W11 an answer that asks back":          {`{"resultType":"input_required","valid":true}`, nil, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cs := foreignHost(t, interceptors.MethodInvoke, func(json.RawMessage) (string, error) { return c.answer, nil })
			p := callOf("i", `{"name":"echo"}`)
			for _, strict := range []bool{false, true} {
				got, err := interceptors.NewClient(&interceptors.ClientOptions{Strict: strict}).Invoke(t.Context(), cs, p)
				if c.want == nil || strict && !c.strict {
					var malformed *interceptors.MalformedError
					if !errors.As(err, &malformed) {
						t.Errorf("strict %t: Invoke = %+v, %v, want a MalformedError", strict, got, err)
					}
					continue
				}
				if err != nil {
					t.Errorf("strict %t: %v", strict, err)
					continue
				}
				want := *c.want
				if want.Payload != nil {
					want.Payload, got.Payload = json.RawMessage(canonical(t, want.Payload)), json.RawMessage(canonical(t, got.Payload))
				}
				if diff := cmp.Diff(&want, got); diff != "" {
					t.Errorf("strict %t (-want +got)\n%s", strict, diff)
				}
			}
		})
	}
}

func TestClient_List_Shapes(t *testing.T) {
	pages := []string{`{"nextCursor":"1","interceptors":[
		{"name":"old","type":"validation","hook":{"events":["tools/call"],"phase":"both"},"mode":"enforce","failOpen":false},
		{"name":"older","type":"validation","hooks":[{"events":["*/request","tools/list"],"phase":"both"},{"events":["*/response"],"phase":"request"}]},
		{"name":"sink","type":"sink","hooks":[]},
		{"name":"odd","type":"validation","hooks":[],"mode":"whatever"}]}`,
		`{"interceptors":[{"name":"new","type":"mutation","hooks":[{"events":["*"],"phase":"response"}],"mode":"audit",
		"priorityHint":{"response":-5},"unknown":1,"configSchema":null}]}`}
	cs := foreignHost(t, interceptors.MethodList, func(params json.RawMessage) (string, error) {
		var p struct{ Cursor string }
		if err := json.Unmarshal(params, &p); err != nil {
			return "", err
		}
		page, _ := strconv.Atoi("0" + p.Cursor)
		return pages[page], nil
	})
	got, err := interceptors.NewClient(nil).List(t.Context(), cs, "")
	if err != nil {
		t.Fatal(err)
	}
	want := []interceptors.Descriptor{
		{Name: "old", Type: interceptors.TypeValidation, Hooks: bothPhases("tools/call")},
		{Name: "older", Type: interceptors.TypeValidation, Hooks: []interceptors.Hook{
			{Events: []string{"*", "tools/list"}, Phase: interceptors.PhaseRequest}, {Events: []string{"tools/list"}, Phase: interceptors.PhaseResponse},
		}},
		{Name: "new", Type: interceptors.TypeMutation, Hooks: bothPhases("*")[1:], Mode: interceptors.ModeAudit,
			PriorityHint: &interceptors.Priority{Response: -5}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List (-want +got)\n%s", diff)
	}
	strict := interceptors.NewClient(&interceptors.ClientOptions{Strict: true})
	var malformed *interceptors.MalformedError
	if _, err := strict.List(t.Context(), cs, ""); !errors.As(err, &malformed) {
		t.Errorf("strict List = %v, want a MalformedError", err)
	}
}

func TestClient_Errors(t *testing.T) {
	const data = `{"dev.undolog/respond":{"result":{"n":1.0e2}},"dev.undolog/effect":{"id":"e"}}`
	cs := foreignHost(t, interceptors.MethodInvoke, func(json.RawMessage) (string, error) {
		return "", &jsonrpc.Error{Code: -32603, Message: "blocked", Data: json.RawMessage(data)}
	})
	p := callOf("i", `{}`)
	_, err := interceptors.NewClient(nil).Invoke(t.Context(), cs, p)
	if wire := wantCode(t, err, -32603); string(wire.Data) != data || wire.Message != "blocked" {
		t.Errorf("error = %s %s", wire.Message, wire.Data)
	}
	var respond *interceptors.RespondError
	if errors.As(err, &respond) {
		t.Error("an answer in the target's place is taken from a host that is not trusted")
	}
	_, err = interceptors.NewClient(&interceptors.ClientOptions{Respond: true}).Invoke(t.Context(), cs, p)
	want := &interceptors.RespondError{
		Result: json.RawMessage(`{"n":1.0e2}`), Info: json.RawMessage(`{"dev.undolog/effect":{"id":"e"}}`),
	}
	if !errors.As(err, &respond) {
		t.Fatalf("Invoke = %v, want a RespondError", err)
	}
	if diff := cmp.Diff(want, respond); diff != "" {
		t.Errorf("RespondError (-want +got)\n%s", diff)
	}
}

// TestClient_WithServer runs our client against our host in every revision.
func TestClient_WithServer(t *testing.T) {
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			var seen *interceptors.Invocation
			answer := &interceptors.RespondError{
				Result: json.RawMessage(`{"n":9007199254740993,"s":"<&>"}`), Info: json.RawMessage(`{"why":"replay"}`),
			}
			s := newServer(t, nil,
				mutator("changes", requestOnly("tools/call"),
					func(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
						seen = in
						return &interceptors.Change{Payload: json.RawMessage(`{"n":1.0e2}`)}, nil
					}),
				mutator("answers", requestOnly("tools/call"),
					func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) { return nil, answer }))
			cs := connectOurs(t, s, revision)
			client := interceptors.NewClient(&interceptors.ClientOptions{Strict: true, Respond: true})

			listed, err := client.List(t.Context(), cs, "tools/call")
			if err != nil {
				t.Fatal(err)
			}
			want, err := s.List("tools/call")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, listed); diff != "" {
				t.Errorf("List (-want +got)\n%s", diff)
			}

			p := callOf("changes", `{"id":18446744073709551617}`)
			p.Config = json.RawMessage(`{"n":1.50}`)
			p.Context = &interceptors.Context{SessionID: "s", Extra: map[string]json.RawMessage{"dev.undolog/exchange": json.RawMessage(`"x"`)}}
			p.Meta = json.RawMessage(`{"big":9007199254740993}`)
			p.Caller = interceptors.Caller{Tenant: "never sent"}
			r, err := client.Invoke(t.Context(), cs, p)
			if err != nil {
				t.Fatal(err)
			}
			if !r.Modified || string(r.Payload) != `{"n":1.0e2}` {
				t.Errorf("modified %t, payload %s", r.Modified, r.Payload)
			}
			if string(seen.Payload) != string(p.Payload) || string(seen.Config) != string(p.Config) || seen.Caller != (interceptors.Caller{}) {
				t.Errorf("the handler was given %s, %s, %+v", seen.Payload, seen.Config, seen.Caller)
			}
			if diff := cmp.Diff(p.Context, seen.Context); diff != "" {
				t.Errorf("context (-want +got)\n%s", diff)
			}
			if !strings.Contains(string(seen.Meta), `"big":9007199254740993`) {
				t.Errorf("_meta = %s", seen.Meta)
			}

			_, err = client.Invoke(t.Context(), cs, callOf("answers", `{}`))
			var respond *interceptors.RespondError
			if !errors.As(err, &respond) {
				t.Fatalf("Invoke = %v, want a RespondError", err)
			}
			if diff := cmp.Diff(answer, respond); diff != "" {
				t.Errorf("RespondError (-want +got)\n%s", diff)
			}
		})
	}
}

func connectOurs(t *testing.T, s *interceptors.Server, revision string) *mcp.ClientSession {
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
	cs := connectClient(t, ours, revision)
	t.Cleanup(func() {
		cs.Close()
		ss.Wait()
	})
	return cs
}
