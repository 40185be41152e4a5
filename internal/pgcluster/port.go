package pgcluster

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"net"
	"strconv"
)

// port is a TCP port at which a server of ours may listen, whether it does at the moment or not.
type port struct {
	number int
	// taken is the UDP port of the same number, which nobody speaks to: other processes that look for a port see by
	// it that this one is taken. It is free again when this process has ended, however it ends.
	taken net.PacketConn
}

// takePort looks for a port below those that systems give to outgoing connections: a client that tries to connect to
// a stopped server from such a port would now and then get itself.
func takePort() (*port, error) {
	var err error
	for range 100 {
		n, _ := rand.Int(rand.Reader, big.NewInt(12_000)) // never fails
		p := &port{number: 20_000 + int(n.Int64())}
		if p.taken, err = net.ListenPacket("udp", p.address()); err != nil {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", p.address()); err == nil {
			return p, l.Close()
		}
		p.taken.Close()
	}
	return nil, fmt.Errorf("find a free port: %w", err)
}

func (p *port) String() string { return strconv.Itoa(p.number) }

func (p *port) address() string { return net.JoinHostPort("127.0.0.1", p.String()) }

// release lets others have the port.
func (p *port) release() error {
	if p == nil {
		return nil
	}
	return p.taken.Close()
}
