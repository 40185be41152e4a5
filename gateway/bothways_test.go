package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/gateway"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// rule is an interceptor on one event and phase: it denies payloads with a word, and else replaces it.
type rule struct {
	event     string
	phase     interceptors.Phase
	deny      string // empty: nothing is denied
	old, new  string
	failOpen  bool
	principal string // only of this one; empty: of all
	seen      *seenPayloads
}

type seenPayloads struct {
	mu  sync.Mutex
	all []string
}

func (s *seenPayloads) note(in *interceptors.Invocation) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, in.Event+" "+string(in.Phase)+" "+string(in.Payload))
}

func (s *seenPayloads) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.all...)
}

func (r rule) applies(in *interceptors.Invocation) bool {
	return r.principal == "" || in.Context.Principal != nil && in.Context.Principal.ID == r.principal
}

func (r rule) validate(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	r.seen.note(in)
	if r.deny != "" && strings.Contains(string(in.Payload), r.deny) {
		return interceptors.Deny("it has " + r.deny), nil
	}
	return interceptors.Allow(), nil
}

func (r rule) mutate(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	if r.old == "" || !r.applies(in) {
		return &interceptors.Change{}, nil
	}
	return &interceptors.Change{Payload: json.RawMessage(strings.ReplaceAll(string(in.Payload), r.old, r.new))}, nil
}

