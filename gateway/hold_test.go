package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// people are an interceptor that lets tools be called once somebody has said so.
type people struct {
	mu      sync.Mutex
	pause   chain.Pause
	verdict string // approved, denied; empty: nobody has said anything
	decided chan struct{}
	waits   chan struct{} // a call is held
	ends    chan struct{} // and is no longer, undecided
	tries   []string      // the params of each, and its handle
	told    []chain.Decision
	refuse  error // what Decide says
}

func newPeople() *people {
	return &people{
		pause:   chain.Pause{ID: "r-7", URL: "https://approve.test/r-7", Text: "Pay 9 EUR?", WaitMs: 60_000, Handle: "h.7"},
		decided: make(chan struct{}), waits: make(chan struct{}, 64), ends: make(chan struct{}, 64),
	}
}

func (p *people) decide(verdict string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.verdict = verdict
	close(p.decided)
}

func (p *people) judge(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries = append(p.tries, string(in.Payload)+string(in.Context.Extra[chain.HandleKey]))
	switch p.verdict {
	case "approved":
		return &interceptors.Change{}, nil
	case "denied":
		return nil, &interceptors.BlockError{Message: "denied"}
	}
	pause, err := json.Marshal(p.pause)
	if err != nil {
		return nil, err
	}
	return nil, &interceptors.BlockError{Message: "waiting", Data: fmt.Appendf(nil, `{"why":"policy","%s":%s}`, chain.PauseKey, pause)}
}

func (p *people) await(ctx context.Context, _ *chain.Exchange, _ *chain.Pause) error {
	p.waits <- struct{}{}
	select {
	case <-p.decided:
		return nil
	case <-ctx.Done():
		p.ends <- struct{}{}
		return ctx.Err()
	}
}

func (p *people) hear(_ context.Context, _ *chain.Exchange, _ *chain.Pause, d *chain.Decision) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		return p.refuse
	}
	p.told = append(p.told, *d)
	p.verdict = "denied"
	if d.Approve {
		p.verdict = "approved"
	}
	return nil
}

func (p *people) allTries() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.tries...)
}

// held waits until a call is held.
func (p *people) held(t *testing.T) { t.Helper(); await(t, p.waits, "a call to be held") }

// over waits until a call is held no more without a decision.
func (p *people) over(t *testing.T) { t.Helper(); await(t, p.ends, "a call to be held no more") }

