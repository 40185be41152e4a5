//go:build unix

package gateway

import (
	"net"
	"syscall"
)

// wasReset reports whether the peer has reset a connection, which is told once.
func wasReset(conn net.Conn) (reset bool) {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		errno, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
		reset = err == nil && (errno == int(syscall.ECONNRESET) || errno == int(syscall.EPIPE))
	})
	return reset && err == nil
}
