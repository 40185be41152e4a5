//go:build unix

package hosts

import (
	"os/exec"
	"syscall"
)

// apart keeps a Ctrl-C in our terminal from the command: it is ended in good order, after what is under way.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
