package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/gateway"
	"github.com/undolog/undolog/internal/splice"
)

// crowd is a gateway with stateless agents on it.
type crowd struct {
	t       *testing.T
	gateway *gateway.Gateway
	lives   chan *peer
}

func gather(t *testing.T, o gateway.Options) *crowd {
	t.Helper()
	c := &crowd{t: t, lives: make(chan *peer, 16)}
	if o.Chain == nil {
		o.Chain = newChain(t, nil)
	}
	o.Drain = 50 * time.Millisecond
	o.Dial = func(context.Context, *gateway.AgentInfo) (gateway.Conn, error) {
		conn, life := newPipe(t, nil)
		c.lives <- life
		return conn, nil
	}
	c.gateway = gateway.New(&o)
	t.Cleanup(func() { c.gateway.Close(context.Background()) })
	return c
}

func (c *crowd) upstream() *peer {
	return (&relay{t: c.t, lives: c.lives}).upstream()
}

// posted is one request of a stateless agent.
type posted struct {
	t      *testing.T
	sent   chan string
	done   chan error
	hangUp context.CancelFunc
}

func (c *crowd) post(principal, line string) *posted {
	c.t.Helper()
	m := parse(c.t, line)
	ctx, cancel := context.WithCancel(context.Background())
	p := &posted{t: c.t, sent: make(chan string, 64), done: make(chan error, 1), hangUp: cancel}
	go func() {
		p.done <- c.gateway.Do(ctx, gateway.AgentInfo{Tenant: "default", Principal: principal}, m, func(m *gateway.Message) error {
			p.sent <- string(m.Raw)
			return nil
		})
	}()
	return p
}

func (p *posted) expect(want string) {
	p.t.Helper()
	select {
	case got := <-p.sent:
		if got != want {
			p.t.Fatalf("sent %s\nwant %s", got, want)
		}
	case <-time.After(patience):
		p.t.Fatalf("nothing was sent, want %s", want)
	}
}

func (p *posted) end() error {
	p.t.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(patience):
		p.t.Fatal("Do does not return")
	}
	return nil
}

// hearRequest returns what the upstream hears next and its id.
func (p *peer) hearRequest() (m *gateway.Message, id string) {
	p.t.Helper()
	m = parse(p.t, p.hear())
	return m, string(m.ID)
}

func TestDo_mapsWhatAgentsMayHaveInCommon(t *testing.T) {
	s := newSpy()
	c := gather(t, gateway.Options{Chain: newChain(t, s)})
	request := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"_meta":{"progressToken":"tok","k":1.0}},"x":1}`
	a := c.post("p", fmt.Sprintf(request, "a"))
	up := c.upstream()
	ma, idA := up.hearRequest()
	b := c.post("p", fmt.Sprintf(request, "b"))
	mb, idB := up.hearRequest()
	if idA == idB {
		t.Fatalf("both requests went out as %s", idA)
	}
	for id, m := range map[string]*gateway.Message{idA: ma, idB: mb} {
		if got := string(splice.Get(m.Params, "_meta", "progressToken")); got != id {
			t.Errorf("progress token %s of request %s", got, id)
		}
	}
	if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":%s,"k":1.0}},"x":1}`, idA, idA); string(ma.Raw) != want {
		t.Errorf("upstream heard %s\nwant %s", ma.Raw, want)
	}
	up.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + idB + `,"progress":1.0}}`)
	b.expect(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":1.0}}`)
	up.say(`{"jsonrpc":"2.0","id":` + idB + `,"result":{"who":"b"},"y":1}`)
	b.expect(`{"jsonrpc":"2.0","id":1,"result":{"who":"b"},"y":1}`)
	up.say(`{"jsonrpc":"2.0","id":` + idA + `,"result":{"who":"a"}}`)
	a.expect(`{"jsonrpc":"2.0","id":1,"result":{"who":"a"}}`)
	if err := errors.Join(a.end(), b.end()); err != nil {
		t.Error(err)
	}
	for range 2 {
		if !s.delivered(t) {
			t.Error("an answer counts as undelivered")
		}
	}
}

func TestDo_keepsPrincipalsApart(t *testing.T) {
	c := gather(t, gateway.Options{})
	c.post("p", call("1", "t"))
	first := c.upstream()
	first.hear()
	c.post("q", call("1", "t"))
	second := c.upstream()
	second.hear()
}

