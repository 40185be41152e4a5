package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/gateway"
	"github.com/undolog/undolog/internal/splice"
)

const (
	helloLine   = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"a","version":"1"}}}`
	helloAnswer = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"paper","version":"1"}}}`
	readyLine   = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// shakeHands does the handshake through the relay.
func (r *relay) shakeHands() *peer {
	r.t.Helper()
	up := r.upstream()
	r.agent.say(helloLine)
	up.expect(helloLine)
	up.say(helloAnswer)
	r.agent.hear()
	r.agent.say(readyLine)
	up.expect(readyLine)
	return up
}

func call(id, name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, id, name)
}

func TestServe_isTransparent(t *testing.T) {
	r := start(t, gateway.Options{Chain: newChain(t, newSpy())})
	up := r.shakeHands()
	exchanges := map[string][2]string{
		"an ungoverned request": {
			`{"id":"p","x":[1.0,{"a":1,"a":2}],"jsonrpc":"2.0","method":"ping"}`,
			`{"result":{"y":1e400},"id":"p","jsonrpc":"2.0","z":"é"}`,
		},
		"a governed request": {
			`{ "jsonrpc" :"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"t","arguments":{"amount":18446744073709551617,"f":1.10}, "extra":null},"u":1}`,
			`{"u":{"k":1},"jsonrpc":"2.0","id":9007199254740993,"result":{"content":[],"structuredContent":{"n":1.0e2,"big":18446744073709551618},"_meta":{"k":"v"},"later":[]}}`,
		},
		"a governed request without params": {
			`{"jsonrpc":"2.0","id":11,"method":"tools/list"}`,
			`{"jsonrpc":"2.0","id":11,"result":{"tools":[]}}`,
		},
		"a method that nobody knows": {
			`{"jsonrpc":"2.0","id":12,"method":"acme/deploy","params":{"x":1}}`,
			`{"jsonrpc":"2.0","id":12,"error":{"code":-32601,"message":"no","data":{"d":1.0},"w":2},"v":1}`,
		},
	}
	for name, x := range exchanges {
		t.Run(name, func(t *testing.T) {
			r.agent.say(x[0])
			up.expect(x[0])
			up.say(x[1])
			got := r.agent.hear()
			want := x[1]
			if name == "a method that nobody knows" { // the error member is what is passed on
				want = `{"jsonrpc":"2.0","id":12,"error":{"code":-32601,"message":"no","data":{"d":1.0},"w":2}}`
			}
			if got != want {
				t.Errorf("agent heard %s\nwant        %s", got, want)
			}
		})
	}
	for _, note := range []string{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.50}}`,
		`{"jsonrpc":"2.0","method":"notifications/roots/list_changed","new":{}}`,
	} {
		r.agent.say(note)
		up.expect(note)
		up.say(note)
		r.agent.expect(note)
	}
}

func TestServe_addsItsExtension(t *testing.T) {
	r := start(t, gateway.Options{})
	up := r.upstream()
	r.agent.say(helloLine)
	up.hear()
	up.say(`{"jsonrpc":"2.0","id":0,"result":{"capabilities":{ "tools":{"n":1.0} },"protocolVersion":"2025-11-25","instructions":"do","serverInfo":{"name":"s"}},"x":1}`)
	r.agent.expect(`{"jsonrpc":"2.0","id":0,"result":{"capabilities":{ "tools":{"n":1.0},"extensions":{"dev.undolog/gateway":{}}},"protocolVersion":"2025-11-25","instructions":"do","serverInfo":{"name":"s"}},"x":1}`)
	discover := `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{}}}`
	r.agent.say(discover)
	up.expect(discover)
	up.say(`{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"extensions":{"a/b":{"c":1}}}}}`)
	r.agent.expect(`{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"extensions":{"a/b":{"c":1},"dev.undolog/gateway":{}}}}}`)
	r.agent.say(strings.Replace(discover, `"id":1`, `"id":2`, 1))
	up.hear()
	up.say(`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found"}}`)
	r.agent.expect(`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found"}}`)
}

