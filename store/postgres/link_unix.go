//go:build unix

package postgres

import (
	"time"

	"golang.org/x/sys/unix"
)

// awaitInput returns when there is something to read, or an end or an error to be told, or after d, or earlier.
func awaitInput(fd uintptr, d time.Duration) {
	waited := [...]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, _ = unix.Poll(waited[:], int(d.Milliseconds())) // who reads now finds out what is wrong
}
