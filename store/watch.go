package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/undolog/undolog/effect"
)

// Change is something that has become true of an effect and that people may want to hear of.
type Change struct {
	Kind   ChangeKind
	Key    string    // names it: who watches, whenever and wherever, sees it under the same key
	At     time.Time // since when it is true, as far as the log can tell
	Record *effect.Record
}

// ChangeKind says what has become true.
type ChangeKind string

const (
	ChangeRequested ChangeKind = "approval.requested" // a person must decide; also after a denied call was reopened
	ChangeReminder  ChangeKind = "approval.reminder"  // the time to decide is nearly over
	ChangeUpdated   ChangeKind = "approval.updated"   // a vote of several, an edit, more time
	ChangeDecided   ChangeKind = "approval.decided"   // approved by enough people, denied, or withdrawn
	ChangeExpired   ChangeKind = "approval.expired"   // nobody decided in time, or the approval was not used or is void
	ChangeInDoubt   ChangeKind = "effect.in_doubt"    // its outcome was lost
	ChangeWaiting   ChangeKind = "effect.waiting"     // its tool waits for another round or works on a task
	ChangeRunning   ChangeKind = "effect.running"     // it waited, and has been claimed
	ChangeEnded     ChangeKind = "effect.ended"       // it waits for nobody any more, and does not run
)

// watchLimit is how many pending effects are watched, the newest.
const watchLimit = 1000

// Watcher finds out what changes about the effects of a tenant that wait for somebody, whoever changes it. It
// is not safe for concurrent use.
type Watcher struct {
	log    *Log
	tenant string
	seen   map[string]map[string]bool // keys that were told, by effect
	open   map[string]bool            // effects that waited at the last look, or ran after they had
}

// Watch makes a watcher that has seen nothing: its first look tells all that is true of what waits now.
func (l *Log) Watch(tenant string) *Watcher {
	return &Watcher{log: l, tenant: tenant, seen: map[string]map[string]bool{}, open: map[string]bool{}}
}

// Look returns what has changed since the last look, oldest first. What began and ended between two looks is
// not seen.
func (w *Watcher) Look(ctx context.Context) ([]Change, error) {
	pending, err := w.log.Pending(ctx, w.tenant, watchLimit)
	if err != nil {
		return nil, err
	}
	left, err := w.left(ctx, pending)
	if err != nil {
		return nil, err
	}
	now := w.log.Now()
	var news []Change
	for _, r := range pending {
		news = w.add(news, Changes(r, now))
	}
	clear(w.open)
	for _, r := range left {
		switch state := r.StateAt(now); {
		case state == effect.StateClaimed:
			w.open[r.ID] = true
			news = w.add(news, append(Changes(r, now), running(r)))
		case waits(state): // again, or among too many
			w.open[r.ID] = true
			news = w.add(news, Changes(r, now))
		default:
			news = w.add(news, append(Changes(r, now), Ended(r, now)))
			delete(w.seen, r.ID)
		}
	}
	for _, r := range pending {
		w.open[r.ID] = true
	}
	slices.SortStableFunc(news, func(a, b Change) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Record.Seq, b.Record.Seq)) })
	return news, nil
}

// left reads the effects that waited, or ran, and do not wait now.
func (w *Watcher) left(ctx context.Context, pending []*effect.Record) ([]*effect.Record, error) {
	now := map[string]bool{}
	for _, r := range pending {
		now[r.ID] = true
	}
	var left []*effect.Record
	for id := range w.open {
		if now[id] {
			continue
		}
		r, err := w.log.driver.Effect(ctx, w.tenant, id)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, err
		default:
			left = append(left, r)
		}
	}
	slices.SortFunc(left, func(a, b *effect.Record) int { return cmp.Compare(a.ID, b.ID) })
	return left, nil
}

func waits(s effect.State) bool {
	switch s {
	case effect.StateAwaitingApproval, effect.StateInDoubt, effect.StateWaiting:
		return true
	}
	return false
}

