//go:build faults

package faults

import (
	"os"
	"strings"
	"time"
)

// stepped is the file that says how far the clock has stepped, a Go duration; empty: it has not.
var stepped = os.Getenv("UNDOLOG_FAULT_CLOCK")

// Now is time.Now on a machine whose clock has been stepped as the file UNDOLOG_FAULT_CLOCK says. It is read
// each time, so that the clock steps under a program that runs.
func Now() time.Time {
	now := time.Now()
	if stepped == "" {
		return now
	}
	text, err := os.ReadFile(stepped)
	if err != nil {
		return now
	}
	step, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return now
	}
	return now.Add(step)
}
