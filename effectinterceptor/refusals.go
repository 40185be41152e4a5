package effectinterceptor

import (
	"strconv"
	"sync"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/splice"
)

// refusals keeps a flood of stopped calls from filling the log. Of equal ones the first is noted at once, and the
// others of the same minute as one event when it is over, with their number in "more".
type refusals struct {
	note func(effect.Event)

	mu   sync.Mutex
	runs map[refusalKey]*refusalRun
}

// refusalKey is what makes two stopped calls equal.
type refusalKey struct{ kind, by, tenant, principal, server, tool, effect string }

// refusalRun are the equal ones of a minute after the first.
type refusalRun struct {
	last effect.Event
	more int
	over *time.Timer
}

const (
	refusalsEvery = time.Minute
	// maxRefusalRuns bounds what is told apart: callers choose the names of tools that do not exist. What is
	// beyond is counted by kind and tenant alone.
	maxRefusalRuns = 1000
)

// add notes or counts a stopped call. by is who or what stopped it, and why where that tells more.
func (f *refusals) add(ev effect.Event, by string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := refusalKey{ev.Kind, by, ev.Tenant, ev.Principal, ev.Server, ev.Tool, ev.Effect}
	if f.runs[key] == nil && len(f.runs) >= maxRefusalRuns {
		key = refusalKey{kind: ev.Kind, tenant: ev.Tenant}
		ev.Principal, ev.Server, ev.Tool, ev.Effect = "", "", "", ""
	}
	if run := f.runs[key]; run != nil {
		run.last, run.more = ev, run.more+1
		return
	}
	if f.runs == nil {
		f.runs = map[refusalKey]*refusalRun{}
	}
	f.runs[key] = &refusalRun{over: time.AfterFunc(refusalsEvery, func() { f.end(key) })}
	f.note(ev)
}

func (f *refusals) end(key refusalKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if run := f.runs[key]; run != nil {
		delete(f.runs, key)
		f.tell(run)
	}
}

// close notes what was counted.
func (f *refusals) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, run := range f.runs {
		run.over.Stop()
		delete(f.runs, key)
		f.tell(run)
	}
}

func (f *refusals) tell(run *refusalRun) {
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
	f.note(ev)
}

// Close notes what was counted of calls that were stopped, and ends what is being read. It is for the end of a
// program, before the log's.
func (i *Interceptors) Close() {
	i.refused.close()
	i.catalog.close()
}