func TestDo_subscription(t *testing.T) {
	c := gather(t, gateway.Options{})
	listen := c.post("p", `{"jsonrpc":"2.0","id":"sub","method":"subscriptions/listen","params":{"toolsListChanged":true}}`)
	up := c.upstream()
	_, id := up.hearRequest()
	other := c.post("p", `{"jsonrpc":"2.0","id":"sub","method":"subscriptions/listen","params":{}}`)
	_, otherID := up.hearRequest()
	note := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`
	up.say(fmt.Sprintf(note, id))
	listen.expect(fmt.Sprintf(note, `"sub"`))
	up.say(`{"jsonrpc":"2.0","id":` + otherID + `,"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + otherID + `}}}`)
	other.expect(`{"jsonrpc":"2.0","id":"sub","result":{"_meta":{"io.modelcontextprotocol/subscriptionId":"sub"}}}`)
	listen.hangUp()
	if err := listen.end(); !errors.Is(err, context.Canceled) {
		t.Errorf("Do = %v", err)
	}
	m := parse(t, up.hear())
	if m.Method != "notifications/cancelled" || string(splice.Get(m.Params, "requestId")) != id {
		t.Errorf("upstream heard %s", m.Raw)
	}
}

func TestDo_hangingUp(t *testing.T) {
	t.Run("cancels a call that may be cancelled", func(t *testing.T) {
		s := newSpy()
		c := gather(t, gateway.Options{Chain: newChain(t, s)})
		p := c.post("p", call("1", "read"))
		up := c.upstream()
		_, id := up.hearRequest()
		p.hangUp()
		m := parse(t, up.hear())
		if m.Method != "notifications/cancelled" || string(splice.Get(m.Params, "requestId")) != id {
			t.Errorf("upstream heard %s", m.Raw)
		}
		if a := s.settlement(t); a.Kind != chain.Lost {
			t.Errorf("settled %+v", a)
		}
		if err := p.end(); err == nil || s.delivered(t) {
			t.Errorf("Do = %v", err)
		}
	})
	t.Run("leaves a detached one alone", func(t *testing.T) {
		s := newSpy()
		s.detach = true
		c := gather(t, gateway.Options{Chain: newChain(t, s)})
		p := c.post("p", call("1", "write"))
		up := c.upstream()
		_, id := up.hearRequest()
		p.hangUp()
		if err := p.end(); err == nil {
			t.Errorf("Do = %v", err)
		}
		up.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`)
		if a := s.settlement(t); a.Kind != chain.Answered {
			t.Errorf("settled %+v", a)
		}
		if s.delivered(t) {
			t.Error("counts as delivered")
		}
	})
	t.Run("in the middle of an answer is no delivery", func(t *testing.T) {
		s := newSpy()
		c := gather(t, gateway.Options{Chain: newChain(t, s)})
		broken := errors.New("broken stream")
		done := make(chan error, 1)
		go func() {
			done <- c.gateway.Do(context.Background(), gateway.AgentInfo{}, parse(t, call("1", "t")), func(*gateway.Message) error { return broken })
		}()
		up := c.upstream()
		_, id := up.hearRequest()
		up.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`)
		if err := <-done; !errors.Is(err, broken) {
			t.Errorf("Do = %v", err)
		}
		if s.delivered(t) {
			t.Error("counts as delivered")
		}
	})
}

func TestDo_upstreamDies(t *testing.T) {
	c := gather(t, gateway.Options{})
	p := c.post("p", call("1", "t"))
	up := c.upstream()
	up.hear()
	up.hang()
	if _, code, _, reason := errorOf(t, <-p.sent); code != -32603 || reason != "upstream_lost" {
		t.Errorf("code %d, reason %s", code, reason)
	}
	p = c.post("p", call("2", "t"))
	up = c.upstream()
	_, id := up.hearRequest()
	up.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`)
	p.expect(`{"jsonrpc":"2.0","id":2,"result":{}}`)
}

func TestDo_upstreamAsks(t *testing.T) {
	c := gather(t, gateway.Options{})
	c.post("p", call("1", "t"))
	up := c.upstream()
	up.hear()
	up.say(`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}`)
	if id, code, _, _ := errorOf(t, up.hear()); id != `"s"` || code != -32601 {
		t.Errorf("answered under %s with %d", id, code)
	}
}

func TestDo_learnsTheUpstreamFirst(t *testing.T) {
	names := make(chan string, 8)
	c := gather(t, gateway.Options{Prime: true, Chain: newChain(t, newSpy()), Target: "x",
		Attributes: func(m *gateway.Message, p *gateway.Peer) map[string]json.RawMessage {
			if m.Method == "tools/call" {
				names <- p.Server + " " + p.Protocol
			}
			return nil
		},
	})
	meta := `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	c.post("p", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"mine":1,`+meta[1:]+`}}`)
	up := c.upstream()
	for _, x := range [][2]string{
		{"server/discover", `{"serverInfo":{"name":"other"}}`},
		{"tools/list", `{"tools":[]}`},
	} {
		m, id := up.hearRequest()
		if m.Method != x[0] || string(splice.Get(m.Params, "_meta")) != meta {
			t.Fatalf("upstream heard %s", m.Raw)
		}
		up.say(`{"jsonrpc":"2.0","id":` + id + `,"result":` + x[1] + `}`)
	}
	if m, _ := up.hearRequest(); m.Method != "tools/call" {
		t.Errorf("upstream heard %s", m.Raw)
	}
	if got := <-names; !strings.HasPrefix(got, "other-") || !strings.HasSuffix(got, " 2026-07-28") {
		t.Errorf("name and protocol %q", got)
	}
}

func TestGateway_Close(t *testing.T) {
	s := newSpy()
	s.detach = true
	c := gather(t, gateway.Options{Chain: newChain(t, s)})
	p := c.post("p", call("1", "t"))
	c.upstream().hear()
	err := c.gateway.Close(context.Background())
	if err == nil || !strings.Contains(err.Error(), "1 calls had not ended") {
		t.Errorf("Close = %v", err)
	}
	if a := s.settlement(t); a.Kind != chain.Lost {
		t.Errorf("settled %+v", a)
	}
	if err := p.end(); err != nil {
		t.Errorf("Do = %v", err)
	}
	if err := c.post("p", call("1", "t")).end(); err == nil {
		t.Error("Do after Close passed")
	}
}
