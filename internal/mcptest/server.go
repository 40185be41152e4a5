package mcptest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"
)

// announced finds the URL on the line with which our programs say that they serve HTTP.
var announced = regexp.MustCompile(`(?:^|listening on )(http://\S+)`)

// StartHTTP runs a program that serves HTTP and returns the URL that it announces: payments or undolog
// with --http and port 0. The program is killed when the test ends.
func StartHTTP(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	return StartServer(t, cmd, announced)
}

// StartServer runs a command until a line of its output matches ready, and returns what the first group
// of ready has matched. The command is killed when the test ends; its output is shown when it fails.
func StartServer(t testing.TB, cmd *exec.Cmd, ready *regexp.Regexp) string {
	t.Helper()
	output, child, err := os.Pipe()
	if err != nil {
		t.Fatalf("pipe output: %v", err)
	}
	cmd.Stdout, cmd.Stderr = child, child
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	child.Close()
	seen, drained, kept := make(chan string, 1), make(chan struct{}), &lockedBuffer{}
	go func() {
		defer close(drained)
		defer output.Close()
		watch(bufio.NewScanner(output), ready, seen, kept)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // an error says that it has ended
		_ = cmd.Wait()
		_ = output.SetReadDeadline(time.Now().Add(time.Second)) // a grandchild may hold the other end
		<-drained
		if t.Failed() {
			t.Logf("output of %s:\n%s", cmd.Path, kept)
		}
	})
	select {
	case match := <-seen:
		return match
	case <-drained:
		t.Fatalf("%s ended before it served", cmd.Path)
	case <-time.After(patience):
		t.Fatalf("%s did not say that it serves", cmd.Path)
	}
	return ""
}

// watch keeps lines and sends the first match.
func watch(lines *bufio.Scanner, ready *regexp.Regexp, seen chan<- string, kept *lockedBuffer) {
	lines.Buffer(nil, 16<<20)
	for matched := false; lines.Scan(); {
		fmt.Fprintln(kept, lines.Text())
		if match := ready.FindStringSubmatch(lines.Text()); match != nil && !matched {
			matched = true
			seen <- match[len(match)-1]
		}
	}
}
