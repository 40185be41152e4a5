package mcptest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// FreePort returns a port at which nobody listens, for a server that cannot choose one and say so, or that listens there
// again later. It is none of those that systems hand out, so that nobody is given it meanwhile.
func FreePort(t testing.TB) string {
	t.Helper()
	for {
		port := strconv.Itoa(10_000 + rand.IntN(20_000))
		l, err := net.Listen("tcp", ":"+port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
}
