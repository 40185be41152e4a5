// Package faults says how the payments example misbehaves. A control file holds one rule for each tool
// and is read again at each call, so that a test changes a running server:
//
//	err := faults.Write(path, faults.Set{"charge": {After: faults.Kill, Times: 1}})
//
// Calls that met a rule are counted in a file beside it, which outlives the server's crashes.
package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Any is the tool name of the rule for tools without one of their own.
const Any = "*"

// Set holds a rule for each tool by its name.
type Set map[string]Rule

// Rule is what happens around one effect, in the order of its fields.
type Rule struct {
	Times int `json:"times,omitempty"` // only the first so many calls; 0 is all

	DelayBeforeMs int    `json:"delayBeforeMs,omitempty"`
	WaitBefore    string `json:"waitBefore,omitempty"` // until this file exists
	Before        Act    `json:"before,omitempty"`     // in the effect's place
	DelayAfterMs  int    `json:"delayAfterMs,omitempty"`
	WaitAfter     string `json:"waitAfter,omitempty"`
	After         Act    `json:"after,omitempty"` // in the answer's place

	// Cancellable makes delays and waits end, and the effect stay away, when the caller cancels. Without
	// it the tool takes no notice, as most do.
	Cancellable bool `json:"cancellable,omitempty"`
	WrongTypes  bool `json:"wrongTypes,omitempty"`  // numbers of the result change their type and spelling
	ResultBytes int  `json:"resultBytes,omitempty"` // a text block of that size is added to the result
}

// Act is a way to end a call.
type Act string

// The acts of a Rule.
const (
	None      Act = ""
	ToolError Act = "tool_error" // a result with isError
	RPCError  Act = "rpc_error"  // a JSON-RPC error
	Drop      Act = "drop"       // no answer, ever
	Exit      Act = "exit"       // the process exits with status 3
	Kill      Act = "kill"       // the process kills itself with SIGKILL
)

// Write puts set into the control file at path in one step and counts calls from zero.
func Write(path string, set Set) error {
	data, err := json.Marshal(set)
	if err != nil {
		return fmt.Errorf("encode faults: %w", err)
	}
	if err := os.Remove(hitsPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reset hits: %w", err)
	}
	next := path + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return fmt.Errorf("write faults: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("replace faults: %w", err)
	}
	return nil
}

// Hits returns how many calls of a tool have met a rule since Write.
func Hits(path, tool string) (int, error) {
	data, err := os.ReadFile(hitsPath(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("read hits: %w", err)
	}
	return count(data, tool), nil
}

// Meet returns the rule that a call of tool meets now, and counts the call. A missing control file is an
// empty set; a rule whose Times are used up is the zero Rule.
func Meet(path, tool string) (Rule, error) {
	set, err := read(path)
	if err != nil {
		return Rule{}, err
	}
	rule, ok := set.For(tool)
	if !ok {
		return Rule{}, nil
	}
	n, err := hit(hitsPath(path), tool)
	if err != nil {
		return Rule{}, fmt.Errorf("count hit of %s: %w", tool, err)
	}
	if rule.Times > 0 && n > rule.Times {
		return Rule{}, nil
	}
	return rule, nil
}

// For returns the rule for a tool: its own, else that of Any.
func (s Set) For(tool string) (Rule, bool) {
	rule, ok := s[tool]
	if !ok {
		rule, ok = s[Any]
	}
	return rule, ok
}

func read(path string) (Set, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read faults: %w", err)
	}
	return Parse(data)
}

// Parse reads a set and refuses members that it does not know.
func Parse(data []byte) (Set, error) {
	var set Set
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&set); err != nil {
		return nil, fmt.Errorf("parse faults: %w", err)
	}
	return set, nil
}

func hitsPath(path string) string { return path + ".hits" }

// hit appends a line for the tool under the file's lock and returns how many it has now.
func hit(path, tool string) (int, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer file.Close() // and unlock
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return 0, err
	}
	if _, err := file.WriteString(tool + "\n"); err != nil {
		return 0, err
	}
	data, err := os.ReadFile(path)
	return count(data, tool), err
}

func count(data []byte, tool string) int {
	n := 0
	for line := range bytes.Lines(data) {
		if string(bytes.TrimSuffix(line, []byte("\n"))) == tool {
			n++
		}
	}
	return n
}
