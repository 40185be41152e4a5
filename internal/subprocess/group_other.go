//go:build !unix

package subprocess

import "os/exec"

// Without process groups the process alone is ended; its children see their input close.
func ownGroup(*exec.Cmd) {}

func terminateGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