// ruled is a gateway's chain with these rules at the boundary to the agent.
func ruled(t *testing.T, rules ...rule) *chain.Chain {
	t.Helper()
	c, err := chain.New(&chain.Options{Posture: chain.PostureGateway})
	if err != nil {
		t.Fatal(err)
	}
	s := interceptors.NewServer(nil)
	for i, r := range rules {
		d := interceptors.Descriptor{Name: fmt.Sprintf("v%d", i), FailOpen: r.failOpen, Hooks: []interceptors.Hook{{Events: []string{r.event}, Phase: r.phase}}}
		m := d
		m.Name = fmt.Sprintf("m%d", i)
		if err := s.Add(&interceptors.Validator{Descriptor: d, Validate: r.validate}, &interceptors.Mutator{Descriptor: m, Mutate: r.mutate}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Use(chain.Local("house", s), nil); err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	request  = interceptors.PhaseRequest
	response = interceptors.PhaseResponse
)

func TestServe_governsWhatTheUpstreamAsks(t *testing.T) {
	seen := &seenPayloads{}
	r := start(t, gateway.Options{Chain: ruled(t,
		rule{event: "sampling/createMessage", phase: request, deny: "swordfish", old: "secret", new: "[gone]", seen: seen},
		rule{event: "sampling/createMessage", phase: response, deny: "poison", old: "password", new: "[gone]", seen: seen},
	)})
	up := r.shakeHands()
	ask := func(id, text string) string {
		return fmt.Sprintf(`{"x":1,"jsonrpc":"2.0","id":%s,"method":"sampling/createMessage","params":{"text":%q}}`, id, text)
	}
	t.Run("a question and its answer pass as changed, each under its id", func(t *testing.T) {
		up.say(ask("1", "a secret"))
		r.agent.expect(ask("1", "a [gone]"))
		r.agent.say(`{"jsonrpc":"2.0","id":1,"result":{"text":"a password","n":1.0},"y":2}`)
		up.expect(`{"jsonrpc":"2.0","id":1,"result":{"text":"a [gone]","n":1.0},"y":2}`)
		want := []string{`sampling/createMessage request {"text":"a [gone]"}`, `sampling/createMessage response {"text":"a password","n":1.0}`}
		if diff := cmp.Diff(want, seen.list()); diff != "" {
			t.Errorf("toward the agent a question is sent, and the answer received (-want +got)\n%s", diff)
		}
	})
	t.Run("what nobody changes keeps every byte", func(t *testing.T) {
		up.say(ask("2", "plain"))
		r.agent.expect(ask("2", "plain"))
		r.agent.say(`{ "jsonrpc":"2.0", "id":2, "result":{"k":1e400} }`)
		up.expect(`{ "jsonrpc":"2.0", "id":2, "result":{"k":1e400} }`)
	})
	t.Run("a denied question is answered here", func(t *testing.T) {
		up.say(ask(`"q"`, "swordfish"))
		if id, code, message, _ := errorOf(t, up.hear()); id != `"q"` || code != -32602 || strings.Contains(message, "swordfish") {
			t.Errorf("answered under %s with %d %q", id, code, message)
		}
	})
	t.Run("a denied answer does not reach the upstream", func(t *testing.T) {
		up.say(ask("3", "plain"))
		r.agent.hear()
		r.agent.say(`{"jsonrpc":"2.0","id":3,"result":{"text":"poison"}}`)
		if line := up.hear(); strings.Contains(line, "poison") {
			t.Errorf("the upstream heard %s", line)
		}
	})
	t.Run("an error of the agent passes", func(t *testing.T) {
		up.say(ask("4", "plain"))
		r.agent.hear()
		r.agent.say(`{"jsonrpc":"2.0","id":4,"error":{"code":-1,"message":"User rejected"}}`)
		up.expect(`{"jsonrpc":"2.0","id":4,"error":{"code":-1,"message":"User rejected"}}`)
	})
	t.Run("one that is taken back is not answered", func(t *testing.T) {
		cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`
		up.say(ask("5", "plain"))
		r.agent.hear()
		up.say(cancel)
		r.agent.expect(cancel)
		r.agent.say(`{"jsonrpc":"2.0","id":5,"result":{"late":true}}`)
		up.say(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)
		r.agent.expect(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)
		r.agent.say(`{"jsonrpc":"2.0","id":6,"result":{}}`)
		up.expect(`{"jsonrpc":"2.0","id":6,"result":{}}`)
	})
}

func TestServe_governsTheEndOfATask(t *testing.T) {
	r := start(t, gateway.Options{Drain: -1, Chain: ruled(t,
		rule{event: "tools/call", phase: response, deny: "poison", old: "secret", new: "[gone]"})})
	up := r.shakeHands()
	exchange := func(ask, answer, want string) {
		t.Helper()
		r.agent.say(ask)
		up.hear()
		up.say(answer)
		if want == "" {
			if line := r.agent.hear(); strings.Contains(line, "poison") || !strings.Contains(line, `"error"`) {
				t.Errorf("the agent heard %s", line)
			}
			return
		}
		r.agent.expect(want)
	}
	exchange(call("1", "t"), `{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"a","status":"working"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"a","status":"working"}}`)
	get := `{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"a"}}`
	exchange(get, `{"jsonrpc":"2.0","id":2,"result":{"status":"working","n":1.0}}`, `{"jsonrpc":"2.0","id":2,"result":{"status":"working","n":1.0}}`)
	exchange(get, `{"jsonrpc":"2.0","id":2,"result":{"status":"completed","result":{"text":"secret"},"n":1.0}}`,
		`{"jsonrpc":"2.0","id":2,"result":{"status":"completed","result":{"text":"[gone]"},"n":1.0}}`)
	exchange(get, `{"jsonrpc":"2.0","id":2,"result":{"status":"completed","result":{"text":"poison"}}}`, "")
	result := `{"jsonrpc":"2.0","id":3,"method":"tasks/result","params":{"taskId":"begun by another process"}}`
	exchange(result, `{"jsonrpc":"2.0","id":3,"result":{"text":"secret"}}`, `{"jsonrpc":"2.0","id":3,"result":{"text":"[gone]"}}`)
	up.say(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"a","status":"completed","result":{"text":"poison"}}}`)
	up.say(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"a","status":"completed","result":{"text":"secret"}}}`)
	r.agent.expect(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"a","status":"completed","result":{"text":"[gone]"}}}`)
}

