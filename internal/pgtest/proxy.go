package pgtest

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// Direction is a way through a Proxy.
type Direction int

// The ways through a Proxy.
const (
	ToServer Direction = iota
	ToClient
)

// Proxy passes connections on to a server and breaks them as it is told. It is safe for concurrent use.
type Proxy struct {
	URL string // of the database through it

	server   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	resumed *sync.Cond // when a pause, or the proxy, ends
	links   map[*link]bool
	passed  [2]int64
	limit   [2]int64 // at which total a connection is cut, or goes silent; negative: at none
	silence [2]bool  // it goes silent
	paused  [2]bool
	refuse  bool
	cuts    int
	stalls  int
	closed  bool
}

// link is one client's connection and ours to the server.
type link struct {
	client, server net.Conn
	silent         bool // guarded by Proxy.mu
	ending         sync.Once
	ended          chan struct{}
}

func (l *link) close() {
	l.ending.Do(func() {
		l.client.Close()
		l.server.Close()
		close(l.ended)
	})
}

// NewProxy starts a proxy before the database that the URL names, until the test has ended.
func NewProxy(tb testing.TB, database string) *Proxy {
	tb.Helper()
	u, err := url.Parse(database)
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{server: u.Host, listener: listener, links: map[*link]bool{}, limit: [2]int64{-1, -1}}
	p.resumed = sync.NewCond(&p.mu)
	u.Host = listener.Addr().String()
	p.URL = u.String()
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Passed is how many bytes have gone each way through all connections.
func (p *Proxy) Passed() (toServer, toClient int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[ToServer], p.passed[ToClient]
}

// CutAfter lets n more bytes pass that way, over all connections, and then cuts the connection that they
// went over, once: the side that they went to has got exactly these. Zero cuts at the next byte, before it
// passes.
func (p *Proxy) CutAfter(d Direction, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit[d], p.silence[d] = p.passed[d]+n, false
}

// StallAfter lets n more bytes pass that way and then has the connection that they went over go silent, once:
// nothing passes any more either way, and neither side learns that the other has closed, until Drop.
func (p *Proxy) StallAfter(d Direction, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit[d], p.silence[d] = p.passed[d]+n, true
}

// Stalls is how many connections StallAfter has made silent.
func (p *Proxy) Stalls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stalls
}

// Cuts is how many connections CutAfter has cut.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Disarm takes back a CutAfter or StallAfter that has not come to pass.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = [2]int64{-1, -1}
}

// Pause holds what goes that way until Resume.
func (p *Proxy) Pause(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused[d] = true
}

// Resume ends both pauses.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = [2]bool{}
	p.resumed.Broadcast()
}

// Refuse says whether new connections are refused.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Drop cuts every connection that there is.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

func (p *Proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		l.close()
	}
	p.resumed.Broadcast()
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	l := &link{client: client, server: server, ended: make(chan struct{})}
	if !p.admit(l) {
		l.close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, ToServer, client, server) })
	both.Go(func() { p.pump(l, ToClient, server, client) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) admit(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		return false
	}
	p.links[l] = true
	return true
}

// pump passes bytes one way until either side ends; then both do, unless the connection went silent.
func (p *Proxy) pump(l *link, d Direction, from, to net.Conn) {
	defer l.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		pass, end := p.take(l, d, n)
		var lost error
		if pass > 0 {
			_, lost = to.Write(buf[:pass])
		}
		p.count(end)
		if lost != nil {
			return
		}
		if end == silent || end == still {
			<-l.ended
		}
		if err != nil || end != passing {
			return
		}
	}
}

// after is what becomes of a connection after some bytes.
type after int

const (
	passing after = iota
	cut
	silent
	still // silent since before
)

// take says how many of n bytes pass, and what then becomes of the connection.
func (p *Proxy) take(l *link, d Direction, n int) (pass int, then after) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.paused[d] && !p.closed {
		p.resumed.Wait()
	}
	if l.silent {
		return 0, still
	}
	pass = n
	if limit := p.limit[d]; limit >= 0 && n > 0 && p.passed[d]+int64(n) >= limit {
		pass, then = int(limit-p.passed[d]), p.breakOff(l, d)
	}
	p.passed[d] += int64(pass)
	return pass, then
}

func (p *Proxy) breakOff(l *link, d Direction) after {
	p.limit[d] = -1
	if p.silence[d] {
		l.silent = true
		return silent
	}
	return cut
}

// count counts what was broken, once what may pass has passed: who waits for the count goes by that.
func (p *Proxy) count(then after) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch then {
	case cut:
		p.cuts++
	case silent:
		p.stalls++
	}
}
