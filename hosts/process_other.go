//go:build !unix

package hosts

import "os/exec"

func apart(*exec.Cmd) {}
