package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

// An answer that was written and never read has not arrived: the same call again is a retry.

func TestUnread_httpAgentBreaksOffWithTheAnswerInItsSocket(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn) error{
		"close": (*net.TCPConn).Close,
		"shutdown, then close": func(c *net.TCPConn) error {
			return errors.Join(c.CloseWrite(), c.CloseRead(), c.Close())
		},
		"reset": func(c *net.TCPConn) error {
			if err := c.SetLinger(0); err != nil {
				return err
			}
			return c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gateway := w.httpGateway()
			for i := range 10 {
				arguments := fmt.Sprintf(`{"account":"a%d","amount":1}`, i)
				w.callAndLeave(t, gateway, arguments, end)
				again := statelessCaller(t, gateway)("9", "charge", arguments, "")
				if !replayed(t, again) {
					t.Errorf("call %d was not answered from the record: %s", i, again.Raw)
				}
			}
			w.wantEffects("charge", 10)
		})
	}
}

// callAndLeave makes a call over HTTP, waits until its answer lies in the socket, and ends the connection
// without having read it.
func (w *world) callAndLeave(t *testing.T, gateway, arguments string, end func(*net.TCPConn) error) {
	t.Helper()
	u, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	body := mcptest.ToolCall("1", "charge", arguments, mcptest.MetaMembers)
	r, err := http.NewRequest(http.MethodPost, gateway, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"charge"},
	}
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("the answer to lie in the socket", func() bool { return peek(raw) > 100 })
	if err := end(conn.(*net.TCPConn)); err != nil {
		t.Fatal(err)
	}
}

// peek returns how many bytes lie in a socket, and leaves them there.
func peek(raw syscall.RawConn) (n int) {
	_ = raw.Control(func(fd uintptr) {
		n, _, _ = syscall.Recvfrom(int(fd), make([]byte, 4096), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return n
}

// The agent dies with the answer in its pipe.
func TestUnread_stdioAgentDies(t *testing.T) {
	w := newWorld(t)
	cmd := w.command(w.gatewayArgs()...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, child, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = child
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child.Close()
	fmt.Fprintln(stdin, mcptest.Request("0", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`))
	if _, err := bufio.NewReaderSize(out, 16).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(stdin, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintln(stdin, mcptest.ToolCall("1", "charge", charge10, ""))
	w.eventually("the effect to be settled and its answer written", func() bool {
		all := w.log("--tool", "charge")
		return len(all) == 1 && all[0].State == "committed" && all[0].Delivered
	})
	out.Close()
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the gateway ended with %v", err)
	}
	if m := w.agent().Call("2", "charge", charge10); !replayed(t, m) {
		t.Errorf("not answered from the record: %s", m.Raw)
	}
	w.wantEffects("charge", 1)
}

// The agent's time-out crosses the answer: it cancels what has been answered, and calls again.
func TestUnread_cancelCrossesTheAnswer(t *testing.T) {
	w := newWorld(t)
	agent := w.agent()
	agent.Call("1", "charge", charge10)
	agent.MustSend(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"timeout"}}`)
	if m := agent.Call("2", "charge", charge10); !replayed(t, m) {
		t.Errorf("not answered from the record: %s", m.Raw)
	}
	w.wantEffects("charge", 1)
}