func (p *people) chain(t *testing.T) *chain.Chain {
	t.Helper()
	c, err := chain.New(&chain.Options{Observer: chain.Observer{Await: p.await, Decide: p.hear}})
	if err != nil {
		t.Fatal(err)
	}
	server := interceptors.NewServer(nil)
	err = server.Add(&interceptors.Mutator{
		Descriptor: interceptors.Descriptor{Name: "people", Type: interceptors.TypeMutation,
			Hooks: []interceptors.Hook{{Events: []string{"tools/call"}, Phase: interceptors.PhaseRequest}}},
		Mutate: p.judge,
	})
	if err == nil {
		err = c.Use(chain.Local("people", server), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const waitingError = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"waiting","data":{"why":"policy"}}}`

// shakeHandsAs does the handshake of a client with these capabilities.
func (r *relay) shakeHandsAs(capabilities string) *peer {
	r.t.Helper()
	up := r.upstream()
	r.agent.say(strings.Replace(helloLine, `{"sampling":{}}`, capabilities, 1))
	up.hear()
	up.say(helloAnswer)
	r.agent.hear()
	r.agent.say(readyLine)
	up.expect(readyLine)
	return up
}

// wantNothingSent checks that the upstream hears of a ping before it hears of any call.
func (r *relay) wantNothingSent(up *peer) {
	r.t.Helper()
	const ping = `{"jsonrpc":"2.0","id":"after","method":"ping"}`
	r.agent.say(ping)
	up.expect(ping)
}

func TestHold_ACallGoesOnceItIsApproved(t *testing.T) {
	p := newPeople()
	r := start(t, gateway.Options{Chain: p.chain(t)})
	up := r.shakeHands()
	r.agent.say(call("1", "pay"))
	p.held(t)
	r.agent.say(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`) // others do not wait behind it
	up.hear()
	p.decide("approved")
	up.expect(call("1", "pay"))
	up.say(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	r.agent.expect(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	want := []string{`{"name":"pay","arguments":{}}`, `{"name":"pay","arguments":{}}"h.7"`}
	if diff := cmp.Diff(want, p.allTries()); diff != "" {
		t.Errorf("tries (-want +got)\n%s", diff)
	}
}

func TestHold_ADenialIsToldAtOnce(t *testing.T) {
	p := newPeople()
	r := start(t, gateway.Options{Chain: p.chain(t)})
	r.shakeHands()
	r.agent.say(call("1", "pay"))
	p.held(t)
	p.decide("denied")
	r.agent.expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"denied"}}`)
}

func TestHold_Ends(t *testing.T) {
	t.Run("when its time is over", func(t *testing.T) {
		p := newPeople()
		r := start(t, gateway.Options{Chain: p.chain(t), Hold: 20 * time.Millisecond})
		up := r.shakeHands()
		r.agent.say(call("1", "pay"))
		r.agent.expect(waitingError)
		p.decide("approved")
		r.wantNothingSent(up)
	})
	t.Run("before it begins where nothing is held", func(t *testing.T) {
		p := newPeople()
		r := start(t, gateway.Options{Chain: p.chain(t), Hold: -1})
		r.shakeHandsAs(`{"elicitation":{"url":{}}}`)
		r.agent.say(call("1", "pay"))
		r.agent.expect(waitingError)
	})
	t.Run("before it begins where as many are held as may be, until one is not any more", func(t *testing.T) {
		p := newPeople()
		r := start(t, gateway.Options{Chain: p.chain(t), MaxHeld: 1, Hold: 3 * time.Second})
		r.shakeHands()
		r.agent.say(call("2", "pay"))
		p.held(t)
		r.agent.say(call("1", "pay"))
		r.agent.expect(waitingError)
		r.agent.expect(strings.Replace(waitingError, `"id":1`, `"id":2`, 1))
		r.agent.say(call("3", "pay"))
		p.held(t)
	})
	t.Run("before it begins where it is not worth it", func(t *testing.T) {
		p := newPeople()
		p.pause.WaitMs = 0
		r := start(t, gateway.Options{Chain: p.chain(t)})
		r.shakeHands()
		r.agent.say(call("1", "pay"))
		r.agent.expect(waitingError)
	})
	t.Run("when the agent cancels, and nothing is sent or answered", func(t *testing.T) {
		p := newPeople()
		r := start(t, gateway.Options{Chain: p.chain(t)})
		up := r.shakeHands()
		r.agent.say(call("1", "pay"))
		p.held(t)
		r.agent.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		r.wantNothingSent(up)
		p.over(t)
		p.decide("approved")
		up.say(`{"jsonrpc":"2.0","id":"after","result":{}}`)
		r.agent.expect(`{"jsonrpc":"2.0","id":"after","result":{}}`)
		r.wantNothingSent(up)
		if n := len(p.allTries()); n != 1 {
			t.Errorf("tried %d times", n)
		}
	})
	t.Run("when the agent closes its end, with the reason", func(t *testing.T) {
		p := newPeople()
		r := start(t, gateway.Options{Chain: p.chain(t), Drain: time.Minute})
		r.shakeHands()
		r.agent.say(call("1", "pay"))
		p.held(t)
		r.agent.hang()
		r.agent.expect(waitingError)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
	t.Run("when the gateway is to end", func(t *testing.T) {
		p := newPeople()
		r := start(t, gateway.Options{Chain: p.chain(t), Drain: time.Minute})
		r.shakeHands()
		r.agent.say(call("1", "pay"))
		p.held(t)
		r.stop()
		r.agent.expect(waitingError)
	})
}

func TestHold_TellsProgress(t *testing.T) {
	p := newPeople()
	r := start(t, gateway.Options{Chain: p.chain(t), HoldProgress: 10 * time.Millisecond})
	r.shakeHands()
	r.agent.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","_meta":{"progressToken":"tok"}}}`)
	for n := 1; n <= 2; n++ {
		r.agent.expect(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":0.00000%d,`+
			`"message":"waiting for a person's approval: https://approve.test/r-7"}}`, n))
	}
}

