package webhook

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// ledger knows what was told of a tenant's effects, by whomever: each message that was taken, and each that was
// not at first, is an event of the log. It keeps the effects that may change still.
type ledger struct {
	log    *store.Log
	tenant string
	after  int64                      // events up to here were read
	told   map[string]map[string]bool // keys of changes by effect; false: not taken yet
}

// entry is the detail of an event.
type entry struct {
	Key  string `json:"key"`
	Type string `json:"type,omitempty"`
	Due  bool   `json:"due,omitempty"` // it was not taken at first
	End  bool   `json:"end,omitempty"` // nothing more is to be told of the effect
}

func newLedger(log *store.Log, tenant string) *ledger {
	return &ledger{log: log, tenant: tenant, told: map[string]map[string]bool{}}
}

// page is how many events are read at a time.
const page = 1000

// read takes in what was noted since it read last.
func (l *ledger) read(ctx context.Context) error {
	for {
		events, err := l.log.Events(ctx, l.tenant, l.after, page)
		if err != nil {
			return err
		}
		for i := range events {
			l.after = events[i].Seq
			l.take(&events[i])
		}
		if len(events) < page {
			return nil
		}
	}
}

func (l *ledger) take(ev *effect.Event) {
	var e entry
	if ev.Kind != effect.EventTold || json.Unmarshal(ev.Detail, &e) != nil {
		return
	}
	if e.End {
		delete(l.told, ev.Effect)
		return
	}
	l.set(ev.Effect, e.Key, !e.Due)
}

// set notes a key; what was told once stays so.
func (l *ledger) set(id, key string, told bool) {
	if l.told[id] == nil {
		l.told[id] = map[string]bool{}
	}
	l.told[id][key] = l.told[id][key] || told
}

// has reports whether a change was told.
func (l *ledger) has(c *store.Change) bool { return l.told[c.Record.ID][c.Key] }

// knows reports whether a change was told, or is noted as one that is to be.
func (l *ledger) knows(c *store.Change) bool {
	_, known := l.told[c.Record.ID][c.Key]
	return known
}

// open lists the effects of which something was told, or was to be, and that were not closed.
func (l *ledger) open() []string { return slices.Sorted(maps.Keys(l.told)) }

// note records that a change was told, or that it is still to be.
func (l *ledger) note(c *store.Change, told bool) {
	l.set(c.Record.ID, c.Key, told)
	l.write(c.Record, entry{Key: c.Key, Type: string(c.Kind), Due: !told})
}

// close records that nothing more is to be told of an effect.
func (l *ledger) close(c *store.Change) {
	if l.told[c.Record.ID] == nil {
		return
	}
	delete(l.told, c.Record.ID)
	l.write(c.Record, entry{Key: c.Key, End: true})
}

func (l *ledger) write(r *effect.Record, e entry) {
	detail, err := json.Marshal(e)
	if err != nil {
		return // of texts and booleans: cannot be
	}
	l.log.Note(effect.Event{
		Tenant: l.tenant, Effect: r.ID, Kind: effect.EventTold, Principal: r.Principal, Server: r.Server, Tool: r.Tool, Detail: detail,
	})
}
