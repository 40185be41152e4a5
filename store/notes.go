package store

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/undolog/undolog/effect"
)

// flushSize is how many notes are written without waiting for more.
const flushSize = 256

// notebook holds what is written in groups. It is bounded: room hands out its places.
type notebook struct {
	mu      sync.Mutex
	notes   Notes
	writing int // how many of the deliveries, from the oldest, are being written; they are still in notes

	room chan struct{} // one token a waiting note
	full chan struct{} // buffered 1: a flush is wanted before its time
	some chan struct{} // buffered 1: there is something to flush
}

func (n *Notes) size() int { return len(n.Reads) + len(n.Deliveries) + len(n.Events) }

func (n *notebook) init(size int) {
	n.room = make(chan struct{}, size)
	n.full = make(chan struct{}, 1)
	n.some = make(chan struct{}, 1)
}

// add puts one note in, waiting for room until done.
func (n *notebook) add(done <-chan struct{}, put func(*Notes)) bool {
	select {
	case n.room <- struct{}{}:
	case <-done:
		return false
	}
	n.mu.Lock()
	put(&n.notes)
	full := n.notes.size()-n.writing >= min(flushSize, cap(n.room))
	n.mu.Unlock()
	signal(n.some)
	if full {
		signal(n.full)
	}
	return true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take empties the notebook but for the deliveries, which decisions must know of until written says that
// they can be read in the log. Only one taker is at work at a time.
func (n *notebook) take() *Notes {
	n.mu.Lock()
	defer n.mu.Unlock()
	notes := n.notes
	notes.Deliveries = slices.Clip(notes.Deliveries)
	n.notes = Notes{Deliveries: n.notes.Deliveries}
	n.writing = len(notes.Deliveries)
	n.free(notes.size())
	return &notes
}

// written lets go of the deliveries that were taken.
func (n *notebook) written() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notes.Deliveries = n.notes.Deliveries[n.writing:]
	n.writing = 0
	if len(n.notes.Deliveries) == 0 {
		n.notes.Deliveries = nil // and of the array
	}
}

// unwritten is every delivery that may not be in the log yet, oldest first. It is only read: what is in
// its place is never written again.
func (n *notebook) unwritten() []Delivery {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clip(n.notes.Deliveries)
}

func (n *notebook) free(count int) {
	for range count {
		select {
		case <-n.room:
		default:
		}
	}
}

// RecordRead records a finished call of tier read, in a group and a moment later; it never claims. The
// record's call, answer, state and times are the caller's to fill; ID, Seq and counters are given here.
// The record MUST NOT be written to afterwards. A full notebook makes the caller wait.
func (l *Log) RecordRead(r *effect.Record) {
	id, err := uuid.NewV7()
	if err != nil {
		l.logger.Error("read not recorded", slog.Any("error", err))
		return
	}
	read := *r
	read.ID, read.Tier = id.String(), effect.TierRead
	if read.Tenant == "" {
		read.Tenant = effect.DefaultTenant
	}
	read.CreatedAt, read.ChangedAt = l.logTime(read.CreatedAt), l.logTime(read.ChangedAt)
	if read.Owner == "" {
		read.Owner = l.owner
	}
	l.note("read", func(n *Notes) { n.Reads = append(n.Reads, &read) })
}

// Delivered records that the effect's answer reached its agent, with the time at which it began to. It is
// not durable when Delivered returns, but known to every later Begin of this process.
func (l *Log) Delivered(tenant, id string, at time.Time) {
	d := Delivery{Tenant: tenant, Effect: id, At: l.clock.LogTime(at)}
	l.note("delivery", func(n *Notes) { n.Deliveries = append(n.Deliveries, d) })
}

// Withdraw takes back what Delivered said with the same time: the answer turned out not to have arrived.
// Like it, it is known to every later Begin of this process.
func (l *Log) Withdraw(tenant, id string, at time.Time) {
	d := Delivery{Tenant: tenant, Effect: id, At: l.clock.LogTime(at), Withdrawn: true}
	l.note("delivery", func(n *Notes) { n.Deliveries = append(n.Deliveries, d) })
}

// Note records an event, in a group and a moment later. At defaults to now.
func (l *Log) Note(ev effect.Event) {
	ev.At = l.logTime(ev.At)
	if ev.Tenant == "" {
		ev.Tenant = effect.DefaultTenant
	}
	l.note("event", func(n *Notes) { n.Events = append(n.Events, ev) })
}

func (l *Log) note(kind string, put func(*Notes)) {
	if !l.notes.add(l.life.Done(), put) {
		l.logger.Error("note not recorded: log closed", slog.String("kind", kind))
	}
}

// writeNotes writes the notebook when it has enough in it, a moment after it has anything in it, and
// once more at the end.
func (l *Log) writeNotes() {
	for {
		select {
		case <-l.life.Done():
			l.flush()
			return
		case <-l.notes.some:
		}
		timer := time.NewTimer(l.opts.FlushEvery)
		select {
		case <-l.life.Done():
		case <-l.notes.full:
		case <-timer.C:
		}
		timer.Stop()
		l.flush()
	}
}

func (l *Log) flush() {
	notes := l.notes.take()
	if notes.size() == 0 {
		return
	}
	defer l.notes.written()
	ctx, cancel := detached(l.life, writeTimeout)
	defer cancel()
	if err := l.driver.Write(ctx, notes); err != nil {
		l.writeSingly(ctx, notes, err)
	}
}

// writeSingly saves what can be saved of a group that failed.
func (l *Log) writeSingly(ctx context.Context, notes *Notes, cause error) {
	lost := 0
	write := func(n *Notes) {
		if ctx.Err() != nil || l.driver.Write(ctx, n) != nil {
			lost++
		}
	}
	for _, r := range notes.Reads {
		write(&Notes{Reads: []*effect.Record{r}})
	}
	for _, d := range notes.Deliveries {
		write(&Notes{Deliveries: []Delivery{d}})
	}
	for _, ev := range notes.Events {
		write(&Notes{Events: []effect.Event{ev}})
	}
	if lost > 0 {
		l.logger.ErrorContext(ctx, "notes not recorded", slog.Int("lost", lost), slog.Any("error", cause))
	}
}