func TestServe_passesWhatTheChainChanged(t *testing.T) {
	s := newSpy()
	s.stamp = true
	r := start(t, gateway.Options{Chain: newChain(t, s)})
	up := r.shakeHands()
	r.agent.say(`{"x":1,"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n":1.0}}}`)
	up.expect(`{"x":1,"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n":1.0},"_meta":{"stamped":"yes"}}}`)
	up.say(`{"jsonrpc":"2.0","id":1.0,"result":{"content":[]},"x":2}`) // the same id, spelled by another program
	r.agent.expect(`{"jsonrpc":"2.0","id":1,"result":{"content":[]},"x":2}`)
	if a := s.settlement(t); a.Kind != chain.Answered || string(a.Result) != `{"content":[]}` {
		t.Errorf("settled %+v", a)
	}
	if !s.delivered(t) {
		t.Error("the answer counts as undelivered")
	}
	s.mu.Lock()
	s.respond = []byte(`{"content":[],"replayed":1.0}`)
	s.mu.Unlock()
	r.agent.say(call("2", "t"))
	r.agent.expect(`{"jsonrpc":"2.0","id":2,"result":{"content":[],"replayed":1.0}}`)
}

func TestServe_refusesAnIDInUse(t *testing.T) {
	s := newSpy()
	r := start(t, gateway.Options{Chain: newChain(t, s)})
	up := r.shakeHands()
	for _, first := range []string{call("7", "t"), `{"jsonrpc":"2.0","id":7,"method":"ping"}`} {
		r.agent.say(first)
		up.hear()
		r.agent.say(call("7.0", "other"))
		if id, code, _, _ := errorOf(t, r.agent.hear()); id != "7.0" || code != -32600 {
			t.Errorf("answered under id %s with code %d", id, code)
		}
		up.say(`{"jsonrpc":"2.0","id":7,"result":{}}`)
		r.agent.expect(`{"jsonrpc":"2.0","id":7,"result":{}}`)
	}
	if got := s.requests(); len(got) != 1 {
		t.Errorf("the chain saw %v", got)
	}
}

