//go:build faults

package faults

import (
	"os"
	"syscall"
	"time"
)

// edge is read once: a fault build is told at its start where to die, or to stop.
var edge = os.Getenv("UNDOLOG_FAULT")

// Point kills the process, as SIGKILL does and with nothing flushed, when it is told to die at edge name. At
// "stop:" and the name it stops, as by SIGSTOP, until it is told to go on.
func Point(name string) {
	if edge == "stop:"+name {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Second) // a stop need not reach this thread at once
	}
	if name == edge {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
