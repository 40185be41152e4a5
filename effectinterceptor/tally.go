package effectinterceptor

import (
	"strconv"
	"sync"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/splice"
)

// tally keeps a flood of equal events, such as of calls that were stopped or answered from the record, from filling the
// log.
// Of equal ones the first is noted at once, and the others of the same minute as one event when it is over, with
// their number in "more".
type tally struct {
	note func(effect.Event)
	most int // how many runs are told apart; what is beyond is counted by kind and tenant alone

	mu     sync.Mutex
	runs   map[tallyKey]*run
	closed bool
}

// tallyKey is what makes two events equal.
type tallyKey struct{ kind, by, tenant, principal, server, tool, effect string }

// run are the equal ones of a minute after the first.
type run struct {
	last effect.Event
	more int
	over *time.Timer
}

const (
	tallyEvery = time.Minute
	// mostStops bounds how many kinds of stopped calls are told apart: callers choose the names of tools that do
	// not exist.
	mostStops = 1000
	// mostReplays bounds how many effects are told apart that are answered from the record.
	mostReplays = 10_000
)

// add notes or counts an event. by is what else makes it another one, such as who stopped the call, and why.
func (t *tally) add(ev effect.Event, by string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed { // nothing would tell the number
		t.note(ev)
		return
	}
	key := tallyKey{ev.Kind, by, ev.Tenant, ev.Principal, ev.Server, ev.Tool, ev.Effect}
	if t.runs[key] == nil && len(t.runs) >= t.most {
		key = tallyKey{kind: ev.Kind, tenant: ev.Tenant}
		ev.Principal, ev.Server, ev.Tool, ev.Effect = "", "", "", ""
	}
	if run := t.runs[key]; run != nil {
		run.last, run.more = ev, run.more+1
		return
	}
	if t.runs == nil {
		t.runs = map[tallyKey]*run{}
	}
	t.runs[key] = &run{over: time.AfterFunc(tallyEvery, func() { t.end(key) })}
	t.note(ev)
}

func (t *tally) end(key tallyKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if run := t.runs[key]; run != nil {
		delete(t.runs, key)
		t.tell(run)
	}
}

// close notes what was counted.
func (t *tally) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for key, run := range t.runs {
		run.over.Stop()
		delete(t.runs, key)
		t.tell(run)
	}
}

func (t *tally) tell(run *run) {
	if run.more == 0 {
		return
	}
	ev := run.last
	if len(ev.Detail) == 0 {
		ev.Detail = []byte("{}")
	}
	if told, err := splice.Set(ev.Detail, strconv.AppendInt(nil, int64(run.more), 10), "more"); err == nil {
		ev.Detail = told
	}
	t.note(ev)
}

// Close notes what was counted of calls that were stopped or answered from the record, and ends what is being read.
// It is for the end of a program, before the log's.
func (i *Interceptors) Close() {
	i.refused.close()
	i.replays.close()
	i.catalog.close()
}