func TestServe_refusesUnderTheRequestsID(t *testing.T) {
	s := newSpy()
	r := start(t, gateway.Options{Chain: newChain(t, s)})
	up := r.shakeHands()
	deep := strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":` + deep + `}`,
		`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"` + strings.Repeat("k", 1<<20) + `":1}}`,
		`{"jsonrpc":"2.0","params":{"a":"` + strings.Repeat("v", 3<<20) + `"},"id":"x","method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":"x","method":"tools/call","id":"y"}`,
	} {
		r.agent.say(line)
		if id, code, _, _ := errorOf(t, r.agent.hear()); id != `"x"` || code != -32600 {
			t.Errorf("answered under id %s with code %d", id, code)
		}
	}
	r.agent.say(`no JSON at all`)
	if id, code, _, _ := errorOf(t, r.agent.hear()); id != "null" || code != -32700 {
		t.Errorf("answered under id %s with code %d", id, code)
	}
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":{"a":1},"method":"tools/call"}`: "null",
		`{"jsonrpc":"2.0","id":8}`:                             "8",
	} {
		r.agent.say(line)
		if id, code, _, _ := errorOf(t, r.agent.hear()); id != want || code != -32600 {
			t.Errorf("%s is answered under id %s with code %d", line, id, code)
		}
	}
	r.agent.say(`{"jsonrpc":"2.0","id":9,"method":"ping"}`)
	up.hear()
	r.agent.say(`{"jsonrpc":"2.0","id":9}`)
	if id, _, _, _ := errorOf(t, r.agent.hear()); id != "null" {
		t.Errorf("a request in flight is ended by the refusal of something else")
	}
	r.agent.say(`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"no id"}}`)
	r.agent.say(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	up.expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`) // and nothing before it
	if got := s.requests(); len(got) != 0 {
		t.Errorf("the chain saw %v", got)
	}
}

func TestServe_cancel(t *testing.T) {
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"too slow","x":1}}`
	t.Run("an ungoverned request is cancelled at the upstream and never answered", func(t *testing.T) {
		r := start(t, gateway.Options{})
		up := r.shakeHands()
		r.agent.say(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}`)
		up.hear()
		r.agent.say(cancel)
		up.expect(cancel)
		up.say(`{"jsonrpc":"2.0","id":1,"result":{"late":true}}`)
		up.say(`{"jsonrpc":"2.0","method":"after"}`)
		r.agent.expect(`{"jsonrpc":"2.0","method":"after"}`)
		r.agent.say(cancel) // of no request
		r.agent.say(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		up.expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	})
	t.Run("a governed request that may be is cancelled at the upstream", func(t *testing.T) {
		s := newSpy()
		r := start(t, gateway.Options{Chain: newChain(t, s)})
		up := r.shakeHands()
		r.agent.say(call("1", "read"))
		up.hear()
		r.agent.say(cancel)
		up.expect(cancel)
		if a := s.settlement(t); a.Kind != chain.Lost {
			t.Errorf("settled %+v", a)
		}
		if s.delivered(t) {
			t.Error("a cancelled answer counts as delivered")
		}
	})
	t.Run("a detached one goes on and is settled with its outcome, and its answer stays here", func(t *testing.T) {
		s := newSpy()
		s.detach = true
		r := start(t, gateway.Options{Chain: newChain(t, s)})
		up := r.shakeHands()
		r.agent.say(call("1", "write"))
		up.hear()
		r.agent.say(cancel)
		r.agent.say(call("1", "reuse")) // still on its way upstream
		if id, code, _, _ := errorOf(t, r.agent.hear()); id != "1" || code != -32600 {
			t.Errorf("answered under id %s with code %d", id, code)
		}
		r.agent.say(cancel) // again: not passed on either
		r.agent.say(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		up.expect(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		up.say(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		if a := s.settlement(t); a.Kind != chain.Answered || string(a.Result) != `{"content":[]}` {
			t.Errorf("settled %+v", a)
		}
		if s.delivered(t) {
			t.Error("a cancelled answer counts as delivered")
		}
		up.say(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		r.agent.expect(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	})
}

func TestServe_upstreamAsks(t *testing.T) {
	r := start(t, gateway.Options{})
	up := r.shakeHands()
	ask := `{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"maxTokens":1.0}}`
	r.agent.say(call("1", "t")) // the same id in the other direction
	up.hear()
	up.say(ask)
	r.agent.expect(ask)
	answer := `{"jsonrpc":"2.0","id":1,"result":{"role":"assistant","x":1.0}}`
	r.agent.say(answer)
	up.expect(answer)
	r.agent.say(answer) // a second answer is to no request
	up.say(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	r.agent.expect(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)

	up.say(strings.Replace(ask, `"id":1`, `"id":2`, 1))
	r.agent.hear()
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`
	up.say(cancel)
	r.agent.expect(cancel)
	r.agent.say(strings.Replace(answer, `"id":1`, `"id":2`, 1)) // too late
	r.agent.say(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	up.expect(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
}

func TestServe_upstreamDies(t *testing.T) {
	s := newSpy()
	r := start(t, gateway.Options{Chain: newChain(t, s)})
	up := r.shakeHands()
	for _, x := range [][2]string{
		{`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a:1"}}`, `{"jsonrpc":"2.0","id":2,"result":{}}`},
		{`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a:2"}}`, `{"jsonrpc":"2.0","id":3,"result":{}}`},
		{`{"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"a:1"}}`, `{"jsonrpc":"2.0","id":4,"result":{}}`},
	} {
		r.agent.say(x[0])
		up.expect(x[0])
		up.say(x[1])
		r.agent.expect(x[1])
	}
	up.say(`{"jsonrpc":"2.0","id":90,"method":"roots/list"}`)
	r.agent.hear()
	r.agent.say(call("5", "t"))
	up.hear()
	r.agent.say(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)
	up.hear()
	up.hang()

	heard := map[string]string{}
	for range 3 {
		line := r.agent.hear()
		m, err := gateway.ParseMessage([]byte(line), nil)
		if err != nil {
			t.Fatal(err)
		}
		heard[string(m.ID)+m.Method] = line
	}
	for _, id := range []string{"5", "6"} {
		if _, code, message, reason := errorOf(t, heard[id]); code != -32603 || reason != "upstream_lost" || !strings.Contains(message, "started again on the next call") {
			t.Errorf("request %s: %s", id, heard[id])
		}
	}
	if want := `"requestId":90`; !strings.Contains(heard["notifications/cancelled"], want) {
		t.Errorf("the upstream's own request was not taken back: %v", heard)
	}
	if a := s.settlement(t); a.Kind != chain.Lost {
		t.Errorf("settled %+v", a)
	}

	r.agent.say(call("7", "t"))
	up = r.upstream()
	for _, want := range []struct{ method, params string }{
		{"initialize", string(splice.Get([]byte(helloLine), "params"))},
		{"notifications/initialized", ""},
		{"logging/setLevel", `{"level":"info"}`},
		{"resources/subscribe", `{"uri":"a:2"}`},
	} {
		m, err := gateway.ParseMessage([]byte(up.hear()), nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Method != want.method || string(m.Params) != want.params {
			t.Fatalf("the new upstream heard %s, want %s", m.Raw, want.method)
		}
		if m.ID != nil {
			if m.ID[0] != '"' {
				t.Errorf("our id %s may be the agent's too", m.ID)
			}
			up.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"serverInfo":{"name":"paper"}}}`, m.ID))
		}
	}
	up.expect(call("7", "t")) // the call that came, and not the one that was lost
	up.say(`{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`)
	r.agent.expect(`{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`)
}

func TestServe_upstreamThatKeepsDyingRests(t *testing.T) {
	dials := 0
	r := start(t, gateway.Options{Dial: func(context.Context, *gateway.AgentInfo) (gateway.Conn, error) {
		if dials++; dials > 1 {
			return nil, errors.New("no more of it")
		}
		conn, life := newPipe(t, nil)
		go func() { // dead before its first call, it would never have been started
			<-life.lines
			life.hang()
		}()
		return conn, nil
	}})
	for id := range 10 {
		r.agent.say(call(fmt.Sprint(id), "t"))
		_, code, message, reason := errorOf(t, r.agent.hear())
		if code != -32603 {
			t.Fatalf("code %d", code)
		}
		if reason == "upstream_down" {
			if !strings.Contains(message, "no more of it") || !strings.Contains(message, "is not started again for ") {
				t.Errorf("message %q", message)
			}
			return
		}
	}
	t.Error("it is started again and again")
}

func TestServe_upstreamThatCannotBeStarted(t *testing.T) {
	want := errors.New("start upstream foo: not found")
	r := start(t, gateway.Options{Dial: func(context.Context, *gateway.AgentInfo) (gateway.Conn, error) { return nil, want }})
	if err := r.end(); !errors.Is(err, want) {
		t.Errorf("Serve = %v", err)
	}
}

func TestServe_answerAboveTheLimit(t *testing.T) {
	s := newSpy()
	r := start(t, gateway.Options{Chain: newChain(t, s), MaxResult: 10_000})
	up := r.shakeHands()
	for _, request := range []string{call("1", "t"), `{"jsonrpc":"2.0","id":1,"method":"ping"}`} {
		r.agent.say(request)
		up.hear()
		up.say(`{"jsonrpc":"2.0","result":{"a":"` + strings.Repeat("x", 200_000) + `"},"id":1}`)
		if _, code, message, reason := errorOf(t, r.agent.hear()); code != -32603 || reason != "result_too_large" || !strings.Contains(message, "10000") {
			t.Errorf("answered %d %q %q", code, message, reason)
		}
	}
	if a := s.settlement(t); a.Kind != chain.Answered || !strings.Contains(string(a.Error), "result_too_large") {
		t.Errorf("settled %+v", a)
	}
}

func TestServe_answerThatCannotBeRead(t *testing.T) {
	s := newSpy()
	r := start(t, gateway.Options{Chain: newChain(t, s)})
	up := r.shakeHands()
	r.agent.say(call("1", "t"))
	up.hear()
	up.say(`Listening on stdio`) // a line that is none of the protocol hurts nobody
	up.say(`{"jsonrpc":"2.0","id":1,"result":{"a":tru}}`)
	if _, _, _, reason := errorOf(t, r.agent.hear()); reason != "upstream_lost" {
		t.Errorf("reason %q", reason)
	}
	if a := s.settlement(t); a.Kind != chain.Lost {
		t.Errorf("settled %+v", a)
	}
}

func TestServe_twentyMegabytes(t *testing.T) {
	r := start(t, gateway.Options{Chain: newChain(t, newSpy())})
	up := r.shakeHands()
	big := strings.Repeat("x", 20<<20)
	r.agent.say(call("1", "t"))
	up.hear()
	answer := `{"jsonrpc":"2.0","id":1,"result":{"a":"` + big + `"}}`
	up.say(answer)
	r.agent.expect(answer)
}

func TestServe_end(t *testing.T) {
	t.Run("an agent that has closed its end still gets the answers", func(t *testing.T) {
		r := start(t, gateway.Options{})
		up := r.shakeHands()
		r.agent.say(call("1", "t"))
		up.hear()
		r.agent.hang()
		up.say(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		r.agent.expect(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		if err := r.end(); err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	t.Run("detached calls are awaited", func(t *testing.T) {
		s := newSpy()
		s.detach = true
		r := start(t, gateway.Options{Chain: newChain(t, s)})
		up := r.shakeHands()
		r.agent.say(call("1", "t"))
		up.hear()
		r.stop()
		if _, _, _, reason := errorOf(t, r.agent.hear()); reason != "cancelled" {
			t.Errorf("reason %q", reason)
		}
		up.say(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		if a := s.settlement(t); a.Kind != chain.Answered {
			t.Errorf("settled %+v", a)
		}
		if s.delivered(t) {
			t.Error("delivered to an agent that has left")
		}
		if err := r.end(); err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	t.Run("but not for ever", func(t *testing.T) {
		s := newSpy()
		s.detach = true
		r := start(t, gateway.Options{Chain: newChain(t, s), Drain: 50 * time.Millisecond})
		up := r.shakeHands()
		r.agent.say(call("1", "t"))
		up.hear()
		r.stop()
		if err := r.end(); err != nil {
			t.Errorf("Serve = %v", err)
		}
		if a := s.settlement(t); a.Kind != chain.Lost {
			t.Errorf("settled %+v", a)
		}
		if !strings.Contains(r.log.String(), "session ends before its calls have") {
			t.Errorf("the log does not say what was left: %s", r.log.String())
		}
	})
}

func TestServe_primesBeforeTheFirstCall(t *testing.T) {
	s := newSpy()
	r := start(t, gateway.Options{Chain: newChain(t, s), Prime: true})
	up := r.shakeHands()
	page := func(want, answer string) {
		t.Helper()
		m, err := gateway.ParseMessage([]byte(up.hear()), nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Method != "tools/list" || string(m.Params) != want {
			t.Fatalf("upstream heard %s, want tools/list %s", m.Raw, want)
		}
		up.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + answer + `}`)
	}
	r.agent.say(call("1", "t"))
	page(`{}`, `{"tools":[{"name":"a"}],"nextCursor":"2"}`)
	page(`{"cursor":"2"}`, `{"tools":[{"name":"b"}]}`)
	up.expect(call("1", "t"))
	if got, want := s.responses(), 2; len(got) != want {
		t.Errorf("the response phase saw %v", got)
	}
	up.say(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	r.agent.expect(`{"jsonrpc":"2.0","id":1,"result":{}}`)

	r.agent.say(call("2", "t"))
	up.expect(call("2", "t")) // not listed again
	up.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	r.agent.hear()
	r.agent.say(call("3", "t"))
	page(`{}`, `{"tools":[]}`)
	up.expect(call("3", "t"))
}

func TestServe_holdsACallThatComesBeforeTheHandshakeIsOver(t *testing.T) {
	names := make(chan string, 8)
	r := start(t, gateway.Options{
		Attributes: func(_ *gateway.Message, p *gateway.Peer) map[string]json.RawMessage {
			names <- p.Server
			return nil
		},
	})
	up := r.upstream()
	r.agent.say(helloLine)
	r.agent.say(call("1", "early"))
	r.agent.say(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	up.expect(helloLine)
	up.expect(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	up.say(helloAnswer)
	up.expect(call("1", "early"))
	if name := <-names; !strings.HasPrefix(name, "paper-") {
		t.Errorf("the call went to %s", name)
	}
}

// In a bubble nobody loses patience with those before it while these are still on their way.
func TestServe_keepsTheOrderOfRequests(t *testing.T) { synctest.Test(t, keepsTheOrderOfRequests) }

func keepsTheOrderOfRequests(t *testing.T) {
	s := newSpy()
	held := make(chan struct{})
	s.hold = map[string]chan struct{}{"resources/list": held}
	r := start(t, gateway.Options{Chain: newChain(t, s)})
	up := r.shakeHands()
	for i := range 50 {
		method := []string{"tools/call", "resources/read", "prompts/get"}[i%3]
		r.agent.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"name":"t"}}`, i, method))
	}
	for i := range 50 {
		if m := parse(t, up.hear()); string(m.ID) != fmt.Sprint(i) {
			t.Fatalf("request %s goes out as number %d", m.ID, i)
		}
	}
	r.agent.say(`{"jsonrpc":"2.0","id":"held","method":"resources/list"}`)
	r.agent.say(call(`"next"`, "t"))
	if m := parse(t, up.hear()); string(m.ID) != `"next"` {
		t.Errorf("%s goes out before the request that nothing holds", m.ID)
	}
	close(held)
	if m := parse(t, up.hear()); string(m.ID) != `"held"` {
		t.Errorf("%s goes out last", m.ID)
	}
}

// Many requests are held up by one and lose patience with it in the same moment.
func TestServe_manyOvertakeAtOnce(t *testing.T) {
	s := newSpy()
	held := make(chan struct{})
	s.hold = map[string]chan struct{}{"resources/list": held}
	r := start(t, gateway.Options{Chain: newChain(t, s), Drain: -1})
	up := r.shakeHands()
	r.agent.say(`{"jsonrpc":"2.0","id":"held","method":"resources/list"}`)
	const many = 60 // what the spy has room for
	for i := range many {
		r.agent.say(call(fmt.Sprint(i), "t"))
	}
	for range many {
		up.say(`{"jsonrpc":"2.0","id":` + string(parse(t, up.hear()).ID) + `,"result":{}}`)
		r.agent.hear()
	}
	close(held)
	up.hear()
	up.say(`{"jsonrpc":"2.0","id":"held","result":{}}`)
	r.agent.expect(`{"jsonrpc":"2.0","id":"held","result":{}}`)
}

// A client that counts its requests badly: it gives one up and uses its id again while the upstream may
// still answer the first. That answer is no outcome of the second.
func TestServe_answerToARequestGivenUp(t *testing.T) {
	for name, first := range map[string]string{
		"governed":   call("7", "read"),
		"ungoverned": `{"jsonrpc":"2.0","id":7,"method":"ping"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpy()
			r := start(t, gateway.Options{Chain: newChain(t, s)})
			up := r.shakeHands()
			r.agent.say(first)
			up.hear()
			r.agent.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
			up.hear()
			if name == "governed" && s.delivered(t) {
				t.Error("a cancelled request was answered")
			}
			r.agent.say(call("7", "charge"))
			sent := parse(t, up.hear())
			up.say(`{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"late"}}`)
			up.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"charged":true}}`, sent.ID))
			r.agent.expect(`{"jsonrpc":"2.0","id":7,"result":{"charged":true}}`)
		})
	}
}

