package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// patience bounds every wait of the demo.
const patience = time.Minute

// agent speaks MCP to a server that it has started, as an agent does with the command in its MCP
// configuration. Here that command is "undolog gateway -- payments …".
type agent struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	inbox  chan message // closed when the server says no more
}

// message is one JSON-RPC message of the server.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

func startAgent(server []string, messages io.Writer) (*agent, error) {
	if len(server) == 0 {
		return nil, errors.New("start agent: no server is named")
	}
	cmd := exec.Command(server[0], server[1:]...)
	cmd.Stderr = messages
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe standard input: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe standard output: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	a := &agent{cmd: cmd, stdin: stdin, stdout: stdout, inbox: make(chan message, 64)}
	go a.read()
	return a, nil
}

func (a *agent) read() {
	defer close(a.inbox)
	lines := bufio.NewScanner(a.stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) == nil && m.Method == "" { // notifications are left out
			a.inbox <- m
		}
	}
}

func (a *agent) send(line string) error {
	if _, err := io.WriteString(a.stdin, line+"\n"); err != nil {
		return fmt.Errorf("write to server: %w", err)
	}
	return nil
}

// answer waits for the next answer. The demo has one call under way on a connection.
func (a *agent) answer() (message, error) {
	select {
	case m, ok := <-a.inbox:
		if !ok {
			return m, errors.New("await answer: the connection is closed")
		}
		return m, nil
	case <-time.After(patience):
		return message{}, fmt.Errorf("await answer: none in %s", patience)
	}
}

// silent reports whether no answer came for a while.
func (a *agent) silent(while time.Duration) bool {
	select {
	case <-a.inbox:
		return false
	case <-time.After(while):
		return true
	}
}

func (a *agent) initialize() error {
	err := a.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"demo","version":"1"}}}`)
	if err != nil {
		return err
	}
	m, err := a.answer()
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if m.Error != nil {
		return fmt.Errorf("initialize: %s", m.Error.Message)
	}
	return a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// charge is the one call of the demo. It carries no idempotency key: most agents send none.
func charge(id int, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"charge","arguments":%s}}`, id, arguments)
}

func (a *agent) call(id int, arguments string) (message, error) {
	if err := a.send(charge(id, arguments)); err != nil {
		return message{}, err
	}
	return a.answer()
}

// leave ends the connection as an agent does that is done, and waits for the server.
func (a *agent) leave() error {
	if err := a.stdin.Close(); err != nil {
		return fmt.Errorf("close connection: %w", err)
	}
	return a.wait()
}

// breakOff cuts the connection in both directions: no answer can arrive any more.
func (a *agent) breakOff() error {
	return errors.Join(a.stdin.Close(), a.stdout.Close())
}

// kill ends the server with SIGKILL: it can neither write nor say anything any more.
func (a *agent) kill() error {
	if err := a.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill server: %w", err)
	}
	_ = a.cmd.Wait() // "signal: killed"
	return nil
}

func (a *agent) wait() error {
	if err := a.ended(); err != nil {
		return err
	}
	if !a.cmd.ProcessState.Success() {
		return fmt.Errorf("server ended: %s", a.cmd.ProcessState)
	}
	return nil
}

// ended waits for the server, however it ends: one that has been cut off may fail on writing its answer.
func (a *agent) ended() error {
	done := make(chan struct{})
	go func() {
		_ = a.cmd.Wait() // what it says is in ProcessState
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("server did not end in %s", patience)
	}
}
