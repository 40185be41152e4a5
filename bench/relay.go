package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/barewriter"
	"github.com/undolog/undolog/store"
)

// relayCommand is the first argument of this program when it is to be a relay: a file or "-", and the
// command of a server follow.
const relayCommand = "relay"

// relay is the least that could stand where the gateway stands: lines pass, one request at a time, and each
// tool call becomes two durable rows around its dispatch. It understands and decides nothing. Its writes
// wait as the gateway's do, in a process that is woken for each call, so that they are the baseline of what
// the log adds. Without a file it writes nothing, and is the baseline of its own.
func relay(ctx context.Context, file string, command []string) (err error) {
	r := &relaying{agent: bufio.NewReaderSize(os.Stdin, 64<<10)}
	if file != "-" {
		if r.writer, err = barewriter.Open(ctx, file); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.writer.Close()) }()
	}
	cmd := exec.Command(command[0], command[1:]...)
	if r.stdin, err = cmd.StdinPipe(); err != nil {
		return fmt.Errorf("pipe standard input: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("pipe standard output: %w", err)
	}
	r.server = bufio.NewReaderSize(stdout, 64<<10)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	err = r.run()
	return errors.Join(err, r.stdin.Close(), cmd.Wait())
}

type relaying struct {
	agent  *bufio.Reader
	stdin  io.WriteCloser
	server *bufio.Reader
	writer *barewriter.Writer // nil: nothing is written
}

func (r *relaying) run() error {
	for {
		line, err := r.agent.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read request: %w", err)
		}
		if r.writer == nil || !bytes.Contains(line, []byte(`"method":"tools/call"`)) {
			err = r.pass(line)
		} else {
			err = r.record(line)
		}
		if err != nil {
			return err
		}
	}
}

// record writes a row, passes the call on, and writes another row before the answer is passed back.
func (r *relaying) record(line []byte) error {
	id := &effect.Identity{Scope: "bench"}
	rand.Read(id.Signature[:])
	id.Window = id.Signature
	seq, err := r.writer.Claim(&store.BeginParams{
		Call:     &effect.Call{Principal: "agent:bench", Server: "payments", Tool: "charge", Arguments: line},
		Identity: id,
	})
	if err != nil {
		return err
	}
	answer, err := r.dispatch(line)
	if err != nil {
		return err
	}
	if err := r.writer.Settle(seq, answer); err != nil {
		return err
	}
	return toAgent(answer)
}

func (r *relaying) pass(line []byte) error {
	answer, err := r.dispatch(line)
	if err != nil || answer == nil {
		return err
	}
	return toAgent(answer)
}

// dispatch sends a message on and returns the answer; nil when it is a notification. What the server says
// of its own accord passes.
func (r *relaying) dispatch(line []byte) (answer []byte, err error) {
	if _, err := r.stdin.Write(line); err != nil {
		return nil, fmt.Errorf("send to server: %w", err)
	}
	if !bytes.HasPrefix(line, []byte(answerPrefix)) {
		return nil, nil
	}
	for {
		got, err := r.server.ReadBytes('\n')
		switch {
		case err != nil:
			return nil, fmt.Errorf("await answer: %w", err)
		case bytes.HasPrefix(got, []byte(answerPrefix)):
			return got, nil
		}
		if err := toAgent(got); err != nil {
			return nil, err
		}
	}
}

func toAgent(line []byte) error {
	if _, err := os.Stdout.Write(line); err != nil {
		return fmt.Errorf("send to agent: %w", err)
	}
	return nil
}
