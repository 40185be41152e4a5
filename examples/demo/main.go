package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() {
	bin := flag.String("bin", "bin", "`DIR` with the programs undolog and payments")
	heartbeat := flag.Duration("heartbeat", 4*time.Second, "how long after its last sign of life a gateway's calls count as lost: longer, for a machine that may stop for a while")
	agent := flag.String("agent", "", "play an agent: start the server that the arguments name, charge with these `ARGUMENTS`, wait")
	flag.Parse()
	var err error
	if *agent != "" {
		err = playAgent(*agent, flag.Args())
	} else {
		err = demonstrate(*bin, *heartbeat)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demonstrate runs the steps in a directory of their own. It is kept when a step fails.
func demonstrate(bin string, heartbeat time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "undolog-demo-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	w, err := newWorld(dir, bin, heartbeat)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	for i, s := range steps {
		w.heading(i+1, s.title)
		if err := s.show(w); err != nil {
			return fmt.Errorf("step %d: %w\n(the effect log, the ledger and the gateways' messages are in %s)", i+1, err, dir)
		}
	}
	w.say("\nEverything was as promised.")
	return os.RemoveAll(dir)
}

// playAgent is an agent in a process of its own, which can be killed in the middle of its call.
func playAgent(arguments string, server []string) error {
	a, err := startAgent(server, os.Stderr)
	if err != nil {
		return err
	}
	if err := a.initialize(); err != nil {
		return err
	}
	_, err = a.call(1, arguments)
	return errors.Join(err, a.leave())
}

func absolute(dir, program string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, program))
	if err != nil {
		return "", fmt.Errorf("find %s: %w", program, err)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find %s: %w (make build makes it)", program, err)
	}
	return path, nil
}
