package gateway

import (
	"encoding/json"
	"sync"
)

// receipts are the answers that were written to one connection and of which nothing shows yet whether the
// agent has read them. The zero value is ready.
type receipts struct {
	mu    sync.Mutex
	open  []receipt
	ended bool
}

// receipt is one of them: what to call when it is lost, and where it ended in the bytes written.
type receipt struct {
	lost func()
	end  int64
}

// receiptsMost bounds receipts.open; the oldest count as read.
const receiptsMost = 1024

// expect is called when an answer was written.
func (r *receipts) expect(lost func(), end int64) {
	r.mu.Lock()
	ended := r.ended
	if !ended {
		if len(r.open) == receiptsMost {
			r.open = r.open[1:]
		}
		r.open = append(r.open, receipt{lost, end})
	}
	r.mu.Unlock()
	if ended {
		lost()
	}
}

// isOpen reports whether there are any.
func (r *receipts) isOpen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open) > 0
}

// confirm is called when the agent has used the connection after what was written to it.
func (r *receipts) confirm() {
	r.mu.Lock()
	r.open = nil
	r.mu.Unlock()
}

// lose is called when the connection has broken with the bytes behind read unread.
func (r *receipts) lose(read int64) {
	r.mu.Lock()
	open := r.open
	r.open, r.ended = nil, true
	r.mu.Unlock()
	for _, o := range open {
		if o.end > read {
			o.lost()
		}
	}
}

// answered remembers the latest requests that were answered, for an agent that cancels one as its answer
// comes: it has given the request up, and MCP has it ignore the answer. The zero value is ready.
type answered struct {
	mu     sync.Mutex
	latest [64]struct {
		key      string
		withdraw func()
	}
	next int
}

func (a *answered) add(id json.RawMessage, withdraw func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest[a.next].key, a.latest[a.next].withdraw = idKey(id), withdraw
	a.next = (a.next + 1) % len(a.latest)
}

func (a *answered) withdraw(id json.RawMessage) {
	key := idKey(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.latest {
		if l := &a.latest[i]; l.withdraw != nil && l.key == key {
			l.withdraw()
			l.withdraw = nil
		}
	}
}
