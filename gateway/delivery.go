package gateway

import (
	"sync"
	"time"

	"github.com/undolog/undolog/chain"
)

// deliveries are the answers that are being written to an agent. The agent may act on an answer before
// its writer knows that it is out: a request that is read meanwhile waits for it, so that what had been
// delivered is known before the request is decided on. The zero value is ready.
type deliveries struct {
	mu       sync.Mutex
	underWay map[chan struct{}]bool
}

// deliver sends a reply and tells the chain whether it arrived. A nil reply is sent without.
func (d *deliveries) deliver(reply *chain.Reply, send func() bool) {
	if reply == nil {
		send()
		return
	}
	done := make(chan struct{})
	d.mu.Lock()
	if d.underWay == nil {
		d.underWay = map[chan struct{}]bool{}
	}
	d.underWay[done] = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.underWay, done)
		d.mu.Unlock()
		close(done)
	}()
	reply.Deliver(send)
}

// arrival is when a request was read, and what was being delivered then.
type arrival struct {
	at   time.Time
	open []chan struct{}
}

func (d *deliveries) arrived() arrival {
	a := arrival{at: time.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	for done := range d.underWay {
		a.open = append(a.open, done)
	}
	return a
}

// settled waits until it is known whether what was being delivered has arrived.
func (a arrival) settled() {
	for _, done := range a.open {
		<-done
	}
}