// question takes the elicitation that the agent hears next, and returns its id.
func (r *relay) question(want string) (id string) {
	r.t.Helper()
	m := parse(r.t, r.agent.hear())
	if m.Method != "elicitation/create" || string(m.Params) != want {
		r.t.Fatalf("agent heard %s\nwant a question %s", m.Raw, want)
	}
	return string(m.ID)
}

func (r *relay) reply(id, result string) {
	r.t.Helper()
	r.agent.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

const (
	urlQuestion  = `{"mode":"url","message":"Pay 9 EUR?","url":"https://approve.test/r-7","elicitationId":"r-7"}`
	formQuestion = `{"mode":"form","message":"Pay 9 EUR?","requestedSchema":{"type":"object","properties":{` +
		`"approve":{"type":"boolean","title":"Approve","description":"Yes lets the call be made once, with exactly these arguments"},` +
		`"reason":{"type":"string","title":"Reason","description":"Why; the agent is told it with a no"}},"required":["approve"]}}`
	declined = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"This call was not made: the user was asked to approve it, and declined to decide. ` +
		`Do not try to reach the same in another way or with other arguments. It can still be decided elsewhere; until then it is not made.","data":{"reason":"declined"}}}`
)

func TestHold_AsksByURL(t *testing.T) {
	ask := func(t *testing.T) (*people, *relay, *peer, string) {
		p := newPeople()
		r := start(t, gateway.Options{Chain: p.chain(t)})
		up := r.shakeHandsAs(`{"elicitation":{"form":{},"url":{}}}`)
		r.agent.say(call("1", "pay"))
		id := r.question(urlQuestion)
		p.held(t)
		return p, r, up, id
	}
	t.Run("to have opened the page is no approval; the decision is, and ends the question", func(t *testing.T) {
		p, r, up, id := ask(t)
		r.reply(id, `{"action":"accept"}`)
		r.wantNothingSent(up)
		p.decide("approved")
		r.agent.expect(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"r-7"}}`)
		up.expect(call("1", "pay"))
	})
	for _, action := range []string{"decline", "cancel"} {
		t.Run(action+" blocks", func(t *testing.T) {
			p, r, up, id := ask(t)
			r.reply(id, `{"action":"`+action+`"}`)
			r.agent.expect(declined)
			p.decide("approved")
			r.wantNothingSent(up)
		})
	}
	t.Run("a question that is still open is taken back", func(t *testing.T) {
		p, r, up, id := ask(t)
		p.decide("approved")
		r.agent.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"no longer asked"}}`)
		r.agent.expect(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"r-7"}}`)
		up.expect(call("1", "pay"))
	})
	t.Run("a client that cannot after all is held like any other", func(t *testing.T) {
		p, r, up, id := ask(t)
		r.agent.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"what?"}}`, id))
		r.wantNothingSent(up)
		p.decide("approved")
		r.agent.hear() // the question is complete
		up.expect(call("1", "pay"))
	})
	t.Run("an upstream that goes does not take the question along", func(t *testing.T) {
		p, r, up, id := ask(t)
		up.hang()
		r.reply(id, `{"action":"decline"}`)
		r.agent.expect(declined)
		p.decide("approved")
	})
}

func TestHold_AsksByForm(t *testing.T) {
	ask := func(t *testing.T, capabilities string) (*people, *relay, *peer, string) {
		p := newPeople()
		p.pause.Host = true
		r := start(t, gateway.Options{Chain: p.chain(t)})
		up := r.shakeHandsAs(capabilities)
		r.agent.say(call("1", "pay"))
		return p, r, up, r.question(formQuestion)
	}
	t.Run("a yes lets the call go", func(t *testing.T) {
		p, r, up, id := ask(t, `{"elicitation":{}}`)
		r.reply(id, `{"action":"accept","content":{"approve":true,"reason":"it is right"}}`)
		up.expect(call("1", "pay"))
		if diff := cmp.Diff([]chain.Decision{{Approve: true, Reason: "it is right"}}, p.told); diff != "" {
			t.Errorf("decided (-want +got)\n%s", diff)
		}
	})
	t.Run("a no is a denial", func(t *testing.T) {
		p, r, _, id := ask(t, `{"elicitation":{"form":{},"url":{}}}`)
		r.reply(id, `{"action":"accept","content":{"approve":false}}`)
		r.agent.expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"denied"}}`)
		if diff := cmp.Diff([]chain.Decision{{}}, p.told); diff != "" {
			t.Errorf("decided (-want +got)\n%s", diff)
		}
	})
	t.Run("declined is not denied, and blocks", func(t *testing.T) {
		p, r, _, id := ask(t, `{"elicitation":{}}`)
		r.reply(id, `{"action":"decline"}`)
		r.agent.expect(declined)
		if len(p.told) > 0 {
			t.Errorf("decided %v", p.told)
		}
	})
	t.Run("a yes that is refused leaves the call held", func(t *testing.T) {
		p, r, up, id := ask(t, `{"elicitation":{}}`)
		p.mu.Lock()
		p.refuse = errors.New("not you")
		p.mu.Unlock()
		r.reply(id, `{"action":"accept","content":{"approve":true}}`)
		r.wantNothingSent(up)
		p.decide("approved")
		up.expect(call("1", "pay"))
	})
	t.Run("where the user may not decide there is no form", func(t *testing.T) {
		p := newPeople()
		r := start(t, gateway.Options{Chain: p.chain(t), Hold: 20 * time.Millisecond})
		r.shakeHandsAs(`{"elicitation":{}}`)
		r.agent.say(call("1", "pay"))
		r.agent.expect(waitingError)
	})
}

// modernCall is a call of the generation that is asked inside answers. more are members of its params.
func modernCall(elicitation, more string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"n":1.0},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{` + elicitation + `}}` + more + `}}`
}

const (
	byURL         = `"elicitation":{"url":{}}`
	inputRequired = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"approval":{"method":"elicitation/create",` +
		`"params":{"mode":"url","message":"Pay 9 EUR?","url":"https://approve.test/r-7"}}},"requestState":"undolog-wait1.h.7"}}`
	accepted = `,"inputResponses":{"approval":{"action":"accept"}},"requestState":"undolog-wait1.h.7"`
)

func TestInputRequired(t *testing.T) {
	gatherPeople := func(t *testing.T, o gateway.Options) (*people, *crowd) {
		p := newPeople()
		o.Chain, o.Name = p.chain(t), "bank" // it is not asked for its name
		return p, gather(t, o)
	}
	t.Run("the question comes at once, and nothing is sent", func(t *testing.T) { // G1
		p, c := gatherPeople(t, gateway.Options{})
		c.post("a", modernCall(byURL, "")).expect(inputRequired)
		if n := len(p.allTries()); n != 1 {
			t.Errorf("tried %d times", n)
		}
	})
	t.Run("the answer is held, and is the same question once more when nobody decides", func(t *testing.T) { // G3
		_, c := gatherPeople(t, gateway.Options{Hold: 20 * time.Millisecond})
		c.post("a", modernCall(byURL, accepted)).expect(inputRequired)
	})
	t.Run("once it is approved the call that was asked about goes", func(t *testing.T) { // G2
		p, c := gatherPeople(t, gateway.Options{})
		c.post("a", modernCall(byURL, "")).expect(inputRequired)
		p.decide("approved")
		c.post("a", modernCall(byURL, accepted))
		m, _ := c.upstream().hearRequest()
		plain := parse(t, modernCall(byURL, ""))
		if diff := cmp.Diff(string(plain.Params), string(m.Params)); diff != "" {
			t.Errorf("the upstream hears (-want +got)\n%s", diff)
		}
		want := []string{string(plain.Params), string(plain.Params) + `"h.7"`}
		if diff := cmp.Diff(want, p.allTries()); diff != "" {
			t.Errorf("interceptors see (-want +got)\n%s", diff)
		}
	})
	t.Run("a decision wakes the held answer", func(t *testing.T) {
		p, c := gatherPeople(t, gateway.Options{})
		c.post("a", modernCall(byURL, accepted))
		p.held(t)
		p.decide("approved")
		c.upstream().hearRequest()
	})
	for _, action := range []string{"decline", "cancel"} {
		t.Run(action+" blocks, whatever was decided", func(t *testing.T) { // G7
			p, c := gatherPeople(t, gateway.Options{})
			p.decide("approved")
			c.post("a", modernCall(byURL, strings.Replace(accepted, "accept", action, 1))).expect(declined)
			if n := len(p.allTries()); n != 0 {
				t.Errorf("tried %d times", n)
			}
		})
	}
	t.Run("a form asks the host's user", func(t *testing.T) {
		p, c := gatherPeople(t, gateway.Options{})
		p.pause.Host = true
		c.post("a", modernCall(`"elicitation":{}`, "")).expect(strings.Replace(inputRequired,
			`{"mode":"url","message":"Pay 9 EUR?","url":"https://approve.test/r-7"}`, formQuestion, 1))
		c.post("a", modernCall(`"elicitation":{}`, strings.Replace(accepted, `"accept"`, `"accept","content":{"approve":true}`, 1)))
		c.upstream().hearRequest()
	})
	t.Run("a client that cannot be asked is held", func(t *testing.T) { // G8
		p, c := gatherPeople(t, gateway.Options{})
		c.post("a", modernCall("", ""))
		p.held(t)
		p.decide("approved")
		c.upstream().hearRequest()
	})
	t.Run("and gets the reason", func(t *testing.T) {
		_, c := gatherPeople(t, gateway.Options{Hold: -1})
		c.post("a", modernCall("", "")).expect(waitingError)
	})
	t.Run("or the protocol's error where that is wanted", func(t *testing.T) {
		_, c := gatherPeople(t, gateway.Options{RequireElicitation: true})
		c.post("a", modernCall("", "")).expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"waiting",` +
			`"data":{"why":"policy","requiredCapabilities":{"elicitation":{"url":{}}}}}}`)
	})
	t.Run("a round of the upstream's keeps its state", func(t *testing.T) {
		_, c := gatherPeople(t, gateway.Options{Hold: -1})
		c.post("a", modernCall(byURL, `,"requestState":"theirs"`)).expect(waitingError)
	})
	t.Run("other answers stay", func(t *testing.T) {
		p, c := gatherPeople(t, gateway.Options{})
		p.decide("approved")
		c.post("a", modernCall(byURL, strings.Replace(accepted, `{"approval"`, `{"other":{"x":1.0},"approval"`, 1)))
		m, _ := c.upstream().hearRequest()
		if got := string(splice.Get(m.Params, "inputResponses")); got != `{"other":{"x":1.0}}` || splice.Get(m.Params, "requestState") != nil {
			t.Errorf("the upstream hears %s", m.Params)
		}
	})
	t.Run("an agent that hangs up while it is held is not tried again", func(t *testing.T) {
		p, c := gatherPeople(t, gateway.Options{})
		posted := c.post("a", modernCall(byURL, accepted))
		p.held(t)
		posted.hangUp()
		if err := posted.end(); !errors.Is(err, context.Canceled) {
			t.Errorf("Do = %v", err)
		}
		p.decide("approved")
		if n := len(p.allTries()); n != 1 {
			t.Errorf("tried %d times", n)
		}
	})
	t.Run("what is held is answered when the gateway ends", func(t *testing.T) {
		p, c := gatherPeople(t, gateway.Options{})
		posted := c.post("a", modernCall("", ""))
		p.held(t)
		if err := c.gateway.Close(t.Context()); err != nil {
			t.Error(err)
		}
		posted.expect(waitingError)
	})
	t.Run("progress is the agent's own", func(t *testing.T) {
		_, c := gatherPeople(t, gateway.Options{})
		c.post("a", strings.Replace(modernCall("", ""), `"_meta":{`, `"_meta":{"progressToken":5,`, 1)).
			expect(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":0.000001,` +
				`"message":"waiting for a person's approval: https://approve.test/r-7"}}`)
	})
}

// In a session over HTTP a closed response is no cancellation, and still nobody takes the answer.
func TestHold_EndsWithTheResponseItBelongsTo(t *testing.T) {
	p := newPeople()
	f := newFrontOf(t, nil, gateway.Options{Chain: p.chain(t), Dial: scripted(func(m *gateway.Message, _ func(string)) {
		if m.Method == "tools/call" {
			t.Error("the call was sent")
		}
	})})
	client := f.agent(t, "2025-11-25")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := client.Do(ctx, "1", call("1", "pay"))
		done <- err
	}()
	p.held(t)
	cancel()
	if err := <-done; err == nil {
		t.Error("the agent has an answer")
	}
	p.over(t)
	p.decide("approved")
	f.close()
	if n := len(p.allTries()); n != 1 {
		t.Errorf("tried %d times", n)
	}
}
