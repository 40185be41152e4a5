//go:build !unix

package gateway

import "net"

// wasReset cannot be told here: the connection's reader notices.
func wasReset(net.Conn) bool { return false }
