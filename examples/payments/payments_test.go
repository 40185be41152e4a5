package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/examples/payments/ledger"
	"github.com/undolog/undolog/internal/mcptest"
)

func TestPayments(t *testing.T) {
	t.Run("amounts and receipts keep every digit", func(t *testing.T) {
		s := start(t)
		res := tool(t, s.Call(`1`, "charge", `{"account":"a","amount":1915883588174806058,"reference":"r&d"}`))
		want := `{"charge":"ch_1","account":"a","amount":1915883588174806058,"reference":"r&d","receipt":9007199254740993}`
		if diff := cmp.Diff(canonical(t, want), canonical(t, string(res.StructuredContent))); diff != "" {
			t.Errorf("result (-want +got)\n%s", diff)
		}
		if got := tool(t, s.Call(`2`, "get_charge", `{"charge":"ch_1"}`)); string(got.StructuredContent) != string(res.StructuredContent) {
			t.Errorf("get_charge answers %s, charge %s", got.StructuredContent, res.StructuredContent)
		}
		entries := s.entries(t)
		if len(entries) != 1 || string(entries[0].Arguments) != `{"account":"a","amount":1915883588174806058,"reference":"r&d"}` {
			t.Errorf("ledger: %+v", entries)
		}
	})
	t.Run("key and effect of the call are in the ledger", func(t *testing.T) {
		s := start(t)
		s.MustSend(mcptest.ToolCall(`1`, "toggle", `{}`, `"idempotencyKey":"k1","dev.undolog/effect":{"id":"e","attempt":2}`))
		s.Response(`1`)
		e := s.entries(t)[0]
		if e.Key != "k1" || canonical(t, string(e.Effect)) != canonical(t, `{"id":"e","attempt":2}`) {
			t.Errorf("key %q, effect %s", e.Key, e.Effect)
		}
	})
	t.Run("the switch flips each time", func(t *testing.T) {
		s := start(t)
		var got []string
		for i := range 3 {
			got = append(got, string(tool(t, s.Call(fmt.Sprint(i), "toggle", `{}`)).StructuredContent))
		}
		if diff := cmp.Diff([]string{`{"on":true}`, `{"on":false}`, `{"on":true}`}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
	t.Run("invalid parameters have no effect", func(t *testing.T) {
		s := start(t)
		for _, args := range []string{`{"account":"a"}`, `{"account":"a","amount":0}`, `{"account":1,"amount":1}`, `{"account":"a","amount":"1"}`} {
			if res := tool(t, s.Call(`1`, "charge", args)); !res.IsError || !strings.HasPrefix(res.Content[0].Text, "invalid parameters") {
				t.Errorf("%s: %+v", args, res)
			}
		}
		if n := len(s.entries(t)); n != 0 {
			t.Errorf("%d effects", n)
		}
	})
	t.Run("a key is honoured when asked for", func(t *testing.T) {
		s := start(t, "--honour-keys")
		for _, id := range []string{`1`, `2`} {
			s.MustSend(mcptest.ToolCall(id, "charge", `{"account":"a","amount":1}`, `"idempotencyKey":"k"`))
			if got := string(tool(t, s.Response(id)).StructuredContent); !strings.Contains(got, `"ch_1"`) {
				t.Errorf("answer %s: %s", id, got)
			}
		}
		if n := len(s.entries(t)); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
	t.Run("ask_refund asks the person before 2026-07-28", func(t *testing.T) {
		s := start(t)
		s.Call(`1`, "charge", `{"account":"a","amount":1}`)
		s.MustSend(mcptest.ToolCall(`2`, "ask_refund", `{"charge":"ch_1","amount":1}`, ""))
		asked := s.Incoming("elicitation/create")
		s.MustSend(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{}}}`, asked.ID))
		if got := string(tool(t, s.Response(`2`)).StructuredContent); !strings.Contains(got, `"re_1"`) {
			t.Errorf("answer: %s", got)
		}
	})
	t.Run("ask_refund wants another round on 2026-07-28", func(t *testing.T) {
		s := launch(t)
		params := func(more string) string {
			return `{"name":"ask_refund","arguments":{"charge":"ch_1","amount":1},"_meta":{` + mcptest.MetaMembers + `}` + more + `}`
		}
		s.MustSend(mcptest.ToolCall(`1`, "charge", `{"account":"a","amount":1}`, mcptest.MetaMembers))
		s.Response(`1`)
		s.MustSend(mcptest.Request(`2`, "tools/call", params("")))
		first := tool(t, s.Response(`2`))
		if first.ResultType != "input_required" || first.RequestState == "" {
			t.Fatalf("first round: %+v", first)
		}
		s.MustSend(mcptest.Request(`3`, "tools/call", params(
			`,"inputResponses":{"confirm":{"action":"accept","content":{}}},"requestState":"`+first.RequestState+`"`)))
		if got := string(tool(t, s.Response(`3`)).StructuredContent); !strings.Contains(got, `"re_1"`) {
			t.Errorf("second round: %s", got)
		}
	})
}

func TestFaults(t *testing.T) {
	charge := `{"account":"a","amount":7}`
	t.Run("killed after the effect, once", func(t *testing.T) {
		s := start(t)
		s.fault(t, faults.Set{"charge": {After: faults.Kill, Times: 1}})
		s.MustSend(mcptest.ToolCall(`1`, "charge", charge, ""))
		if status := s.Wait(); status != -1 {
			t.Errorf("exit status %d", status)
		}
		next := s.again(t)
		tool(t, next.Call(`1`, "charge", charge))
		if n := len(s.entries(t)); n != 2 {
			t.Errorf("%d effects, want 2", n)
		}
	})
	t.Run("never answered, and other calls are", func(t *testing.T) {
		s := start(t)
		s.fault(t, faults.Set{"charge": {After: faults.Drop, Times: 1}})
		s.MustSend(mcptest.ToolCall(`1`, "charge", charge, ""))
		tool(t, s.Call(`2`, "toggle", `{}`))
		s.CloseStdin()
		if status := s.Wait(); status != 0 {
			t.Errorf("exit status %d", status)
		}
		_, err := s.Await(t.Context(), func(m mcptest.Message) bool { return m.IsResponse(`1`) && m.Result != nil })
		if !errors.Is(err, io.EOF) {
			t.Errorf("the dropped call was answered: %v", err)
		}
	})
	t.Run("held before the effect until a file is there", func(t *testing.T) {
		s := start(t)
		gate := filepath.Join(t.TempDir(), "gate")
		s.fault(t, faults.Set{"charge": {WaitBefore: gate}})
		s.MustSend(mcptest.ToolCall(`1`, "charge", charge, ""))
		tool(t, s.Call(`2`, "append_note", `{"text":"x"}`))
		if n := len(ledger.Of(s.entries(t), "charge")); n != 0 {
			t.Errorf("%d charges before the gate opened", n)
		}
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		tool(t, s.Response(`1`))
	})
	t.Run("errors before and after", func(t *testing.T) {
		for _, c := range []struct {
			name    string
			rule    faults.Rule
			effects int
		}{
			{"tool error before", faults.Rule{Before: faults.ToolError}, 0},
			{"tool error after", faults.Rule{After: faults.ToolError}, 1},
			{"JSON-RPC error after", faults.Rule{After: faults.RPCError}, 1},
		} {
			s := start(t)
			s.fault(t, faults.Set{"charge": c.rule})
			m := s.Call(`1`, "charge", charge)
			if res, err := m.Tool(); err == nil && !res.IsError || m.Error != nil && !strings.Contains(string(m.Error), "9007199254740993") {
				t.Errorf("%s: answered %s", c.name, m.Raw)
			}
			if n := len(s.entries(t)); n != c.effects {
				t.Errorf("%s: %d effects, want %d", c.name, n, c.effects)
			}
		}
	})
	t.Run("wrong types and a huge result", func(t *testing.T) {
		s := start(t)
		s.fault(t, faults.Set{"charge": {WrongTypes: true, ResultBytes: 3 << 20}})
		res := tool(t, s.Call(`1`, "charge", charge))
		if got := string(res.StructuredContent); !strings.Contains(got, `"amount":"7"`) || !strings.Contains(got, `9007199254740993.0e0`) {
			t.Errorf("structured: %s", got)
		}
		if n := len(res.Content[1].Text); n != 3<<20 {
			t.Errorf("%d bytes", n)
		}
	})
}

func TestHTTP(t *testing.T) {
	dir := t.TempDir()
	url := mcptest.StartHTTP(t, exec.Command(mcptest.Build(t, "./examples/payments"),
		"--ledger", filepath.Join(dir, "ledger"), "--http", "127.0.0.1:0"))
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			client := &mcptest.HTTP{URL: url, Version: version}
			if version < "2026-07-28" {
				client.Initialize(t, version)
			}
			m, err := client.Call(t.Context(), `"x"`, "charge", `{"account":"a","amount":9007199254740993}`)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(tool(t, m).StructuredContent); !strings.Contains(got, `"amount":9007199254740993`) {
				t.Errorf("answer: %s", got)
			}
		})
	}
}

// server is a payments process and the files that it works on.
type server struct {
	*mcptest.Stdio
	ledger string
	args   []string
}

// launch starts a server on a new ledger, start opens a session with it too.
func launch(t *testing.T, flags ...string) *server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger")
	args := append([]string{"--ledger", path}, flags...)
	return &server{mcptest.Start(t, mcptest.Build(t, "./examples/payments"), args...), path, args}
}

func start(t *testing.T, flags ...string) *server {
	t.Helper()
	s := launch(t, flags...)
	s.Initialize("2025-11-25")
	return s
}

// again starts another process on the same files.
func (s *server) again(t *testing.T) *mcptest.Stdio {
	t.Helper()
	next := mcptest.Start(t, mcptest.Build(t, "./examples/payments"), s.args...)
	next.Initialize("2025-11-25")
	return next
}

func (s *server) fault(t *testing.T, set faults.Set) {
	t.Helper()
	if err := faults.Write(s.ledger+".faults", set); err != nil {
		t.Fatal(err)
	}
}

func (s *server) entries(t *testing.T) []ledger.Entry {
	t.Helper()
	entries, err := ledger.Read(s.ledger)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func tool(t *testing.T, m mcptest.Message) mcptest.ToolResult {
	t.Helper()
	res, err := m.Tool()
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// canonical sorts members and keeps the spelling of numbers.
func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("decode %s: %v", text, err)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