func TestServe_governsWhatATaskAsks(t *testing.T) {
	r := start(t, gateway.Options{Chain: ruled(t,
		rule{event: "elicitation/create", phase: request, deny: "swordfish", old: "secret", new: "[gone]"},
		rule{event: "elicitation/create", phase: response, deny: "poison", old: "password", new: "[gone]"})})
	up := r.shakeHands()
	get := func(text string) string {
		r.agent.say(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a"}}`)
		up.hear()
		up.say(`{"jsonrpc":"2.0","id":1,"result":{"status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"` + text + `"}}}}}`)
		return r.agent.hear()
	}
	update := func(text string) string {
		return `{"jsonrpc":"2.0","id":2,"method":"tasks/update","params":{"taskId":"a","inputResponses":{"k":{"text":"` + text + `"}}}}`
	}
	r.agent.say(update("nobody has asked"))
	if _, code, _, reason := errorOf(t, r.agent.hear()); code != -32602 || reason != "unknown_request_state" {
		t.Errorf("answers to nothing are refused with %d %s", code, reason)
	}
	if line := get("swordfish"); strings.Contains(line, "swordfish") {
		t.Errorf("a denied question went out: %s", line)
	}
	if line := get("a secret"); !strings.Contains(line, `{"message":"a [gone]"}`) {
		t.Errorf("the agent was asked %s", line)
	}
	r.agent.say(update("poison"))
	if line := r.agent.hear(); !strings.Contains(line, `"error"`) {
		t.Errorf("a denied answer is answered by %s", line)
	}
	r.agent.say(update("a password"))
	up.expect(update("a [gone]"))
	up.say(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	r.agent.expect(`{"jsonrpc":"2.0","id":2,"result":{}}`)
}

func TestServe_scrubsErrors(t *testing.T) {
	r := start(t, gateway.Options{ScrubErrors: true, Chain: ruled(t, rule{event: "tools/call", phase: request, deny: "swordfish"})})
	up := r.shakeHands()
	ask := func(method string) string { return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{}}` }
	tests := []struct{ name, ask, answer, want string }{
		{"the text of a governed request's error goes, its code stays", ask("tools/call"),
			`{"code":-5,"message":"at /etc/secret","data":{"secret":1}}`, `{"code":-5,"message":"The server answered with an error"}`},
		{"that of an ungoverned one too", ask("ping"), `{"code":-32603,"message":"at /etc/secret"}`, `{"code":-32603,"message":"Internal error"}`},
		{"clients need the data of the protocol's own codes", ask("server/discover"),
			`{"code":-32022,"message":"mine","data":{"supported":["2025-11-25"]}}`, `{"code":-32022,"message":"The server answered with an error","data":{"supported":["2025-11-25"]}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.agent.say(tt.ask)
			up.hear()
			up.say(`{"jsonrpc":"2.0","id":1,"error":` + tt.answer + `}`)
			r.agent.expect(`{"jsonrpc":"2.0","id":1,"error":` + tt.want + `}`)
		})
	}
	t.Run("our own words stay", func(t *testing.T) {
		r.agent.say(call("2", "swordfish"))
		if _, _, message, reason := errorOf(t, r.agent.hear()); message != "Interceptor validation failed" || reason != "denied" {
			t.Errorf("%q, reason %q", message, reason)
		}
	})
}

func TestDo_filteredListIsPrivate(t *testing.T) {
	c := gather(t, gateway.Options{Chain: ruled(t,
		rule{event: "tools/list", phase: response, old: `{"name":"pay"},`, principal: "alice"})})
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	for principal, tools := range map[string]string{"alice": `[{"name":"read"}]`, "bob": `[{"name":"pay"},{"name":"read"}]`} {
		p := c.post(principal, list)
		up := c.upstream()
		_, id := up.hearRequest()
		up.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":[{"name":"pay"},{"name":"read"}],"ttlMs":60000,"cacheScope":"public"}}`)
		p.expect(`{"jsonrpc":"2.0","id":1,"result":{"tools":` + tools + `,"ttlMs":60000,"cacheScope":"private"}}`)
	}
}

