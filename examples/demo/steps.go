package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/undolog/undolog/examples/payments/faults"
)

// steps are the demo. Each has an account of its own, by which its charges are counted.
var steps = []struct {
	title string
	show  func(*world) error
}{
	{"A charge runs once, and is recorded before it happens", chargeOnce},
	{"The answer is lost with its connection; the agent sends the call again", answerLost},
	{"The agent is killed in mid-call; its successor sends the call again", agentKilled},
	{"The gateway is killed between the effect and its record", gatewayKilled},
	{"What the log says of all that", showLog},
}

func chargeOnce(w *world) error {
	a, err := w.connect()
	if err != nil {
		return err
	}
	w.note("An agent starts “undolog gateway -- payments …” where its configuration had “payments …”.")
	m, err := w.callAnswered(a, 1, `{"account":"ada","amount":1000}`)
	if err != nil {
		return err
	}
	if replayed(m) {
		return errors.New("the first call was answered from the record")
	}
	return errors.Join(a.leave(), w.promise("ada", 1))
}

func answerLost(w *world) error {
	const arguments = `{"account":"bob","amount":2000}`
	goOn := w.file("answer-bob")
	if err := w.next(faults.Rule{WaitAfter: goOn}); err != nil {
		return err
	}
	first, err := w.connect()
	if err != nil {
		return err
	}
	w.sent(1, arguments)
	if err := errors.Join(first.send(charge(1, arguments)), w.charged("bob"), first.breakOff()); err != nil {
		return err
	}
	w.note("Bob is charged. Before the answer comes, the connection breaks.")
	if err := errors.Join(touch(goOn), first.ended()); err != nil {
		return err
	}
	w.note("The gateway has waited for the answer, recorded it and ended. On a new connection, under a new id:")
	second, err := w.connect()
	if err != nil {
		return err
	}
	if err := w.callReplayed(second, 71, arguments); err != nil {
		return err
	}
	return errors.Join(second.leave(), w.promise("bob", 1))
}

func agentKilled(w *world) error {
	const arguments = `{"account":"cy","amount":3000}`
	goOn := w.file("charge-cy")
	if err := w.next(faults.Rule{WaitBefore: goOn}); err != nil {
		return err
	}
	victim, err := w.spawn(arguments)
	if err != nil {
		return err
	}
	w.sent(1, arguments)
	if err := errors.Join(w.reached(), victim.Process.Kill()); err != nil {
		return err
	}
	w.note("The call is at the payments server, which takes its time. The agent gets SIGKILL; its gateway lives on.")
	second, err := w.connect()
	if err != nil {
		return err
	}
	w.sent(1, arguments)
	if err := second.send(charge(1, arguments)); err != nil {
		return err
	}
	if !second.silent(500 * time.Millisecond) {
		return errors.New("the second call did not wait for the first")
	}
	w.note("The second call is not sent on: it has joined the first, which still runs. Now the server goes on:")
	if err := touch(goOn); err != nil {
		return err
	}
	m, err := second.answer()
	if err != nil {
		return err
	}
	w.got(m)
	_ = victim.Wait() // killed; returns when its gateway, which holds its standard error, has ended too
	return errors.Join(wantReplay(m), second.leave(), w.promise("cy", 1))
}

func gatewayKilled(w *world) error {
	const arguments = `{"account":"dee","amount":4000}`
	goOn := w.file("answer-dee")
	if err := w.next(faults.Rule{WaitAfter: goOn}); err != nil {
		return err
	}
	first, err := w.connect()
	if err != nil {
		return err
	}
	w.sent(1, arguments)
	if err := errors.Join(first.send(charge(1, arguments)), w.charged("dee"), first.kill()); err != nil {
		return err
	}
	if err := touch(goOn); err != nil { // the server, to which nobody listens any more, may end
		return err
	}
	w.note("Dee is charged. Before the answer comes, the gateway gets SIGKILL: nobody can know how the call ended.")
	id, err := w.inDoubt()
	if err != nil {
		return err
	}
	w.note("Its heartbeat has stopped: the effect is in doubt. The agent sends the call again:")
	second, err := w.connect()
	if err != nil {
		return err
	}
	m, err := w.call(second, 1, arguments)
	if err != nil {
		return err
	}
	if err := errors.Join(wantInDoubt(m), w.promise("dee", 1)); err != nil {
		return err
	}
	w.note("It was not guessed and not run again. A person looks at the payments and settles it:")
	if err := w.run("resolve", id, "--committed", "--reason", "the charge is in the ledger"); err != nil {
		return err
	}
	if err := w.callReplayed(second, 2, arguments); err != nil {
		return err
	}
	return errors.Join(second.leave(), w.promise("dee", 1))
}

func showLog(w *world) error { return w.run("log") }

// spawn starts an agent in a process of its own.
func (w *world) spawn(arguments string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.Command(self, append([]string{"-agent", arguments, "--"}, w.gateway()...)...)
	cmd.Stderr = &bytes.Buffer{} // a pipe, by which Wait sees the end of all that hold it
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	return cmd, nil
}

// call makes a charge and shows both messages.
func (w *world) call(a *agent, id int, arguments string) (message, error) {
	w.sent(id, arguments)
	m, err := a.call(id, arguments)
	if err == nil {
		w.got(m)
	}
	return m, err
}

func (w *world) callAnswered(a *agent, id int, arguments string) (message, error) {
	m, err := w.call(a, id, arguments)
	if err == nil && m.Error != nil {
		err = errors.New("the call failed: " + m.Error.Message)
	}
	return m, err
}

func (w *world) callReplayed(a *agent, id int, arguments string) error {
	m, err := w.callAnswered(a, id, arguments)
	if err != nil {
		return err
	}
	return wantReplay(m)
}

func wantReplay(m message) error {
	if m.Error != nil {
		return errors.New("the call failed: " + m.Error.Message)
	}
	if !replayed(m) {
		return errors.New("the call was made again, promised was an answer from the record")
	}
	return nil
}

func wantInDoubt(m message) error {
	if m.Error == nil || !strings.Contains(string(m.Error.Data), `"outcome":"in_doubt"`) {
		return errors.New("the call was answered, promised was the report that its outcome is in doubt")
	}
	return nil
}

// replayed reports whether an answer carries the mark of one from the record.
func replayed(m message) bool {
	var r struct {
		Meta struct {
			Replayed bool `json:"dev.undolog/replayed"`
		} `json:"_meta"`
	}
	return json.Unmarshal(m.Result, &r) == nil && r.Meta.Replayed
}

func touch(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return fmt.Errorf("let the server go on: %w", err)
	}
	return nil
}
