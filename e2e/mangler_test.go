package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// manglerEnv makes this test program stand before the MCP server that its arguments name, and spoil the answer of
// a call as the variable's value says.
const manglerEnv = "E2E_MANGLER"

var manglings = []string{"drop", "duplicate", "truncate", "garble", "slow", "split"}

// mangle runs until its standard input or the server ends.
func mangle(how string) {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mangler:", err)
		os.Exit(1)
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if bytes.Contains(line, []byte(`"content"`)) {
			spoil(os.Stdout, line, how)
		} else {
			os.Stdout.Write(line)
		}
		if err != nil {
			break
		}
	}
	_ = cmd.Wait()
}

// spoil writes what becomes of an answer.
func spoil(to io.Writer, line []byte, how string) {
	half := len(line) / 2
	switch how {
	case "drop":
	case "duplicate":
		to.Write(append(line, line...))
	case "truncate":
		to.Write(line[:half])
		os.Exit(0)
	case "garble":
		to.Write(append(line[:half:half], '\n'))
	case "slow":
		<-time.After(100 * time.Millisecond)
		to.Write(line)
	case "split":
		to.Write(line[:half])
		<-time.After(20 * time.Millisecond)
		to.Write(line[half:])
	}
}
