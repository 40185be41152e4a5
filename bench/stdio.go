package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// session is an agent's connection to a server on stdio, with one call at a time.
type session struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
	next  int
}

// direct is a session with a payments server, and through one with a gateway in front of it. Each server
// has a ledger of its own and does not sync it.
func (b *bench) direct(name string) (*session, error) { return start(b.payments(name)) }

func (b *bench) through(name string) (*session, error) {
	gateway := []string{filepath.Join(b.bin, "undolog"), "--db", filepath.Join(b.dir, name+".db"), "gateway", "--"}
	return start(append(gateway, b.payments(name)...))
}

// relayed is a session through the least of relays, which writes the rows of each call or nothing.
func (b *bench) relayed(name string, writes bool) (*session, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	file := "-"
	if writes {
		file = filepath.Join(b.dir, name+".db")
	}
	return start(append([]string{self, relayCommand, file}, b.payments(name)...))
}

func (b *bench) payments(name string) []string {
	return []string{filepath.Join(b.bin, "payments"), "--no-sync", "--ledger", filepath.Join(b.dir, name+".jsonl")}
}

// answerPrefix is how every answer begins, and every request of ours.
const answerPrefix = `{"jsonrpc":"2.0","id":`

func start(command []string) (*session, error) {
	cmd := exec.Command(command[0], command[1:]...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe standard input: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe standard output: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w (make build makes it)", filepath.Base(command[0]), err)
	}
	s := &session{cmd: cmd, stdin: stdin, lines: bufio.NewReaderSize(stdout, 64<<10)}
	if err := s.initialize(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *session) initialize() error {
	_, err := s.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`)
	if err != nil {
		return err
	}
	_, err = io.WriteString(s.stdin, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return err
}

// call makes a tool call and says how long its round trip took.
func (s *session) call(tool, arguments string) (time.Duration, error) {
	return s.request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments))
}

// callStamped is call with what the gateway puts into the _meta of a claimed call.
func (s *session) callStamped(tool, arguments string) (time.Duration, error) {
	const id = "01932cf2-7a7a-7000-8000-0123456789ab"
	const meta = `{"dev.undolog/effect":{"id":"` + id + `","attempt":1},"idempotencyKey":"` + id + `"}`
	return s.request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":%s}`, tool, arguments, meta))
}

func (s *session) request(method, params string) (time.Duration, error) {
	s.next++
	id := strconv.Itoa(s.next)
	line := []byte(answerPrefix + id + `,"method":"` + method + `","params":` + params + "}\n")
	begun := time.Now()
	if _, err := s.stdin.Write(line); err != nil {
		return 0, fmt.Errorf("send %s: %w", method, err)
	}
	for {
		got, err := s.lines.ReadBytes('\n')
		took := time.Since(begun)
		switch {
		case err != nil:
			return 0, fmt.Errorf("await answer of %s: %w", method, err)
		case bytes.HasPrefix(got, []byte(answerPrefix+id+`,"result":`)) && !bytes.Contains(got, []byte(`"isError":true`)):
			return took, nil
		case bytes.HasPrefix(got, []byte(answerPrefix)):
			return 0, fmt.Errorf("answer of %s: %.300s", method, got)
		}
	}
}

func (s *session) close() error {
	err := s.stdin.Close()
	if waitErr := s.cmd.Wait(); waitErr != nil && !errors.Is(waitErr, os.ErrProcessDone) {
		return errors.Join(err, fmt.Errorf("server ended: %w", waitErr))
	}
	return err
}