func TestDo_governsQuestionsAndAnswers(t *testing.T) {
	c := gather(t, gateway.Options{Name: "up", Chain: ruled(t,
		rule{event: "elicitation/create", phase: request, deny: "swordfish"},
		rule{event: "elicitation/create", phase: response, old: "password", new: "[gone]"})})
	ask := func(more string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}` + more + `}}`
	}
	question := func(text string) string {
		return `"result":{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"` + text + `"}}},"requestState":"theirs"}}`
	}
	p := c.post("alice", ask(""))
	up := c.upstream()
	_, id := up.hearRequest()
	up.say(`{"jsonrpc":"2.0","id":` + id + `,` + question("swordfish"))
	if line := p.next(); !strings.Contains(line, `"error"`) {
		t.Errorf("a denied question went out: %s", line)
	}
	p = c.post("alice", ask(""))
	_, id = up.hearRequest()
	up.say(`{"jsonrpc":"2.0","id":` + id + `,` + question("who?"))
	state := splice.Get(json.RawMessage(p.next()), "result", "requestState")
	p = c.post("alice", ask(`,"inputResponses":{"k":{"action":"accept","content":{"p":"password"}}},"requestState":`+string(state)))
	m, id := up.hearRequest()
	if got, want := string(splice.Get(m.Params, "inputResponses")), `{"k":{"action":"accept","content":{"p":"[gone]"}}}`; got != want {
		t.Errorf("the upstream got %s, want %s", got, want)
	}
	if got := string(splice.Get(m.Params, "requestState")); got != `"theirs"` {
		t.Errorf("state %s", got)
	}
	up.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[]}}`)
	p.expect(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
}

// next is the next message that is sent.
func (p *posted) next() string {
	p.t.Helper()
	select {
	case line := <-p.sent:
		return line
	case <-time.After(patience):
		p.t.Fatal("nothing was sent")
	}
	return ""
}

// The answer is the last message of a stream: it is governed, and what comes before it passes as it is.
func TestDo_governsTheLastMessageOfAStream(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		token := splice.Get(body, "params", "_meta", "progressToken")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"message\":\"a secret\"}}\n\n", token)
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"text\":\"a secret\"}}\n\n", splice.Get(body, "id"))
	}))
	defer server.Close()
	g := gateway.New(&gateway.Options{
		Chain: ruled(t, rule{event: "*", phase: response, old: "secret", new: "[gone]"}), Name: "up",
		Dial: func(ctx context.Context, _ *gateway.AgentInfo) (gateway.Conn, error) {
			return gateway.DialHTTP(ctx, server.URL, nil)
		},
	})
	defer g.Close(context.Background())
	p := (&crowd{t: t, gateway: g}).post("alice", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",`+
		`"_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	p.expect(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","message":"a secret"}}`)
	p.expect(`{"jsonrpc":"2.0","id":1,"result":{"text":"a [gone]"}}`)
}

func TestDo_headersSayWhatMutatorsLeft(t *testing.T) {
	headers := make(chan http.Header, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		id := splice.Get(body, "id")
		if strings.Contains(string(body), "tools/list") {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"new","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}}`, id)
			return
		}
		headers <- r.Header
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
	}))
	defer server.Close()
	g := gateway.New(&gateway.Options{
		Chain: ruled(t, rule{event: "tools/call", phase: request, old: "old", new: "new"}), Name: "up", Prime: true,
		Dial: func(ctx context.Context, _ *gateway.AgentInfo) (gateway.Conn, error) {
			return gateway.DialHTTP(ctx, server.URL, nil)
		},
	})
	defer g.Close(context.Background())
	p := (&crowd{t: t, gateway: g}).post("alice", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"old","arguments":{"region":"old-1"},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	p.expect(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	h := <-headers
	got := []string{h.Get("Mcp-Method"), h.Get("Mcp-Name"), h.Get("Mcp-Param-Region")}
	if diff := cmp.Diff([]string{"tools/call", "new", "new-1"}, got); diff != "" {
		t.Errorf("headers (-want +got)\n%s", diff)
	}
}
