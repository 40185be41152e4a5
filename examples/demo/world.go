package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/examples/payments/ledger"
)

// world is where the demo happens: one effect log, one payments server with its ledger, and as many
// agents and gateways as die.
type world struct {
	screen
	dir       string
	heartbeat time.Duration
	undolog   string
	payments  string
	db        string   // the effect log
	ledger    string   // one line for each charge that was made
	control   string   // what the payments server does wrong
	messages  *os.File // what the gateways say on standard error
}

func newWorld(dir, bin string, heartbeat time.Duration) (*world, error) {
	undolog, err := absolute(bin, "undolog")
	if err != nil {
		return nil, err
	}
	payments, err := absolute(bin, "payments")
	if err != nil {
		return nil, err
	}
	messages, err := os.Create(filepath.Join(dir, "messages.txt"))
	if err != nil {
		return nil, fmt.Errorf("make file for messages: %w", err)
	}
	return &world{
		screen: newScreen(os.Stdout), dir: dir, heartbeat: heartbeat, undolog: undolog, payments: payments,
		db: filepath.Join(dir, "undolog.db"), ledger: filepath.Join(dir, "ledger.jsonl"),
		control: filepath.Join(dir, "faults.json"), messages: messages,
	}, nil
}

// gateway is the command line that stands in an agent's MCP configuration. A short heartbeat lets a
// killed gateway's calls count as lost after four seconds and not ten; a gateway that the machine stops for longer than
// that counts as dead, too.
func (w *world) gateway() []string {
	return []string{w.undolog, "--db", w.db, "gateway", "--heartbeat", w.heartbeat.String(),
		"--", w.payments, "--ledger", w.ledger, "--faults", w.control}
}

// connect is an agent with a gateway and a payments server of its own.
func (w *world) connect() (*agent, error) {
	a, err := startAgent(w.gateway(), w.messages)
	if err != nil {
		return nil, err
	}
	return a, a.initialize()
}

// next tells the payments server what to do wrong at its next charge.
func (w *world) next(rule faults.Rule) error {
	rule.Times = 1
	return faults.Write(w.control, faults.Set{"charge": rule})
}

// file names a file whose appearance the payments server can be told to wait for.
func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// charges counts at the target how often an account was charged.
func (w *world) charges(account string) (int, error) {
	entries, err := ledger.Read(w.ledger)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, e := range ledger.Of(entries, "charge") {
		var c struct {
			Account string `json:"account"`
		}
		if err := json.Unmarshal(e.Arguments, &c); err != nil {
			return 0, fmt.Errorf("read ledger: %w", err)
		}
		if c.Account == account {
			n++
		}
	}
	return n, nil
}

// promise counts an account's charges and fails when they are not as many as promised.
func (w *world) promise(account string, want int) error {
	got, err := w.charges(account)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%s was charged %d times, promised was %d", account, got, want)
	}
	w.counted(account, got)
	return nil
}

// charged waits until an account has been charged.
func (w *world) charged(account string) error {
	return eventually("the charge of "+account, func() (bool, error) {
		n, err := w.charges(account)
		return n > 0, err
	})
}

// reached waits until the payments server has got a charge under the present rule.
func (w *world) reached() error {
	return eventually("the call to reach the payments server", func() (bool, error) {
		n, err := faults.Hits(w.control, "charge")
		return n > 0, err
	})
}

// inDoubt waits until the log has an effect in doubt and returns its id.
func (w *world) inDoubt() (id string, err error) {
	err = eventually("the effect to be in doubt", func() (bool, error) {
		out, err := exec.Command(w.undolog, "--db", w.db, "log", "--state", "in_doubt", "--json").Output()
		if err != nil {
			return false, fmt.Errorf("run undolog log: %w", err)
		}
		if len(out) == 0 {
			return false, nil
		}
		var e struct {
			ID string `json:"id"`
		}
		err = json.Unmarshal(out, &e)
		id = e.ID
		return true, err
	})
	return id, err
}

// run shows and runs an undolog command, as a person does.
func (w *world) run(args ...string) error {
	w.command(args)
	cmd := exec.Command(w.undolog, args...)
	cmd.Env = append(os.Environ(), "UNDOLOG_DB="+w.db)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run undolog %s: %w", args[0], err)
	}
	return nil
}

// eventually looks for what another process does until it is there.
func eventually(what string, is func() (bool, error)) error {
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := is()
		if done || err != nil {
			return err
		}
		select {
		case <-deadline:
			return errors.New("waited too long for " + what)
		case <-tick.C:
		}
	}
}