func (w *Watcher) add(news, changes []Change) []Change {
	for _, c := range changes {
		seen := w.seen[c.Record.ID]
		if seen == nil {
			seen = map[string]bool{}
			w.seen[c.Record.ID] = seen
		}
		if !seen[c.Key] {
			seen[c.Key] = true
			news = append(news, c)
		}
	}
	return news
}

// Changes returns all that is true of an effect at a time and worth telling, but that it has ended.
func Changes(r *effect.Record, now time.Time) []Change {
	var list []Change
	if r.Approval != nil {
		list = approvalChanges(r, now)
	}
	switch r.StateAt(now) {
	case effect.StateInDoubt:
		list = append(list, change(ChangeInDoubt, r, lostAt(r), r.ID, strconv.Itoa(r.Attempt)))
	case effect.StateWaiting:
		list = append(list, change(ChangeWaiting, r, r.ChangedAt, r.ID, strconv.Itoa(r.Ordinal)))
	}
	return list
}

func approvalChanges(r *effect.Record, now time.Time) []Change {
	a, state := r.Approval, r.StateAt(now)
	list := []Change{change(ChangeRequested, r, a.RequestedAt, a.ID, stamp(a.RequestedAt))}
	undecided := state == effect.StateAwaitingApproval && !a.IsApproved()
	if undecided && a.Last != nil && a.Last.Kind != effect.DecideReopen {
		list = append(list, change(ChangeUpdated, r, a.Last.At, a.ID, stamp(a.Last.At)))
	}
	if undecided && (a.Reminded || !now.Before(a.RemindAt())) {
		list = append(list, change(ChangeReminder, r, a.RemindAt(), a.ID, stamp(a.DecideUntil)))
	}
	if a.IsApproved() {
		list = append(list, change(ChangeDecided, r, approvedAt(a), a.ID, string(effect.DecideApprove), stamp(a.UseUntil)))
	}
	switch {
	case state == effect.StateDenied:
		list = append(list, change(ChangeDecided, r, r.ChangedAt, a.ID, string(effect.DecideDeny), stamp(r.ChangedAt)))
	case state == effect.StateExpired, state == effect.StateVoid:
		list = append(list, change(ChangeExpired, r, endOf(r), a.ID, string(state)))
	}
	return list
}

func approvedAt(a *effect.Approval) time.Time {
	return a.UseUntil.Add(-time.Duration(a.UseForMs) * time.Millisecond)
}

// endOf is when a request was over, by its clock where nobody has written so.
func endOf(r *effect.Record) time.Time {
	switch {
	case r.State != effect.StateAwaitingApproval:
		return r.ChangedAt
	case r.Approval.IsApproved():
		return r.Approval.UseUntil
	}
	return r.Approval.DecideUntil
}

// lostAt is when an effect came to be in doubt.
func lostAt(r *effect.Record) time.Time {
	if r.State == effect.StateInDoubt {
		return r.ChangedAt
	}
	at := cmp.Or(r.LeaseUntil, r.OwnerUntil)
	if at.IsZero() || !r.TimeoutAt.IsZero() && r.TimeoutAt.Before(at) {
		at = r.TimeoutAt
	}
	return cmp.Or(at, r.ChangedAt)
}

func running(r *effect.Record) Change {
	return change(ChangeRunning, r, r.ChangedAt, r.ID, strconv.Itoa(r.Ordinal))
}

// Ended is the change of an effect that waited and does so no more.
func Ended(r *effect.Record, now time.Time) Change {
	at := r.ChangedAt
	if r.State == effect.StateAwaitingApproval { // over by its clock
		at = endOf(r)
	}
	return change(ChangeEnded, r, at, r.ID, strconv.Itoa(r.Ordinal), string(r.StateAt(now)))
}

func change(kind ChangeKind, r *effect.Record, at time.Time, of ...string) Change {
	key := string(kind)
	for _, part := range of {
		key += ":" + part
	}
	return Change{Kind: kind, Key: key, At: at, Record: r}
}

func stamp(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }
