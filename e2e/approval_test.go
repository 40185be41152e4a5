package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
	"github.com/undolog/undolog/internal/splice"
)

// askAll is a policy under which a person is asked about every write. fields are more of the rule.
func askAll(fields string) string {
	return "version: 1\ntools:\n  - {tool: \"get_*\", tier: read}\n  - {tool: \"*\", tier: irreversible" + fields + "}\n"
}

// pending are the ids of the calls that wait for people, oldest first.
func (w *world) pending(flags ...string) (ids []string) {
	w.t.Helper()
	for _, e := range w.log(flags...) {
		if e.State == "awaiting_approval" {
			ids = append([]string{e.ID}, ids...)
		}
	}
	return ids
}

// awaitPending waits until n calls wait for people.
func (w *world) awaitPending(n int, flags ...string) (ids []string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d pending calls", n), func() bool {
		ids = w.pending(flags...)
		return len(ids) == n
	})
	return ids
}

// wantPaid fails unless the answer is the tool's own.
func wantPaid(t testing.TB, m mcptest.Message) {
	t.Helper()
	if m.Error != nil || m.Result == nil {
		t.Errorf("the call did not run: %s", m.Raw)
	}
}

// A held call goes when it is approved, and another asks anew.
func TestApproval_heldCallRuns(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	agent := w.agent()
	agent.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	id := w.awaitPending(1)[0]
	w.wantEffects("charge", 0)
	w.ran("approve", id)
	wantPaid(t, agent.Response("1"))
	w.wantEffects("charge", 1)
	agent.MustSend(mcptest.ToolCall("2", "charge", charge10, ""))
	w.awaitPending(1)
	w.wantEffects("charge", 1)
}

// Two callers wait for one request; one approval is one effect.
func TestApproval_twoWaitersOneEffect(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	a, b := w.agent("--name", "bank"), w.agent("--name", "bank")
	for _, agent := range []*mcptest.Stdio{a, b} {
		agent.MustSend(mcptest.ToolCall("1", "charge", charge10, `"progressToken":"waits"`))
	}
	for _, agent := range []*mcptest.Stdio{a, b} {
		agent.Incoming("notifications/progress") // it is held: one that came after the effect would be a repeat, which asks anew
	}
	w.ran("approve", w.awaitPending(1)[0])
	first, second := a.Response("1"), b.Response("1")
	wantPaid(t, first)
	wantPaid(t, second)
	w.wantEffects("charge", 1)
	if replayed(t, first) == replayed(t, second) {
		t.Errorf("one of the answers is the other's:\n%s\n%s", first.Raw, second.Raw)
	}
}

// What is pending survives the death of every process, and each approval is used once.
func TestApproval_pendingSurvivesKills(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	charge := func(n int) string { return fmt.Sprintf(`{"account":"alice","amount":%d}`, n) }
	agent := w.agent()
	for n := range 3 {
		agent.MustSend(mcptest.ToolCall(fmt.Sprint(n), "charge", charge(n+1), ""))
	}
	ids := w.awaitPending(3)
	agent.Kill()

	agent = w.agent("--hold", "0")
	for n := range 3 {
		wantOutcome(t, agent.Call(fmt.Sprint(n), "charge", charge(n+1)), "approval_required")
	}
	if again := w.pending(); strings.Join(again, " ") != strings.Join(ids, " ") {
		t.Errorf("pending are %v, were %v", again, ids)
	}
	for _, id := range ids {
		w.ran("approve", id)
	}
	agent.Kill()

	agent = w.agent("--hold", "0")
	for n := range 3 {
		wantPaid(t, agent.Call(fmt.Sprint(n), "charge", charge(n+1)))
	}
	w.wantEffects("charge", 3)
	for n := range 3 {
		wantOutcome(t, agent.Call(fmt.Sprint(10+n), "charge", charge(n+1)), "approval_required")
	}
	w.wantEffects("charge", 3)
}

// The gateway that asked is gone; another one on the log runs the call.
func TestApproval_anotherGatewayGoesOn(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	first := w.agent("--name", "bank")
	first.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	id := w.awaitPending(1)[0]
	first.Kill()
	second := w.agent("--name", "bank")
	second.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	w.ran("approve", id)
	wantPaid(t, second.Response("1"))
	w.wantEffects("charge", 1)
}

// An approval is for one call, whatever is like it.
func TestApproval_isForNothingElse(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	flags := []string{"--hold", "0", "--name", "bank"}
	agent := w.agent(flags...)
	wantOutcome(t, agent.Call("1", "charge", charge10), "approval_required")
	w.ran("approve", w.pending()[0])
	others := map[string]func() mcptest.Message{
		"another amount": func() mcptest.Message { return agent.Call("2", "charge", `{"account":"alice","amount":11}`) },
		"another tool":   func() mcptest.Message { return agent.Call("3", "set_limit", `{"account":"alice","limit":10}`) },
		"another server": func() mcptest.Message { return w.agent("--hold", "0", "--name", "other").Call("1", "charge", charge10) },
		"another principal": func() mcptest.Message {
			return w.agent(append(flags, "--principal", "agent:eve")...).Call("1", "charge", charge10)
		},
		"another tenant": func() mcptest.Message {
			return w.agent(append(flags, "--tenant", "other")...).Call("1", "charge", charge10)
		},
	}
	for name, call := range others {
		t.Run(name, func(t *testing.T) { wantOutcome(t, call(), "approval_required") })
	}
	w.wantEffects("charge", 0)
	wantPaid(t, agent.Call("99", "charge", charge10)) // another id alone
	w.wantEffects("charge", 1)
}

// Several pending calls of one session are approved in any order.
func TestApproval_anyOrder(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	agent := w.agent()
	agent.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	w.awaitPending(1)
	agent.MustSend(mcptest.ToolCall("2", "append_note", `{"text":"paid"}`, ""))
	ids := w.awaitPending(2)
	w.ran("approve", ids[1])
	wantPaid(t, agent.Response("2"))
	w.wantEffects("charge", 0)
	w.ran("approve", ids[0])
	wantPaid(t, agent.Response("1"))
	w.wantEffects("charge", 1)
}

// Another tenant that uses the same run handle has a request of its own.
func TestApproval_ofAnotherTenantsRun(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	tokens := filepath.Join(w.dir, "tokens.yaml")
	writeFile(t, tokens, "- {token: aaaaaaaaaaaaaaaaaaaa, tenant: acme, principal: \"agent:bot\"}\n- {token: bbbbbbbbbbbbbbbbbbbb, tenant: bolt, principal: \"agent:bot\"}\n")
	url := w.httpGateway("--hold", "0", "--tokens", tokens)
	call := func(token, id string) mcptest.Message {
		c := &mcptest.HTTP{URL: url, Version: "2026-07-28", Header: http.Header{
			"Authorization": {"Bearer " + strings.Repeat(token, 20)}, "X-Undolog-Session-Id": {"0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42"}}}
		m, err := c.Call(t.Context(), id, "charge", charge10)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	wantOutcome(t, call("a", "1"), "approval_required")
	wantOutcome(t, call("b", "2"), "approval_required")
	w.ran("approve", w.pending("--tenant", "acme")[0], "--tenant", "acme")
	wantOutcome(t, call("b", "3"), "approval_required")
	w.wantEffects("charge", 0)
	wantPaid(t, call("a", "4"))
	w.wantEffects("charge", 1)
}

// A caller that has gone does not get its call made behind its back.
func TestApproval_nothingRunsForACallerThatHasGone(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	agent := w.agent("--name", "bank")
	agent.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	id := w.awaitPending(1)[0]
	agent.MustSend(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"time-out"}}`)
	wantPaid(t, agent.Call("2", "get_charge", `{"charge":"ch_1"}`))
	w.ran("approve", id)
	wantPaid(t, agent.Call("3", "get_charge", `{"charge":"ch_1"}`))
	w.wantEffects("charge", 0)
	wantPaid(t, agent.Call("4", "charge", charge10))
	w.wantEffects("charge", 1)
}

// Whoever waits when the gateway is told to end gets an answer.
func TestApproval_waitersAreAnsweredWhenTheGatewayEnds(t *testing.T) {
	for name, connect := range generations {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).withPolicy(askAll(""))
			cmd := w.command(w.gatewayArgs("--http", "127.0.0.1:0")...)
			client := connect(t, w.serveHTTP(cmd))
			type answer struct {
				m   mcptest.Message
				err error
			}
			answers := make(chan answer, 1)
			go func() {
				m, err := client.Call(context.Background(), "1", "charge", charge10)
				answers <- answer{m, err}
			}()
			w.awaitPending(1)
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			a := <-answers
			if a.err != nil {
				t.Fatal(a.err)
			}
			wantOutcome(t, a.m, "approval_required")
			w.wantEffects("charge", 0)
		})
	}
}

// modern is a client of 2026-07-28 that can show its user a page, unless told otherwise.
type modern struct {
	t    *testing.T
	http *mcptest.HTTP
	can  string // its elicitation capability
	id   int
}

// call makes a charge of 10, with more members in its params.
func (c *modern) call(more string) mcptest.Message {
	c.t.Helper()
	c.id++
	meta := strings.Replace(mcptest.MetaMembers, `"elicitation":{"form":{}}`, c.can, 1)
	params := fmt.Sprintf(`{"name":"charge","arguments":%s,"_meta":{%s}%s}`, charge10, meta, more)
	id := fmt.Sprint(c.id)
	m, err := c.http.Do(c.t.Context(), id, mcptest.Request(id, "tools/call", params))
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// state is the requestState of an answer that asks, after a look at what it asks.
func (c *modern) state(m mcptest.Message) string {
	c.t.Helper()
	var asks struct {
		ResultType    string `json:"resultType"`
		RequestState  string `json:"requestState"`
		InputRequests map[string]struct {
			Method string
			Params struct{ Mode, URL, Message string }
		} `json:"inputRequests"`
	}
	if m.Result == nil || json.Unmarshal(m.Result, &asks) != nil || asks.ResultType != "input_required" || asks.RequestState == "" || len(asks.InputRequests) != 1 {
		c.t.Fatalf("want one question: %s", m.Raw)
	}
	q := asks.InputRequests["approval"]
	if q.Method != "elicitation/create" || q.Params.Mode != "url" || !strings.HasPrefix(q.Params.URL, "https://approve.test/a/") || !strings.Contains(q.Params.Message, "charge") {
		c.t.Errorf("the question is %+v", q)
	}
	return asks.RequestState
}

func reply(action, state string) string {
	return fmt.Sprintf(`,"inputResponses":{"approval":{"action":%q}},"requestState":%q`, action, state)
}

// The question comes inside the answer, is held when it comes back, and its state is good for nobody else.
func TestApproval_insideTheAnswer(t *testing.T) {
	start := func(t *testing.T, flags ...string) (*world, *modern) {
		w := newWorld(t).withPolicy(askAll(""))
		url := w.httpGateway(append([]string{"--approval-url", "https://approve.test/a"}, flags...)...)
		return w, &modern{t: t, http: &mcptest.HTTP{URL: url, Version: "2026-07-28"}, can: `"elicitation":{"url":{}}`}
	}
	t.Run("asked, asked once more, approved", func(t *testing.T) {
		w, c := start(t, "--hold", "0")
		state := c.state(c.call(""))
		w.wantEffects("charge", 0)
		if again := c.state(c.call(reply("accept", state))); again != state {
			t.Errorf("the second question has the state %s, want %s", again, state)
		}
		if other := c.state(c.call("")); other != state {
			t.Errorf("the same call without a state has %s, want %s", other, state)
		}
		ids := w.pending()
		if len(ids) != 1 {
			t.Fatalf("pending %v", ids)
		}
		w.ran("approve", ids[0])
		wantPaid(t, c.call(reply("accept", state)))
		w.wantEffects("charge", 1)
	})
	t.Run("the decision wakes who came back", func(t *testing.T) {
		w, c := start(t)
		state := c.state(c.call(""))
		done := make(chan mcptest.Message, 1)
		go func() { done <- c.call(reply("accept", state)) }()
		w.ran("approve", w.awaitPending(1)[0])
		wantPaid(t, <-done)
		w.wantEffects("charge", 1)
	})
	for _, action := range []string{"decline", "cancel"} {
		t.Run(action, func(t *testing.T) {
			w, c := start(t)
			state := c.state(c.call(""))
			w.ran("approve", w.pending()[0])
			e, err := c.call(reply(action, state)).Err()
			if err != nil || string(splice.Get(e.Data, "reason")) != `"declined"` {
				t.Errorf("answered %+v, %v", e, err)
			}
			w.wantEffects("charge", 0)
		})
	}
	t.Run("a state of nobody", func(t *testing.T) {
		w, c := start(t, "--hold", "0")
		state := c.state(c.call(""))
		wantOutcome(t, c.call(reply("accept", state[:len(state)-4])), "conflict")
		wantOutcome(t, c.call(reply("accept", "undolog-wait1.x")), "conflict")
		w.wantEffects("charge", 0)
	})
	t.Run("denied", func(t *testing.T) {
		w, c := start(t)
		state := c.state(c.call(""))
		w.ran("deny", w.pending()[0], "--reason", "not today")
		wantOutcome(t, c.call(reply("accept", state)), "denied")
	})
	t.Run("a client that cannot ask", func(t *testing.T) {
		_, c := start(t, "--hold", "0")
		c.can = ""
		wantOutcome(t, c.call(""), "approval_required")
	})
	t.Run("a client that cannot ask, where that is an error", func(t *testing.T) {
		_, c := start(t, "--no-elicitation", "error")
		c.can = ""
		e, err := c.call("").Err()
		if err != nil || e.Code != -32021 || string(splice.Get(e.Data, "requiredCapabilities")) != `{"elicitation":{"url":{}}}` {
			t.Errorf("answered %+v, %v", e, err)
		}
	})
}

// Replicas on one database: one asks, another goes on, and a decision wakes whoever waits.
func TestApproval_onPostgres(t *testing.T) {
	w := newWorld(t).withPolicy(askAll("")).onPostgres()
	flags := []string{"--approval-url", "https://approve.test/a", "--name", "bank"}
	asked := &modern{t: t, http: &mcptest.HTTP{URL: w.httpGateway(flags...), Version: "2026-07-28"}, can: `"elicitation":{"url":{}}`}
	other := &modern{t: t, http: &mcptest.HTTP{URL: w.httpGateway(flags...), Version: "2026-07-28"}, can: asked.can}
	state := asked.state(asked.call(""))
	done := make(chan mcptest.Message, 1)
	go func() { done <- other.call(reply("accept", state)) }()
	w.ran("approve", w.awaitPending(1)[0])
	wantPaid(t, <-done)
	w.wantEffects("charge", 1)
}

// A policy that is read again and denies ends what is held.
func TestApproval_aPolicyThatDeniesEndsWhatIsHeld(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	agent := w.agent()
	agent.MustSend(mcptest.ToolCall("1", "charge", charge10, ""))
	w.awaitPending(1)
	writeFile(t, w.policy, askAll(`, deny: "payments are closed"`))
	m := agent.Response("1")
	wantOutcome(t, m, "void")
	if _, reason := outcomeOf(t, m); !strings.Contains(reason, "payments are closed") {
		t.Errorf("the reason is %s", reason)
	}
	wantOutcome(t, agent.Call("2", "charge", charge10), "denied")
	w.wantEffects("charge", 0)
}

// A standing grant outlives every process.
func TestApproval_aStandingGrantPersists(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	agent := w.agent("--hold", "0", "--name", "bank")
	wantOutcome(t, agent.Call("1", "charge", charge10), "approval_required")
	w.ran("grant", "give", "--server", "bank", "--tool", "charge", "--where", "args.amount <= 10.0", "--reason", "small change")
	agent.Kill()
	agent = w.agent("--hold", "0", "--name", "bank")
	wantPaid(t, agent.Call("1", "charge", charge10))
	wantOutcome(t, agent.Call("2", "charge", `{"account":"alice","amount":11}`), "approval_required")
	w.wantEffects("charge", 1)
}

// A remote engine gets a reason, and neither a question nor a task.
func TestApproval_behindARemoteEngine(t *testing.T) {
	w := newWorld(t).withPolicy(askAll(""))
	cmd := w.command("serve", "--http", "127.0.0.1:0", "--policy", w.policy)
	c := &mcptest.HTTP{URL: w.serveHTTP(cmd)}
	c.Initialize(t, protocol)
	payload := fmt.Sprintf(`{"name":"charge","arguments":%s}`, charge10)
	m, err := c.Do(t.Context(), "1", mcptest.Request("1", "interceptor/invoke", fmt.Sprintf(
		`{"name":"undolog/effect","event":"tools/call","phase":"request","payload":%s,"context":{"principal":{"type":"user","id":"alice"}}}`, payload)))
	if err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, m, "approval_required")
	if strings.Contains(string(m.Raw), "input_required") || strings.Contains(string(m.Raw), "dev.undolog/pause") {
		t.Errorf("the engine is told %s", m.Raw)
	}
}
