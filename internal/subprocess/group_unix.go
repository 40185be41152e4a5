//go:build unix

package subprocess

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the process the leader of a new group, so that a signal reaches its children too, and
// so that a Ctrl-C in our terminal does not: we end it in good order.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// The group may be gone already: ESRCH is no error here. A group that still has members keeps its
// leader's id from being given away.
func terminateGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