func TestServe_namesTheUpstream(t *testing.T) {
	names := make(chan string, 8)
	attributes := func(_ *gateway.Message, p *gateway.Peer) map[string]json.RawMessage {
		names <- p.Server + " " + p.Protocol
		return nil
	}
	ask := func(o gateway.Options, answer string) string {
		o.Attributes = attributes
		r := start(t, o)
		up := r.upstream()
		r.agent.say(helloLine)
		up.hear()
		up.say(answer)
		r.agent.hear()
		r.agent.say(call("1", "t"))
		up.hear()
		return <-names
	}
	first := ask(gateway.Options{Target: "a"}, helloAnswer)
	if !strings.HasPrefix(first, "paper-") || len(first) != len("paper-01234567 2025-11-25") {
		t.Errorf("name and protocol %q", first)
	}
	if again := ask(gateway.Options{Target: "a"}, helloAnswer); again != first {
		t.Errorf("the same upstream is %q and %q", first, again)
	}
	if other := ask(gateway.Options{Target: "b"}, helloAnswer); other == first {
		t.Errorf("two upstreams are %q", other)
	}
	if fixed := ask(gateway.Options{Name: "mine"}, helloAnswer); fixed != "mine 2025-11-25" {
		t.Errorf("name and protocol %q", fixed)
	}
}
